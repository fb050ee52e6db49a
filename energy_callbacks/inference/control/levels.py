"""The values of the one setting with which a controller follows the cap: clock, limit or duty."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.inference.control.protocols import Abilities, OperatingPoint
from energy_callbacks.inference.records import Configuration, Tenant
from energy_callbacks.powercap.settings import Knob

# Steps where every value is allowed: 15 MHz as in the ladders of NVIDIA's GPUs, and limits and
# duties that change the power by about as much.
_STEP_MHZ: Final = 15.0
_STEP_W: Final = 2.0
_STEP_DUTY: Final = 0.01
LEAST_DUTY: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A value of that setting.

    Attributes:
        sm_mhz: clock of the multiprocessors, MHz; ``None`` as the GPU chooses.
        power_limit_w: power limit, W; ``None`` as it was found.
        duty: share of time in which tenants work.
    """

    sm_mhz: float | None = None
    power_limit_w: float | None = None
    duty: float = 1.0

    def configuration(self, tenants: Sequence[Tenant]) -> Configuration:
        """Return the configuration of tenants at this level."""
        return Configuration(
            tenants=tuple(tenants), sm_mhz=self.sm_mhz, power_limit_w=self.power_limit_w
        )

    def point(self, tenants: Sequence[Tenant], budget_w: float | None = None) -> OperatingPoint:
        """Return the operating point of tenants at this level, with a budget in W."""
        return OperatingPoint(
            configuration=self.configuration(tenants), duty=self.duty, budget_w=budget_w
        )


def levels(abilities: Abilities) -> tuple[Level, ...]:
    """Return the levels in ascending order of power.

    They are clocks if clocks can be changed, else limits. Below the lowest of these, or if neither
    can be changed, they are duties. If nothing can be changed, there is one level.
    """
    whole: list[Level] = [Level()]
    if "clock" in abilities.can:
        whole = [Level(sm_mhz=one) for one in values(abilities, "clock", _STEP_MHZ)]
    elif "limit" in abilities.can:
        whole = [Level(power_limit_w=one) for one in values(abilities, "limit", _STEP_W)]
    parts: list[Level] = []
    if "duty" in abilities.can:
        lowest = whole[0]
        parts = [
            Level(sm_mhz=lowest.sm_mhz, power_limit_w=lowest.power_limit_w, duty=float(duty))
            for duty in np.arange(LEAST_DUTY, 1.0 - _STEP_DUTY / 2, _STEP_DUTY).round(4)
        ]
    return (*parts, *whole)


def values(abilities: Abilities, knob: Knob, step: float) -> list[float]:
    """Return the accepted values of a setting, in ascending order.

    Args:
        abilities: what can be changed.
        knob: ``"clock"``, ``"memory_clock"`` or ``"limit"``.
        step: step between two values, if every value is accepted.

    Raises:
        ValueError: if the setting has no range.
    """
    found = abilities.ranges.get(knob)
    if found is None:
        raise ValueError(
            f"the plant can change {knob}, but does not state its range; add it to ranges, got "
            f"{sorted(abilities.ranges)}"
        )
    if found.steps:
        return [float(one) for one in found.steps]
    count = int((found.highest - found.lowest) / step + 1e-9)
    return [found.highest - step * left for left in range(count, -1, -1)]

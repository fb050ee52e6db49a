"""What a controller sees and answers, and what it controls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from energy_callbacks.inference.records import Configuration, Tenant
from energy_callbacks.powercap.settings import Knob, KnobRange

Tenants = tuple[Tenant, ...]
# What a controller may change. A partition is the tenants and their shares.
Need = Literal["partition", "batch", "clock", "memory_clock", "limit", "duty", "budget"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """Everything that a controller sets.

    Attributes:
        configuration: tenants, clocks and power limit.
        duty: share of time in which tenants may work, in (0, 1].
        budget_w: largest mean power of a window, W: the plant lets the tenants pause for the rest
            of a window that would have more; ``None`` for no limit.
    """

    configuration: Configuration
    duty: float = 1.0
    budget_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a GPU did in a window of time. ``None`` is an unknown value.

    Attributes:
        start_s: start on the clock of the plant, s.
        end_s: end, s.
        point: what was set.
        is_steady: whether the point was set, and all tenants worked, during the whole window.
        power_mean_w: mean power, W.
        power_max_w: largest reading of the sensor, W.
        throughput_per_s: samples per second of all tenants.
        tenant_throughputs_per_s: samples per second of each tenant.
        latency_p95_ms: 95 % quantile of the time of a batch, ms.
        sm_mhz_measured: mean clock of the multiprocessors, MHz.
        temperature_c: temperature of the GPU, degrees Celsius.
        refused: tenants that were asked for and cannot be loaded, while those of ``point`` go on.
        sm_util_pct: time in which a kernel ran, percent.
        mem_util_pct: time in which memory was read or written, percent.
        paused: part of the window in which all tenants paused because of the budget.
    """

    start_s: float
    end_s: float
    point: OperatingPoint
    is_steady: bool
    power_mean_w: float
    power_max_w: float
    throughput_per_s: float
    tenant_throughputs_per_s: tuple[float, ...] = ()
    latency_p95_ms: float | None = None
    sm_mhz_measured: float | None = None
    temperature_c: float | None = None
    refused: Tenants | None = None
    sm_util_pct: float | None = None
    mem_util_pct: float | None = None
    paused: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What can be changed on a GPU.

    Attributes:
        can: what can be changed.
        ranges: accepted values of the settings among it, by knob.
    """

    can: frozenset[Need]
    ranges: Mapping[Knob, KnobRange] = field(default_factory=dict)


class Controller(Protocol):
    """Chooses an operating point from window to window.

    Attributes:
        name: its name, as for ``--algorithm``.
        needs: what it changes.
        degraded: how it works without the needs that ``start`` has not found; empty if it has
            found all.
    """

    name: str
    needs: frozenset[Need]
    degraded: str

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """Return the first operating point.

        Args:
            cap_w: largest mean power of a window, W.
            abilities: what can be changed.

        Raises:
            ValueError: if the controller cannot work with these abilities or this cap.
        """
        ...

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """Return the operating point for another cap, W."""
        ...

    def step(self, window: Window) -> OperatingPoint:
        """Return the operating point after a window; it may be the present one."""
        ...


class Plant(Protocol):
    """A GPU that works at an operating point: a real one with its tenants, or a simulated one."""

    @property
    def abilities(self) -> Abilities:
        """What can be changed on it."""
        ...

    def apply(self, point: OperatingPoint) -> None:
        """Change what differs from the present operating point.

        Raises:
            ValueError: if the point is not possible on this plant.
            PowerCapError: if a setting cannot be changed.
        """
        ...

    def window(self, duration_s: float) -> Window:
        """Let time pass, and return what the GPU did."""
        ...

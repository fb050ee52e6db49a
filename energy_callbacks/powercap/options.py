"""The arguments of ``PowerLimitOptimizer``, checked at construction."""

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from energy_callbacks.powercap.actuators.choose import NAMES
from energy_callbacks.powercap.search.schedule import CapSchedule

if TYPE_CHECKING:
    from energy_callbacks.powercap.actuators.protocol import Actuator

OptimizerKnob = Literal["limit", "clock", "duty"]
_OBJECTIVES: Final = ("max_slowdown", "objective", "eta", "cap_w", "schedule")
_MAX_SLOWDOWN: Final = 0.05  # if no objective is given


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerOptions:
    """The arguments of ``PowerLimitOptimizer``, which documents them.

    Raises:
        ValueError: for an invalid value, or if more than one objective is given.
        TypeError: if an argument has the wrong type.
    """

    max_slowdown: float | None = None
    objective: Literal["min_energy"] | None = None
    eta: float | None = None
    cap_w: float | None = None
    schedule: str | Path | None = None
    knob: OptimizerKnob = "limit"
    allow_changes: bool = False
    window_steps: int = 20
    window_s: float | None = None
    actuator: "str | Actuator | None" = None

    def __post_init__(self) -> None:
        given = [name for name in _OBJECTIVES if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(
                f"PowerLimitOptimizer has one objective, got {' and '.join(given)}; pass one"
            )
        if not given:
            object.__setattr__(self, "max_slowdown", _MAX_SLOWDOWN)
        self._check_objective()
        self._check_knob()
        if not isinstance(self.allow_changes, bool):
            raise TypeError(f"allow_changes must be True or False, got {self.allow_changes!r}")
        if isinstance(self.actuator, str) and self.actuator not in NAMES:
            raise ValueError(f"actuator must be one of {', '.join(NAMES)}, got {self.actuator!r}")
        _check_number("window_steps", self.window_steps, 1.0, math.inf)
        _check_number("window_s", self.window_s, 0.0, math.inf)
        if self.schedule is not None:
            CapSchedule.read(Path(self.schedule))

    def _check_objective(self) -> None:
        if self.objective not in (None, "min_energy"):
            raise ValueError(
                f"objective must be 'min_energy', got {self.objective!r}; the other objectives are "
                "max_slowdown=, eta=, cap_w= and schedule="
            )
        _check_number("max_slowdown", self.max_slowdown, 0.0, 10.0)
        _check_number("eta", self.eta, 0.0, 1.0)
        _check_number("cap_w", self.cap_w, 0.0, math.inf)
        if self.cap_w == 0.0:
            raise ValueError("cap_w must be positive, got 0")

    def _check_knob(self) -> None:
        if self.knob not in get_args(OptimizerKnob):
            known = ", ".join(map(repr, get_args(OptimizerKnob)))
            raise ValueError(f"knob must be one of {known}, got {self.knob!r}")
        if self.knob == "duty" and self.cap_w is None and self.schedule is None:
            raise ValueError(
                "knob='duty' lowers the mean power and needs cap_w= or schedule=: a GPU that waits "
                "between steps uses more energy for each step, not less"
            )

    def __str__(self) -> str:
        """Return the arguments that are not defaults, for example ``max_slowdown=0.05``."""
        values = ((one.name, getattr(self, one.name), one.default) for one in fields(self))
        changed = {name: value for name, value, default in values if value != default}
        if self.actuator is not None and not isinstance(self.actuator, str):
            changed["actuator"] = self.actuator.name
        return ", ".join(f"{name}={value!r}" for name, value in changed.items())


def _check_number(name: str, value: float | None, low: float, high: float) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}; leave it out for the default")
    if not low <= value <= high or math.isinf(value):
        limits = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise ValueError(f"{name} must be {limits}, got {value!r}")

"""Records of a search for a power limit in a report, and the table of its windows."""

from dataclasses import dataclass
from typing import Final

from energy_callbacks.core import formatting

HEAD: Final = ("setting", "time of a step", "J/step", "power", "")
"""Heads of the columns of ``rows``; the last column marks the settings found and chosen."""
_NAMES: Final = {"limit": "power limit", "clock": "locked clock", "duty": "duty cycle"}
_UNITS: Final = {"limit": "W", "clock": "MHz", "duty": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerChange:
    """A change of the setting of all GPUs of a run.

    Attributes:
        t_s: time of the change, in seconds since the run began.
        knob: ``limit`` (W), ``clock`` (MHz) or ``duty`` (share of the time at work).
        value: the new setting; ``None`` if clocks are no longer locked.
        why: ``search`` for a window of the search, ``chosen`` for the best setting, or
            ``restored``.
    """

    t_s: float
    knob: str
    value: float | None
    why: str

    @property
    def label(self) -> str:
        """The setting with its unit, such as ``300 W``."""
        if self.value is None:
            return "not locked"
        return with_unit(self.knob, self.value)


def with_unit(knob: str, value: float) -> str:
    """Return a setting with the unit of its knob.

    >>> with_unit("limit", 300.0), with_unit("duty", 0.5)
    ('300 W', '0.5')
    """
    return f"{value:g} {_UNITS.get(knob, '')}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerPoint:
    """Time and energy of a step at one setting, estimated from all windows.

    Attributes:
        value: the setting, in the unit of its knob.
        step_s: time of a step, s.
        step_j: energy of a step on all GPUs, J.
    """

    value: float
    step_s: Estimate
    step_j: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitSearch:
    """The result of a search for the best power limit or clock.

    Attributes:
        knob: ``limit`` (W), ``clock`` (MHz) or ``duty`` (share of the time at work).
        objective: the arguments of ``PowerLimitOptimizer``.
        found: setting before the search.
        chosen: the best setting.
        windows: number of windows of the search.
        slowdown: how much longer a step takes at ``chosen`` than at ``found``, as a fraction.
        saving: how much less energy a step takes at ``chosen``, as a fraction.
        is_measured: whether ``slowdown`` and ``saving`` compare windows at both settings; if not,
            they are estimated from all windows.
        saved_j: energy that the steps at ``chosen`` have saved so far, J.
        steps: number of these steps.
        curve: time and energy over settings, in ascending order.
        measured: means of the windows at each setting, in ascending order.
    """

    knob: str
    objective: str
    found: float
    chosen: float
    windows: int
    slowdown: Estimate
    saving: Estimate
    is_measured: bool
    saved_j: Estimate
    steps: int
    curve: tuple[PowerPoint, ...]
    measured: tuple[PowerPoint, ...]

    @property
    def name(self) -> str:
        """Name of the knob, such as ``power limit``."""
        return _NAMES.get(self.knob, self.knob)

    @property
    def unit(self) -> str:
        """Unit of the settings; empty for a share."""
        return _UNITS.get(self.knob, "")

    @property
    def sentences(self) -> tuple[str, ...]:
        """The chosen setting, what it saves, and the energy that was saved so far."""
        found, chosen = with_unit(self.knob, self.found), with_unit(self.knob, self.chosen)
        if self.chosen == self.found:
            stays = (
                f"The {self.name} stays at {found}: no other setting meets the objective better "
                f"({self.objective}; {self.windows} windows)."
            )
            return (stays,)
        how = "measured" if self.is_measured else "estimated"
        effect = (
            f"A {self.name} of {chosen} instead of {found} saves {_percent(self.saving)} of the "
            f"energy of the GPUs in each step, and a step takes {_percent(self.slowdown)} longer "
            f"({how}; {self.objective}; {self.windows} windows)."
        )
        if not self.steps:
            return (effect,)
        saved = formatting.energy(self.saved_j.value)
        low, high = formatting.energy(self.saved_j.low), formatting.energy(self.saved_j.high)
        steps = f"{self.steps} steps at this setting have saved {saved} ({low} to {high})."
        return (effect, steps)


def _percent(estimate: Estimate) -> str:
    low, high = 100.0 * estimate.low, 100.0 * estimate.high
    return f"{100.0 * estimate.value:.1f} % ({low:.1f} to {high:.1f} %)"


def rows(search: PowerLimitSearch) -> list[tuple[str, ...]]:
    """Return the rows of a table with the columns ``HEAD``, lowest setting first."""
    return [_row(search, point) for point in search.measured]


def _row(search: PowerLimitSearch, point: PowerPoint) -> tuple[str, ...]:
    marks = [("found", search.found), ("chosen", search.chosen)]
    return (
        with_unit(search.knob, point.value),
        f"{_with_error(point.step_s)} s",
        _with_error(point.step_j),
        formatting.power(point.step_j.value / point.step_s.value),
        ", ".join(mark for mark, value in marks if value == point.value),
    )


def _with_error(estimate: Estimate) -> str:
    return " ± ".join(formatting.with_error(estimate.value, estimate.high - estimate.value))

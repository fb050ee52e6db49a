"""The result of a search: the chosen setting, what it saves, and the curves."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimated quantity.

    Attributes:
        value: the estimate.
        low: lower end of the 95 % interval.
        high: upper end of the 95 % interval.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Estimated time and energy of a step at one setting.

    Attributes:
        value: the setting, in the unit of its knob.
        step_s: duration of a step, s.
        step_j: energy of a step, J.
    """

    value: float
    step_s: Estimate
    step_j: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a setting changes, relative to the setting that was found.

    Attributes:
        slowdown: relative increase of the duration of a step; 0.05 for 5 %.
        saving: relative decrease of the energy of a step; 0.1 for 10 %.
    """

    slowdown: Estimate
    saving: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a search.

    Attributes:
        found: the setting that was found before the search.
        chosen: the best setting.
        windows: number of windows.
        effect: what ``chosen`` changes, estimated from all windows.
        predicted: what ``chosen`` changes, estimated without the windows at or next to it; ``None``
            if no window was measured there, so that ``effect`` is not verified.
        curve: time and energy over all settings, in ascending order of the setting.
    """

    found: float
    chosen: float
    windows: int
    effect: Effect
    predicted: Effect | None
    curve: Sequence[CurvePoint]

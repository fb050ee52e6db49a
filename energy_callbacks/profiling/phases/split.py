"""Computes the power of each phase from readings that are slower than the phases.

A reading is a mixture of the phases that the sensor has seen lately, and each reading is another
mixture. With one power per phase and one delay and response of the sensor, least squares over
thousands of readings yields the powers and their errors:

    reading_k = sum over phases of power_p x exposure_p(t_k - lag, response) + noise

Energies are these powers times the time of each phase. Nothing is scaled afterwards; the sum over
the phases is compared with the measured energy. If readings cannot distinguish phases, as in steps
of a small whole number of sensor periods, intervals are wide and the split is refused.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.errors import PhaseSplit, with_errors
from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import (
    LAGS_S,
    RESPONSES_S,
    Readings,
    cut,
    fit_at,
    fits,
    piece_counts,
)
from energy_callbacks.sensing.estimation.series import Array

_SHORTEST_S: Final = 10.0
_FEWEST_STEPS: Final = 20
# A split with a half-width above this share of a phase's energy does not show where energy goes.
_WIDEST: Final = 0.30
# Small phases need less precision: each is judged as if it had at least this share of the step.
_SMALL: Final = 0.15
# Readings synchronous with the steps fall at a few places of the step. Places are separate if more
# than this share of a step lies between them.
_HOLE: Final = 0.05
_SENSOR_UNKNOWNS: Final = 2
# If one power per phase needs a sensor that differs this much from the known one (squared distance,
# in standard deviations), then power changes inside phases.
_IMPLAUSIBLE: Final = 9.0
# A reading with a larger share outside all phases, as in a validation, is left out.
_OUTSIDE: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why there is no split.

    Attributes:
        why: the obstacle.
        help: what would remove it.
        phase: number of the phase with too wide an interval; ``None`` for another reason.
    """

    why: str
    help: str
    phase: int | None = None


def split(
    spans: Spans, readings: Readings, names: tuple[str, ...], steps: int
) -> PhaseSplit | Refusal:
    """Split the readings over the phases.

    Args:
        spans: of the phases; each phase has some time.
        readings: of the device that executed them.
        names: of the phases.
        steps: number of optimizer steps in the spans.
    """
    if steps < _FEWEST_STEPS:
        return Refusal(
            why=f"{steps} steps are too few", help=f"follow at least {_FEWEST_STEPS} steps"
        )
    used = _inside(spans, readings)
    if used is None:
        return Refusal(
            why="the sensor has spoken too seldom while phases were known",
            help=f"follow at least {_SHORTEST_S:.0f} s of training",
        )
    places = _places(spans, used.t_s)
    if places is not None and places < spans.count + _SENSOR_UNKNOWNS:
        return Refusal(
            why=f"readings fall at {places} places of the step, and {spans.count} phases and "
            "the sensor's delay and response are to be known",
            help="steps of varied length or of another batch size would help",
        )
    return _checked(spans, names, _split(spans, used, steps))


def _split(spans: Spans, readings: Readings, steps: int) -> PhaseSplit:
    best, *others = fits(spans, readings)
    counts = piece_counts(spans, readings, steps) if best.distance > _IMPLAUSIBLE else ()
    if max(counts, default=1) > 1:
        pieces, phase_of = cut(spans, counts)
        fit = fit_at(pieces, readings, readings.lag_s or 0.0, readings.response_s or 0.0)
        return with_errors(pieces, phase_of, readings, fit, is_sensor_fitted=False)
    found = with_errors(spans, np.arange(spans.count), readings, best, is_sensor_fitted=True)
    # Another lag and response that explain as much may be the true ones: errors include them.
    differences_w = [np.abs(fit.power_w - found.power_w) for fit in others]
    return replace(found, error_w=np.maximum.reduce([found.error_w, *differences_w]))


def _inside(spans: Spans, readings: Readings) -> Readings | None:
    """Return the readings that depend on spans only, for any lag; ``None`` if they are too few."""
    reach_s = float(LAGS_S[-1]) + 5.0 * float(RESPONSES_S[-1])
    window_s = np.zeros_like(readings.t_s) if readings.window_s is None else readings.window_s
    start_s, end_s = readings.t_s - window_s - reach_s, readings.t_s - float(LAGS_S[0])
    known_s = spans.known_s(start_s, end_s)
    keep = (start_s >= spans.edges_s[0]) & (end_s <= spans.edges_s[-1])
    keep &= known_s > (1.0 - _OUTSIDE) * (end_s - start_s)
    t_s = readings.t_s[keep]
    if len(t_s) < 10 * (spans.count + 2) or t_s[-1] - t_s[0] < _SHORTEST_S:
        return None
    return replace(
        readings,
        t_s=t_s,
        power_w=readings.power_w[keep],
        window_s=None if readings.window_s is None else window_s[keep],
    )


def _checked(spans: Spans, names: tuple[str, ...], found: PhaseSplit) -> PhaseSplit | Refusal:
    """Return the split, or a refusal if an interval is too wide."""
    times_s = spans.times_s()
    energy_j, error_j = found.power_w * times_s, found.error_w * times_s
    floor_j = _SMALL * found.mean_w * times_s.sum()
    relative = error_j / np.maximum(energy_j, floor_j)
    worst = int(relative.argmax())
    if relative[worst] <= _WIDEST:
        return found
    return Refusal(
        why=f"{names[worst]} would be known to {100.0 * relative[worst]:.0f} % only",
        help="more steps, longer phases or steps of varied length would help",
        phase=worst,
    )


def _places(spans: Spans, t_s: Array) -> int | None:
    """Return the number of places of a step where readings fall; ``None`` if spread all over it."""
    begins = (spans.labels == spans.labels[0]) & (np.roll(spans.labels, 1) != spans.labels[0])
    starts_s = spans.edges_s[:-1][begins]
    if len(starts_s) < 2:
        return None
    step_s = float(np.median(np.diff(starts_s)))
    at = t_s - starts_s[np.maximum(np.searchsorted(starts_s, t_s, "right") - 1, 0)]
    at = np.sort(at % step_s)
    gaps_s = np.diff(np.append(at, at[0] + step_s))
    return int((gaps_s > _HOLE * step_s).sum()) or None

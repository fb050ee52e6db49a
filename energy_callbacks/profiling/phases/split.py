"""Computes the power of each phase from readings of a sensor that is slower than the phases.

Each reading is a different mixture of the powers of the phases just before it. If each phase has a
constant power, and the sensor has a constant lag and response, a least-squares fit to thousands of
readings gives the powers and their errors:

    reading_k = sum over phases of power_p x exposure_p(t_k - lag, response) + noise

The energy of a phase is its power times its time. Nothing is scaled afterwards, so the sum over the
phases can be compared with the measured energy. If the readings cannot distinguish the phases, the
95 % intervals of the powers are wide, and the split is refused. This happens, for example, if the
duration of a step is a small whole number of periods of the sensor.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases import fit as sensor_fit
from energy_callbacks.profiling.phases.departures import Model
from energy_callbacks.profiling.phases.errors import PhaseSplit, with_errors
from energy_callbacks.profiling.phases.exposure import Numbers, Spans
from energy_callbacks.sensing.estimation.series import Array

# A split needs readings over at least this time, and at least this number of steps.
_SHORTEST_S: Final = 10.0
_FEWEST_STEPS: Final = 20
# A split is refused if the half-width of the interval of a phase's energy exceeds this share of the
# energy.
_WIDEST: Final = 0.30
# Small phases need less precision: a phase with less than this share of the step's energy is
# checked as if it had this share.
_SMALL: Final = 0.15
# If readings are synchronous with the steps, they fall at a few positions in the step. Two
# positions are separate if the distance between them is more than this share of a step.
_HOLE: Final = 0.05
# Number of unknown properties of the sensor: lag and response.
_SENSOR_UNKNOWNS: Final = 2
# A split is refused if the phases explain the readings no better than this, see ``_support``.
# Phases with shuffled names reach 15 in the largest of 100 trials; phases of a step, hundreds.
_LEAST_SUPPORT: Final = 50.0
# A reading is left out if this share, or more, of the time on which it depends is outside all
# phases, for example in a validation. It does not show a phase whose share is smaller.
_OUTSIDE: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why there is no split.

    Attributes:
        why: the problem.
        help: what may solve the problem.
        phase: number of the phase whose interval is too wide; ``None`` for other problems.
    """

    why: str
    help: str
    phase: int | None = None


def split(
    spans: Spans,
    readings: sensor_fit.Readings,
    names: tuple[str, ...],
    steps: int,
    group_of: Numbers | None = None,
) -> PhaseSplit | Refusal:
    """Return the power of each phase, or the reason why the readings do not allow a split.

    Args:
        spans: spans of the phases; the time of each phase must be positive.
        readings: readings of the device that executed the phases.
        names: names of the phases of the result.
        steps: number of optimizer steps in the spans.
        group_of: index into ``names`` for each phase of ``spans``. Phases of the same group have
            powers of their own in the fit, and only their sum is judged and returned. ``None`` if
            each phase is a group.
    """
    groups = np.arange(spans.count) if group_of is None else group_of
    if steps < _FEWEST_STEPS:
        return Refusal(
            why=f"{steps} steps are too few", help=f"train for at least {_FEWEST_STEPS} steps"
        )
    used = _inside(spans, readings)
    if used is None:
        return Refusal(
            why="too few readings of the sensor came while phases were known",
            help=f"train for at least {_SHORTEST_S:.0f} s",
        )
    longest_s = float(sensor_fit.RESPONSES_S[-1])
    shares = spans.exposures(used.t_s, longest_s, used.window_s).max(axis=0)
    if shares.min() < _OUTSIDE:
        return Refusal(
            why=f"no reading of the sensor shows {names[groups[shares.argmin()]]}",
            help="train for longer, so that readings cover each phase several times",
        )
    places = _places(spans, used.t_s)
    if places is not None and places < spans.count + _SENSOR_UNKNOWNS:
        return Refusal(
            why=f"readings fall on only {places} positions within the step, too few to find the "
            f"powers of {spans.count} phases and the sensor's delay and response",
            help="steps of varied length or of another batch size would help",
        )
    found = _split(spans, used, groups)
    if isinstance(found, Refusal):
        return found
    return _checked(np.bincount(groups, spans.times_s()).astype(float), names, found)


def _split(spans: Spans, readings: sensor_fit.Readings, group_of: Numbers) -> PhaseSplit | Refusal:
    found = sensor_fit.fits(spans, readings)
    if _support(spans, readings, found[0]) < _LEAST_SUPPORT:
        return Refusal(
            why="the readings do not change with the phases",
            help="check that phases are marked when they begin, and that no other program "
            "uses the device",
        )
    start, lag_s, response_s = found[0], readings.lag_s, readings.response_s
    if lag_s is not None and response_s is not None:
        start = sensor_fit.fit_at(spans, readings, lag_s, response_s)
    exact = Model(spans, readings, group_of, departs=False)
    departing = Model(spans, readings, group_of, departs=True).solutions(start)
    solutions = [solution for fit in found for solution in exact.solutions(fit)]
    return with_errors(readings, solutions, departing)


def _support(spans: Spans, readings: sensor_fit.Readings, fit: sensor_fit.Fit) -> float:
    """Return twice the logarithm of the likelihood ratio between the phases and a single one.

    Readings of the same span are not independent, so at most one of each span is counted.
    """
    count = len(readings.t_s)
    rest = (fit.cost - fit.distance) / count
    return (math.log(max(float(readings.power_w.var()), 1e-12)) - rest) * min(
        count, len(spans.labels)
    )


def _inside(spans: Spans, readings: sensor_fit.Readings) -> sensor_fit.Readings | None:
    """Return the readings that depend only on power inside phases, not on power outside of them.

    A reading depends on the power during a certain time, whose start and end follow from the lag
    and the response of the sensor. The fit has not determined lag and response yet, so this
    function uses the longest time that results from the lags and responses to try.

    Returns ``None`` if there are too few of these readings, or if they cover less than 10 s.
    """
    reach_s = float(sensor_fit.LAGS_S[-1]) + 5.0 * float(sensor_fit.RESPONSES_S[-1])
    window_s = np.zeros_like(readings.t_s) if readings.window_s is None else readings.window_s
    start_s, end_s = readings.t_s - window_s - reach_s, readings.t_s - float(sensor_fit.LAGS_S[0])
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


def _checked(times_s: Array, names: tuple[str, ...], found: PhaseSplit) -> PhaseSplit | Refusal:
    """Return the split, or a refusal if an interval is too wide."""
    energy_j, error_j = found.power_w * times_s, found.error_w * times_s
    floor_j = _SMALL * found.mean_w * times_s.sum()
    relative = error_j / np.maximum(energy_j, floor_j)
    worst = int(relative.argmax())
    if relative[worst] <= _WIDEST:
        return found
    return Refusal(
        why=f"the energy of {names[worst]} has an error of {100.0 * relative[worst]:.0f} %",
        help="more steps, longer phases or steps of varied length would help",
        phase=worst,
    )


def _places(spans: Spans, t_s: Array) -> int | None:
    """Return the number of separate positions in a step at which readings occur.

    Returns ``None`` if the readings are spread over the whole step, or if there are fewer than two
    steps.
    """
    begins = (spans.labels == spans.labels[0]) & (np.roll(spans.labels, 1) != spans.labels[0])
    starts_s = spans.edges_s[:-1][begins]
    if len(starts_s) < 2:
        return None
    step_s = float(np.median(np.diff(starts_s)))
    at = t_s - starts_s[np.maximum(np.searchsorted(starts_s, t_s, "right") - 1, 0)]
    at = np.sort(at % step_s)
    gaps_s = np.diff(np.append(at, at[0] + step_s))
    return int((gaps_s > _HOLE * step_s).sum()) or None

"""Power of each phase from readings slower than the phases: least squares over many steps.

A reading is a mixture of the phases that the sensor has seen lately, and each reading is another
mixture. With one power for each phase, one delay and one response of the sensor for all, thousands
of readings say what the powers are, and how well they say it:

    reading_k = sum over phases of power_p x exposure_p(t_k - lag, response) + noise

Energies follow from the powers by the time that each phase took. Nothing is scaled afterwards: the
sum over the phases is compared with what was measured. If readings cannot distinguish phases, as
with steps of a small whole number of sensor periods, intervals are wide, and the split is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from energy_callbacks.core.stats import t_quantile
from energy_callbacks.profiling.phases.errors import variances
from energy_callbacks.profiling.phases.exposure import Numbers, Spans
from energy_callbacks.profiling.phases.fit import (
    LAGS_S,
    RESPONSES_S,
    SURE_S,
    Fit,
    Readings,
    beforehand,
    fit_at,
    fits,
    jacobian_of,
    normalised,
)
from energy_callbacks.profiling.phases.pieces import counts_of, cut
from energy_callbacks.sensing.estimation.series import Array

_SHORTEST_S: Final = 10.0
_FEWEST_STEPS: Final = 20
# A half-width wider than this share of a phase's energy does not show where energy goes. What
# is small may be known less well: it is judged as if it were this share of the step.
_WIDEST: Final = 0.30
_SMALL: Final = 0.15
_CONFIDENCE: Final = 0.975
# Readings see a step at single places where they keep its time: with more than this share of a step
# between them.
_HOLE: Final = 0.05
_SENSOR_UNKNOWNS: Final = 2
# If one power for each phase asks for a sensor so unlike the known one (squared distance, in
# standard deviations), it is the phases that are not like that.
_STRANGE: Final = 9.0
# A reading of which more was outside all phases, as in a validation, is left out.
_OUTSIDE: Final = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSplit:
    """Power of each phase.

    Attributes:
        power_w: (count,).
        error_w: half-widths of their 95 % intervals, (count,).
        lag_s: delay of the sensor, fitted.
        response_s: time constant of the sensor, fitted.
        pieces: into how many each phase was cut, because its power changes inside.
        mean_w: of the readings that were used.
        fitted_mean_w: of what the split says of them.
    """

    power_w: Array
    error_w: Array
    lag_s: float
    response_s: float
    pieces: tuple[int, ...]
    mean_w: float
    fitted_mean_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why there is no split.

    Attributes:
        why: what stands in the way.
        help: what would remove it.
        phase: number of the one that is known too badly; ``None`` if it is not that.
    """

    why: str
    help: str
    phase: int | None = None


def split(
    spans: Spans, readings: Readings, names: tuple[str, ...], steps: int
) -> PhaseSplit | Refusal:
    """Split the readings over the phases.

    Args:
        spans: of the phases; all of them have some time.
        readings: of the device that worked on them.
        names: of the phases.
        steps: how many optimizer steps the spans hold.
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
    best, *others = fits(spans, used)
    counts = counts_of(spans, used, steps) if best.strangeness > _STRANGE else ()
    if max(counts, default=1) > 1:
        fine, of = cut(spans, counts)
        fit = fit_at(fine, used, used.lag_s or 0.0, used.response_s or 0.0)
        found = _with_errors(fine, of, used, fit, is_sensor_fitted=False)
    else:
        found = _widened(_with_errors(spans, np.arange(spans.count), used, best), others)
    return _judged(spans, names, found) or found


def _inside(spans: Spans, readings: Readings) -> Readings | None:
    """Readings whose every possible past lies inside the spans; ``None`` for too few."""
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
        window_s=None if readings.window_s is None else readings.window_s[keep],
    )


def _with_errors(
    pieces: Spans, of: Numbers, readings: Readings, fit: Fit, *, is_sensor_fitted: bool = True
) -> PhaseSplit:
    """Powers of phases from those of their pieces, with errors by lag and response included."""
    jacobian, rest_w = jacobian_of(pieces, readings, fit)
    noise_w2 = float(rest_w @ rest_w) / len(rest_w)
    shares = _shares(pieces, of)
    if is_sensor_fitted:
        known, _ = beforehand(jacobian.shape[1], readings, fit, noise_w2)
        weights = shares @ _weights(np.concatenate([jacobian, known]), pieces.count)
        of_readings, of_known = weights[:, : len(rest_w)], weights[:, len(rest_w) :]
        by_sensor = noise_w2 * (of_known**2).sum(axis=1)
    else:
        of_readings = shares @ _weights(jacobian[:, : pieces.count], pieces.count)
        by_sensor = ((of_readings @ jacobian[:, pieces.count :] * SURE_S) ** 2).sum(axis=1)
    seen_s, memory_s = readings.t_s - fit.lag_s, fit.response_s
    if readings.window_s is not None:
        memory_s = max(memory_s, float(np.median(readings.window_s)) / 2.0)
    spread = variances(
        pieces, of, seen_s, memory_s, power_w=fit.power_w, weights=of_readings, rest_w=rest_w
    )
    spread += by_sensor
    freedom = max(len(rest_w) - jacobian.shape[1], 1)
    widths = np.sqrt(spread * len(rest_w) / freedom)
    fitted_w = readings.power_w - rest_w
    return PhaseSplit(
        power_w=shares @ fit.power_w,
        error_w=t_quantile(_CONFIDENCE, freedom) * widths,
        lag_s=fit.lag_s,
        response_s=fit.response_s,
        pieces=tuple(np.bincount(of).tolist()),
        mean_w=float(readings.power_w.mean()),
        fitted_mean_w=float(fitted_w.mean()),
    )


def _weights(columns: Array, count: int) -> Array:
    """With which each row enters the first ``count`` unknowns."""
    unit, scale = normalised(columns)
    weights: Array = (np.linalg.pinv(unit, rcond=1e-10) / scale[:, None])[:count]
    return weights


def _shares(pieces: Spans, of: Numbers) -> Array:
    """Which part of a phase's time each piece has, (phases, pieces)."""
    times_s = pieces.times_s()
    shares = np.zeros((int(of.max()) + 1, pieces.count))
    shares[of, np.arange(pieces.count)] = times_s
    whole: Array = shares / shares.sum(axis=1, keepdims=True)
    return whole


def _widened(found: PhaseSplit, others: Sequence[Fit]) -> PhaseSplit:
    """Another lag and response that explain as much may be the right ones: errors reach to them."""
    apart = [np.abs(fit.power_w - found.power_w) for fit in others]
    return replace(found, error_w=np.maximum.reduce([found.error_w, *apart]))


def _judged(spans: Spans, names: tuple[str, ...], found: PhaseSplit) -> Refusal | None:
    times_s = spans.times_s()
    energy_j, error_j = found.power_w * times_s, found.error_w * times_s
    floor_j = _SMALL * found.mean_w * times_s.sum()
    relative = error_j / np.maximum(energy_j, floor_j)
    worst = int(relative.argmax())
    if relative[worst] <= _WIDEST:
        return None
    return Refusal(
        why=f"{names[worst]} would be known to {100.0 * relative[worst]:.0f} % only",
        help="more steps, longer phases or steps of varied length would help",
        phase=worst,
    )


def _places(spans: Spans, t_s: Array) -> int | None:
    """At how many places of a step readings fall; ``None`` if they fall all over it."""
    begins = (spans.labels == spans.labels[0]) & (np.roll(spans.labels, 1) != spans.labels[0])
    starts_s = spans.edges_s[:-1][begins]
    if len(starts_s) < 2:
        return None
    step_s = float(np.median(np.diff(starts_s)))
    at = t_s - starts_s[np.maximum(np.searchsorted(starts_s, t_s, "right") - 1, 0)]
    at = np.sort(at % step_s)
    gaps_s = np.diff(np.append(at, at[0] + step_s))
    return int((gaps_s > _HOLE * step_s).sum()) or None

"""Computes the powers of phases and their 95 % intervals from a fit.

The residuals of the fit have three causes, which their correlation distinguishes
(``residual_noise``): white noise, noise that lasts, and phases whose power varies from step to
step.

The result is the mean power of each phase in exactly the measured steps: in the true mean, the
weight of an occurrence is its share of the phase's total time. The fitted power of a phase is also
a weighted sum, but of the occurrences of all phases. A variation causes an error only where the two
weights of an occurrence differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.core.stats import t_quantile
from energy_callbacks.profiling.phases.departures import Solution
from energy_callbacks.profiling.phases.exposure import SHORTEST_RESPONSE_S, Numbers, Spans
from energy_callbacks.profiling.phases.fit import Readings
from energy_callbacks.profiling.phases.residual_noise import causes, lag_count
from energy_callbacks.sensing.estimation.series import Array

# Quantile of Student's t distribution for a two-sided 95 % interval.
_CONFIDENCE: Final = 0.975
# Solutions with less than this share of the evidence have no effect on the error.
_UNLIKELY: Final = 1e-3
# Departures are taken as real if they lower the cost by more than this number: "very strong"
# evidence (Kass and Raftery, Bayes Factors, J. Am. Stat. Assoc. 90, 1995). With 25, small offsets
# are missed, and intervals held in 82 % of the answers with wrong edges.
_DEPARTS: Final = 10.0
# Power that is older than this number of time constants is neglected: its weight is at most e^-6,
# which is 0.2 %.
_MEMORY: Final = 6.0
# Maximum number of spans whose contribution to one reading is considered; the newest are used.
_MOST_BACK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSplit:
    """Power of each phase in watts; arrays have one element per phase.

    Attributes:
        power_w: mean power of each phase, (phases,).
        error_w: half-widths of the 95 % intervals of ``power_w``, (phases,).
        lag_s: delay of the sensor in seconds, fitted or known.
        response_s: time constant of the sensor in seconds, fitted or known.
        pieces: number of powers that the fit has given to each phase.
        mean_w: mean of the readings that were fitted.
        fitted_mean_w: mean of the values that the fit predicts for these readings.
    """

    power_w: Array
    error_w: Array
    lag_s: float
    response_s: float
    pieces: tuple[int, ...]
    mean_w: float
    fitted_mean_w: float


def with_errors(
    readings: Readings, exact: Sequence[Solution], departing: Sequence[Solution]
) -> PhaseSplit:
    """Return the powers of phases and their errors.

    The powers are the mean over all solutions, weighted by their evidence (Bayesian model
    averaging). Solutions with departures are used if they are much more plausible than those
    without. The form of the departures is unknown then, and the largest difference between
    solutions is part of the error.

    Args:
        readings: the readings that were fitted.
        exact: solutions with one power per phase.
        departing: solutions with departures from it.
    """
    lowest, lowest_exact = (
        min((solution.cost for solution in group), default=np.inf) for group in (departing, exact)
    )
    departs = lowest_exact - lowest > _DEPARTS
    solutions = [*exact, *departing] if departs else exact
    costs = np.array([solution.cost for solution in solutions])
    chances = np.exp((costs.min() - costs) / 2.0)
    chances /= chances.sum()
    powers_w = np.array([solution.power_w for solution in solutions])
    power_w = chances @ powers_w
    off_w = np.abs(powers_w - power_w)
    variance, lasting, samples = np.zeros(len(power_w)), np.zeros(len(power_w)), 0.0
    for chance, solution, difference_w in zip(chances, solutions, off_w, strict=True):
        if chance > _UNLIKELY:
            white, lasts, count = _variances(readings, solution)
            variance += chance * (white + lasts + difference_w**2)
            lasting += chance * lasts
            samples += chance * count
    misfit_w = off_w.max(axis=0) if departs else np.zeros(len(power_w))
    best = solutions[int(costs.argmin())]
    # Welch-Satterthwaite formula: lasting noise has few independent values.
    most = max(len(readings.t_s) - best.unknowns, 1)
    share = lasting / np.maximum(variance, 1e-300)
    freedom = 1.0 / ((1.0 - share) ** 2 / most + share**2 / max(samples, 1.0))
    return PhaseSplit(
        power_w=np.maximum(power_w, 0.0),
        error_w=np.array([t_quantile(_CONFIDENCE, one) for one in freedom]) * np.sqrt(variance)
        + misfit_w,
        lag_s=best.lag_s,
        response_s=best.response_s,
        pieces=tuple(np.bincount(best.phase_of).tolist()),
        mean_w=float(readings.power_w.mean()),
        fitted_mean_w=float((readings.power_w - best.rest_w).mean()),
    )


def _variances(readings: Readings, solution: Solution) -> tuple[Array, Array, float]:
    """Return the variances of each phase's mean power in W^2, separately for lasting noise.

    Args:
        readings: the readings that were fitted.
        solution: fitted powers.

    Returns:
        The variance due to priors, white noise and varying phases; the variance due to lasting
        noise; and ``Causes.samples`` of the latter.
    """
    spans, phase_of, weights = solution.pieces, solution.phase_of, solution.weights
    memory_s = solution.response_s
    if readings.window_s is not None:
        memory_s = max(memory_s, float(np.median(readings.window_s)) / 2.0)
    shares, at = _occurrences(spans, readings.t_s - solution.lag_s, memory_s)
    is_known = spans.labels >= 0
    drawn_w = np.where(is_known, solution.piece_w[spans.labels], 0.0)
    rows, duration_s = len(readings.t_s), readings.t_s[-1] - readings.t_s[0]
    found = causes(solution.rest_w, _shared(shares * drawn_w[at], at), duration_s / (rows - 1))
    span_phase = np.where(is_known, phase_of[spans.labels], -1)
    inside = slice(at.min(), at.max() + 1)
    variance: Array = found.white_w2 * (weights**2).sum(axis=1)
    for phase in range(len(weights)):
        excess = np.zeros(len(spans.labels))
        np.add.at(excess, at, weights[phase][:, None] * shares)
        widths_s = np.where(span_phase == phase, np.diff(spans.edges_s), 0.0)
        excess -= widths_s / widths_s.sum()
        variance[phase] += found.unevenness * float(((excess * drawn_w)[inside] ** 2).sum())
    fewer = rows / max(rows - solution.unknowns, 1)
    return (
        solution.by_prior + fewer * variance,
        fewer * found.lasting(weights),
        found.samples,
    )


def _occurrences(spans: Spans, seen_s: Array, memory_s: float) -> tuple[Array, Numbers]:
    """Return the shares of the latest spans in each reading, and the indices of these spans.

    Args:
        spans: spans whose labels are pieces of phases.
        seen_s: times of the readings minus the lag, (m,).
        memory_s: time constant of the sensor, or half of its averaging window if that is longer.

    Returns:
        Shares and indices, both (m, back), newest span first.
    """
    edges_s, memory_s = spans.edges_s, max(memory_s, SHORTEST_RESPONSE_S)
    newest = np.clip(np.searchsorted(edges_s, seen_s, "right") - 1, 0, len(spans.labels) - 1)
    oldest = np.searchsorted(edges_s, seen_s - _MEMORY * memory_s, "right") - 1
    back = int(min(np.max(newest - oldest, initial=0) + 1, _MOST_BACK))
    at = newest[:, None] - np.arange(back)
    exists, at = at >= 0, np.maximum(at, 0)
    since_end_s = np.maximum(seen_s[:, None] - edges_s[at + 1], 0.0)
    since_start_s = np.maximum(seen_s[:, None] - edges_s[at], 0.0)
    shares = np.exp(-since_end_s / memory_s) - np.exp(-since_start_s / memory_s)
    return np.where(exists, shares, 0.0), at


def _shared(scaled_w: Array, at: Numbers) -> Array:
    """Return the mean product of what the same spans contribute to two readings, W^2, by their lag.

    Args:
        scaled_w: contribution of the latest spans to each of m readings in watts, (m, back).
        at: indices of these spans, (m, back).

    Returns:
        Sums of products for lags of 0, 1, ... readings, divided by m; up to the longest lag at
        which any two readings depend on the same span.
    """
    rows, back = scaled_w.shape
    found: list[float] = []
    for lag in range(lag_count(rows)):
        # From one reading to a later one, all indices in ``at`` grow by the same number, n. Column
        # j of the later reading is therefore the same span as column j - n of the earlier one.
        columns = np.arange(back) - (at[lag:, :1] - at[: rows - lag, :1])
        is_shared = (columns >= 0) & (columns < back)
        if not is_shared.any():
            break
        before_w = np.take_along_axis(scaled_w[: rows - lag], np.clip(columns, 0, back - 1), axis=1)
        found.append(float((scaled_w[lag:] * np.where(is_shared, before_w, 0.0)).sum()) / rows)
    return np.array(found)

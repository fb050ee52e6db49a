"""Extrapolates the energy or the time of training steps, which may drift, to later steps.

The sample is a few parts of consecutive steps. Eight models are fitted to the values per step of
the parts by generalised least squares. Each model is a drift plus noise:

* The drift approaches a final value exponentially. Its time constant is 0.3, 1 or 3 times the
  length of the sample, or so long that the drift is a straight line.
* The noise of the parts is independent, or its correlation decays exponentially over half the
  length of the sample (an Ornstein-Uhlenbeck process).

A model predicts the mean of the later steps with an interval. No sample shows how long a drift goes
on, so the interval also contains the values for a drift that stops at the end of the sample, and
for a drift that is twice as large. The result is the smallest interval that contains those of all
models with a likelihood of at least a tenth of the best.

In a short or noisy sample, the error of the extrapolated change may be so large that the interval
would be useless. If this error is above 12 % of the mean of the sample and above the change itself,
or above 40 %, the model predicts the mean of the sample, and its interval assumes that the change
is at most 12 %. An interval from such a sample does not contain larger changes.

``tests/benchmarks/forecast.py`` measures how often the interval contains the true value.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Quantile of Student's t for a 95 % interval with seven degrees of freedom: nine parts, and two
# parameters of the drift.
_T95: Final = 2.365
# Time constants of the drift, divided by the length of the sample. With the last one, the drift is
# a straight line: it bends by less than 1 % over ten lengths of the sample.
_TIME_CONSTANTS: Final = (0.3, 1.0, 3.0, 1000.0)
# Time over which correlated noise decays, divided by the length of the sample.
_MEMORY: Final = 0.5
# Models with a likelihood below this share of the best are left out.
_LEAST_LIKELIHOOD: Final = 0.1
# Largest change of the mean that is assumed if noise hides any change, as a share of the mean. It
# is our choice: warm-up, throttling and schedules of GPUs mostly change a step by less.
_HIDDEN_CHANGE: Final = 0.12
# Largest error of a change that is extrapolated, as a share of the mean: of samples whose error is
# larger, a few per cent show a change of several times the mean by chance.
_LARGEST_ERROR: Final = 0.4
# Smallest standard deviation of the noise of a part, as a share of the mean. Without it, samples
# without noise would decide between shapes of a drift by differences that no model explains.
_LEAST_NOISE: Final = 0.001


class _Noise(NamedTuple):
    """Covariances of the noise, divided by the variance of the noise of one part.

    Attributes:
        parts: (n, n) covariances of the parts.
        rest: (n,) covariances of each part and the mean of the rest.
        rest_variance: variance of the mean of the rest.
    """

    parts: Array
    rest: Array
    rest_variance: float


class _Prediction(NamedTuple):
    """Interval of the mean of the rest by one model, and the logarithm of its likelihood."""

    log_likelihood: float
    low: float
    high: float


def extrapolated(
    values: Sequence[float], steps: Sequence[int], steps_left: int
) -> tuple[float, float]:
    """Return the mean per step of the steps that are left, and its error as a share of it (95 %).

    Args:
        values: (n,) energy or duration of each part of the sample, in time order.
        steps: (n,) number of steps of each part.
        steps_left: number of steps after the sample, at least 1.
    """
    count = sum(steps)
    mean = math.fsum(values) / count
    if mean <= 0.0:
        return 0.0, 0.0
    share = np.asarray(steps, dtype=float) / count
    # Times are in units of the length of the sample, values in units of the mean.
    t, rest = np.cumsum(share) - share / 2.0, steps_left / count
    y = np.asarray(values, dtype=float) / np.asarray(steps) / mean
    found = [
        _prediction(y, *_drift(t, rest, time_constant), noise)
        for noise in (_independent(len(t), rest), _correlated(t, rest))
        for time_constant in _TIME_CONSTANTS
    ]
    least = max(one.log_likelihood for one in found) + math.log(_LEAST_LIKELIHOOD)
    likely = [one for one in found if one.log_likelihood >= least]
    low = max(min(one.low for one in likely), 0.0)
    high = max(one.high for one in likely)
    return mean * (low + high) / 2.0, (high - low) / (low + high)


def _independent(parts: int, rest: float) -> _Noise:
    return _Noise(np.eye(parts), np.zeros(parts), 1.0 / (parts * rest))


def _correlated(t: Array, rest: float) -> _Noise:
    """Return the covariances of noise with the correlation exp(-distance / _MEMORY)."""
    a = rest / _MEMORY
    return _Noise(
        np.exp(-np.abs(t[:, None] - t) / _MEMORY),
        np.exp((t - 1.0) / _MEMORY) * -math.expm1(-a) / a,
        2.0 * (a + math.expm1(-a)) / a**2,
    )


def _drift(t: Array, rest: float, time_constant: float) -> tuple[Array, float]:
    """Return the shape of a drift: 0 at the end of the sample, standard deviation 1 in it.

    Returns:
        (n,) the drift at the times ``t``, and its mean over the rest.
    """
    decay = math.exp(-1.0 / time_constant)
    shape = decay - np.exp(-t / time_constant)
    mean = decay * (1.0 + math.expm1(-rest / time_constant) * time_constant / rest)
    return shape / shape.std(), float(mean / shape.std())


def _prediction(y: Array, shape: Array, shape_of_rest: float, noise: _Noise) -> _Prediction:
    """Fit ``level + drift * shape`` to ``y`` by generalised least squares; predict the rest.

    The likelihood is that of residuals (restricted maximum likelihood).
    """
    n = len(y)
    design = np.column_stack([np.ones(n), shape])
    precision = np.linalg.inv(noise.parts)
    normal = design.T @ precision @ design
    level, drift = np.linalg.solve(normal, design.T @ precision @ y)
    residuals = y - level - drift * shape
    variance = max(residuals @ precision @ residuals, n * _LEAST_NOISE**2) / (n - 2)
    known = precision @ noise.rest
    gap = np.array([1.0, shape_of_rest]) - design.T @ known
    spread = noise.rest_variance - noise.rest @ known + gap @ np.linalg.solve(normal, gap)
    error, change = _T95 * math.sqrt(variance * spread), drift * shape_of_rest
    determinants = np.linalg.slogdet(noise.parts)[1] + np.linalg.slogdet(normal)[1]
    middle, half = level + change + known @ residuals, math.hypot(error, change)
    if error > min(max(_HIDDEN_CHANGE, abs(change)), _LARGEST_ERROR):
        middle, half = 1.0, math.hypot(_T95 * y.std(ddof=1) / math.sqrt(n), _HIDDEN_CHANGE)
    log_likelihood = -((n - 2) * math.log(variance) + determinants) / 2.0
    return _Prediction(log_likelihood, middle - half, middle + half)

"""Determines the causes of a fit's residuals from their correlation in time.

There are three causes. White noise is independent in each reading. A phase whose power varies from
step to step affects the readings that depend on the same occurrence of the phase. Noise that lasts,
such as a slow drift of the sensor, affects readings that are further apart. Each cause has its own
autocovariance (the mean product of two residuals, as a function of the time between them)::

    white noise            1 at lag 0, otherwise 0
    varying phases         product of what the same occurrences contribute to both readings
    lasting noise          exp(-lag / time constant) for each of ``_TIMES_S``

The observed autocovariance is fitted by a sum of them with weights that are not negative.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.sensing.estimation.series import Array

# Time constants of lasting noise, s: shorter ones are white noise for a sensor with a reading every
# 20 ms or less often, and longer ones look like constant power in the 60 s that are followed.
_TIMES_S: Final = np.array([0.1, 0.3, 1.0, 3.0, 9.0])
# Time constants and lags are used up to these shares of the duration: there are too few independent
# products to show longer ones.
_LONGEST_TIME: Final = 1.0 / 6.0
_LONGEST_LAG: Final = 0.25
# Autocovariances are averaged over groups of lags: single lags, then this number of groups, whose
# sizes grow with the lag. A few hundred long lags would otherwise count more than the short ones.
_SINGLE: Final = 8
_GROUPS: Final = 28
# Lasting noise counts if its evidence is at least this: the "very strong" evidence of
# ``errors._DEPARTS``. Phases of varying power would otherwise be taken for it in part.
_DECISIVE: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Causes:
    """The causes of n residuals.

    Attributes:
        white_w2: variance of white noise, W^2.
        unevenness: mean of ``(p / m - 1)**2``, where ``p`` is a phase's power in one step and ``m``
            is the phase's mean power.
        lasting_w2: autocovariance of lasting noise for lags of 0 to n - 1 readings, W^2, (n,).
        samples: number of independent values of lasting noise in the time of the readings.
    """

    white_w2: float
    unevenness: float
    lasting_w2: Array
    samples: float

    def lasting(self, weights: Array) -> Array:
        """Return the variance of weighted sums of lasting noise, (m,), for weights (m, n)."""
        products = np.array([_autocovariance(row) for row in weights])
        summed = 2.0 * products @ self.lasting_w2 - products[:, 0] * self.lasting_w2[0]
        variance: Array = np.maximum(summed, 0.0) * weights.shape[1]
        return variance


def lag_count(readings: int) -> int:
    """Return the number of lags, from 0 on, that ``causes`` uses of a number of readings."""
    return int(_LONGEST_LAG * readings)


def causes(rest_w: Array, shared_w2: Array, spacing_s: float) -> Causes:
    """Return the causes of residuals.

    Args:
        rest_w: residuals, (n,).
        shared_w2: autocovariance of varying phases with an unevenness of 1, for lags of 0 to k - 1
            readings, (k,); 0 for longer lags.
        spacing_s: mean time between two readings.
    """
    count, lags = len(rest_w), lag_count(len(rest_w))
    lag_s = spacing_s * np.arange(count)
    longest_s = _LONGEST_TIME * count * spacing_s
    times_s = _TIMES_S[: int(np.searchsorted(_TIMES_S, longest_s, side="right"))]
    lasting = np.exp(-lag_s / times_s[:, None])
    pairs = 1.0 - np.arange(count) / count
    # Residuals have no mean, so their autocovariance is lower than that of the noise by the
    # variance of its mean.
    of_mean = (2.0 * lasting @ pairs - 1.0) / count
    seen = pairs * (lasting - of_mean[:, None])
    columns = np.zeros((2 + len(times_s), lags))
    columns[0, 0] = 1.0
    columns[1, : len(shared_w2)] = shared_w2[:lags]
    columns[2:] = seen[:, :lags]
    observed = _autocovariance(rest_w)[:lags]
    found = _fitted(columns, observed)
    without = np.concatenate([_fitted(columns[:2], observed), np.zeros(len(times_s))])
    brief = np.zeros((2, count))
    brief[:, :lags] = columns[:2]
    model_w2 = found @ np.concatenate([brief, lasting])
    if _evidence(rest_w, model_w2, without[:2] @ brief) < _DECISIVE:
        found = without
    amounts = found[2:]
    memory_s = float(amounts @ times_s) / float(amounts.sum()) if amounts.any() else 0.0
    # The mean of noise with this autocorrelation varies as if there were one value in twice its
    # time constant.
    samples = count * spacing_s / (2.0 * memory_s) if memory_s else float(count)
    return Causes(
        white_w2=float(found[0]),
        unevenness=float(found[1]),
        lasting_w2=amounts @ lasting,
        samples=max(samples, 1.0),
    )


def _fitted(columns: Array, observed: Array) -> Array:
    """Return the weights, not negative, of the autocovariances in ``columns`` that fit best."""
    from scipy.optimize import nnls

    grouped = _grouped(columns)
    scales = np.maximum(np.abs(grouped).max(axis=1), 1e-300)
    weights: Array = nnls((grouped / scales[:, None]).T, _grouped(observed))[0] / scales
    return weights


def _evidence(rest_w: Array, model_w2: Array, other_w2: Array) -> float:
    """Return twice the logarithm of the likelihood ratio of two autocovariances of the residuals.

    It is computed in the frequency domain (Whittle likelihood).

    Args:
        rest_w: residuals, (n,).
        model_w2: the autocovariance that a higher likelihood speaks for, (n,).
        other_w2: the other autocovariance, (n,).
    """
    power = np.abs(np.fft.rfft(rest_w)) ** 2 / len(rest_w)
    least = 1e-3 * max(float(power.mean()), 1e-300)
    costs = []
    for covariance_w2 in (model_w2, other_w2):
        spectrum = 2.0 * np.fft.rfft(covariance_w2).real - covariance_w2[0]
        spectrum = np.maximum(spectrum, least)
        costs.append(float((np.log(spectrum) + power / spectrum)[1:].sum()))
    return 2.0 * (costs[1] - costs[0])


def _autocovariance(values: Array) -> Array:
    """Return the sums of products of n values at lags of 0 to n - 1, divided by n, (n,)."""
    count = len(values)
    spectrum = np.abs(np.fft.rfft(values, 2 * count)) ** 2
    covariance: Array = np.fft.irfft(spectrum, 2 * count)[:count] / count
    return covariance


def _grouped(columns: Array) -> Array:
    """Return the means over groups of lags, (..., groups)."""
    lags = columns.shape[-1]
    ends = np.geomspace(_SINGLE, max(lags, _SINGLE + 1), _GROUPS + 1)[:-1].astype(np.intp)
    starts = np.unique(np.concatenate([np.arange(_SINGLE), ends]))
    starts = starts[starts < lags]
    means: Array = np.add.reduceat(columns, starts, axis=-1) / np.diff(starts, append=lags)
    return means

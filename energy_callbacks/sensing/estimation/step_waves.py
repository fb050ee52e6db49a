"""Corrects the energies of power intervals for the wave that short training steps cause in power.

Between two readings, ``PowerIntervals`` assumes that power changes along a straight line. Steps
shorter than two intervals between readings are a wave that such lines cannot follow. The times of
readings vary, so each interval has another error, and the errors add up until the next reading of
the counter. However, the period of the steps is known, so the wave can be fitted to the readings::

    reading(t) = constant + sum over k of  a_k cos(k w t) + b_k sin(k w t),   w = 2 pi / period

There is a fit for every ``_READINGS`` consecutive readings, because steps are not exactly periodic.
The energy of an interval is corrected by the integral of the wave minus that of the straight line.
"""

from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.series import Array

# Steps of at least this many intervals between readings are not fitted. On three H100s, whose
# readings are 20 ms apart, the fit reduces the error of the energy of 1 s by 7 to 30 % for steps of
# 24 to 37 ms, but hardly for steps of 45 ms, and increases it by 40 % for steps of 53 ms
# (docs/h200.md).
_LONGEST_STEP: Final = 2.0
# Number of readings of a fit. With 8 readings, noise and other changes of the load are fitted too.
# With 24 readings, the fit is less accurate if the lengths of steps vary.
_READINGS: Final = 16
# Multiples k of the step's frequency that are fitted. Higher ones are small in readings: an H200
# shows 5 % of the third multiple if steps take 31 ms.
_MULTIPLES: Final = 2
# In readings at regular intervals, a wave has the frequency of its alias: the difference between
# its frequency and the nearest multiple of the frequency of readings. A wave whose alias has fewer
# turns than this in the readings of a fit is not fitted, because slow changes of the load look the
# same.
_FEWEST_TURNS: Final = 2.5
# Added to the mean squares of the waves, which are about 0.5. Without it, coefficients would be
# arbitrary where readings are missing and the others cannot distinguish the waves.
_RIDGE: Final = 0.001
# Variance of readings due to rounding, W^2; NVML gives whole milliwatts.
_ROUNDING: Final = 1e-6


def multiples(period_s: float, spacing_s: float) -> int:
    """Return the highest multiple of the step's frequency that can be fitted; 0 if none can.

    Args:
        period_s: period of the steps.
        spacing_s: mean time between two readings.

    >>> multiples(0.031, 0.02), multiples(0.037, 0.02), multiples(0.021, 0.02), multiples(1.0, 0.02)
    (2, 1, 0, 0)
    """
    if period_s >= _LONGEST_STEP * spacing_s:
        return 0
    for multiple in range(1, _MULTIPLES + 1):
        turns = multiple * spacing_s / period_s
        if abs(turns - round(turns)) * _READINGS < _FEWEST_TURNS:
            return multiple - 1
    return _MULTIPLES


def follow_steps(intervals: Array, period_s: float, *, spacing_s: float, response_s: float) -> None:
    """Correct AREA, and reduce NOISE by the share of the readings' variance that the wave explains.

    Args:
        intervals: rows of ``PowerIntervals``, changed in place: consecutive intervals between
            readings that are no means. They are not changed if there are gaps or too few intervals.
        period_s: period of the steps.
        spacing_s: mean time between two readings.
        response_s: response time of the sensor.
    """
    highest = multiples(period_s, spacing_s)
    has_gaps = not intervals[:, iv.SEEN].all()
    if not highest or len(intervals) < _READINGS or has_gaps:
        return
    t_s, power_w = _readings(intervals, response_s)
    speed = np.repeat(np.arange(1, highest + 1), 2) * 2.0 * np.pi / period_s
    # The sine is a cosine that is a quarter of a turn late.
    turns = t_s[:, None] * speed - np.tile([0.0, np.pi / 2.0], highest)
    waves, integrals = np.cos(turns), np.sin(turns) / speed
    lines = np.diff(t_s)[:, None] * (waves[1:] + waves[:-1]) / 2.0
    coefficients, explained = _fits(waves, power_w)
    # Each interval uses the fit in whose middle it is, or the nearest one.
    fit = np.arange(len(intervals)) - (_READINGS // 2 - 1)
    fit = np.clip(fit, 0, len(coefficients) - 1)
    missed_j = ((np.diff(integrals, axis=0) - lines) * coefficients[fit]).sum(axis=1)
    intervals[:, iv.AREA] += explained * missed_j
    intervals[:, iv.NOISE] *= 1.0 - explained


def _readings(intervals: Array, response_s: float) -> tuple[Array, Array]:
    """Return times, from the first one on, and powers of the readings at the ends of intervals."""
    starts_s, ends_s, rises_w = (intervals[:, column] for column in (iv.START, iv.END, iv.BEND))
    mean_w = (intervals[:, iv.AREA] - response_s * rises_w) / (ends_s - starts_s)
    t_s = np.append(starts_s, ends_s[-1]) - starts_s[0]
    return t_s, np.append(mean_w - rises_w / 2.0, mean_w[-1] + rises_w[-1] / 2.0)


def _fits(waves: Array, power_w: Array) -> tuple[Array, float]:
    """Return the coefficients of all fits, and the share of variance that the waves explain.

    The share is the adjusted coefficient of determination (R^2) of all fits together, but not less
    than 0. If power does not have the period of the steps, it is close to 0.
    """
    shown = sliding_window_view(waves, _READINGS, axis=0)
    shown = shown - shown.mean(axis=2, keepdims=True)
    power_w = sliding_window_view(power_w, _READINGS)
    power_w = power_w - power_w.mean(axis=1, keepdims=True)
    count = waves.shape[1]
    products = shown @ shown.transpose(0, 2, 1) + _READINGS * _RIDGE * np.eye(count)
    coefficients = np.linalg.solve(products, shown @ power_w[:, :, None])[:, :, 0]
    left_w = power_w - (coefficients[:, None, :] @ shown)[:, 0]
    variance = (power_w**2).mean() / (_READINGS - 1) + _ROUNDING
    left = (left_w**2).mean() / (_READINGS - 1 - count) + _ROUNDING
    return coefficients, max(1.0 - float(left / variance), 0.0)

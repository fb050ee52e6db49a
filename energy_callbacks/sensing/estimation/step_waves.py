"""Corrects the energies of power intervals for the wave that the training's steps cause in power.

Between two readings, ``PowerIntervals`` assumes that power is a straight line. If a step lasts no
longer than a few readings, this cuts off the peaks of the wave, and each interval has another error
because the times of readings vary. The errors add up until the next reading of the counter.

The period of the steps is known, so the wave is fitted to the readings::

    reading(t) = constant + sum over multiples k of  a_k cos(k w t) + b_k sin(k w t),  w = 2 pi/period

The fit has its own coefficients for every few readings, because steps are not exactly periodic. The
energy of an interval is corrected by the integral of the wave minus that of the straight line.
"""

from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.series import Array

# Steps longer than this number of intervals between readings are left to the straight lines. Under
# square waves of 97 and 130 ms (readings every 20 ms), the fit does not reduce the error.
_LONGEST_STEP: Final = 4.0
# Number of consecutive readings of a fit. More readings average more noise; fewer readings allow
# steps to vary more.
_READINGS: Final = 16
# Multiples of the step's frequency that are fitted. The response time of a sensor reduces higher
# multiples: an H200 shows 5 % of the third one of steps of 31 ms.
_MULTIPLES: Final = 2
# Readings show a frequency as that of its alias, which is its distance to the nearest multiple of
# the frequency of readings. Waves of fewer turns in the readings of a fit are not fitted, because
# they could be slow changes of the load.
_FEWEST_TURNS: Final = 2.5
# Fraction of the readings' sum of squares that is added to that of the coefficients. It prevents
# large coefficients if readings are missing, so that sine and cosine are alike at the others.
_RIDGE: Final = 0.001


def multiples(period_s: float, spacing_s: float) -> int:
    """Return how many multiples of the step's frequency, from the first on, can be fitted.

    Args:
        period_s: period of the steps.
        spacing_s: time between two readings.

    >>> multiples(0.031, 0.02), multiples(0.02, 0.02), multiples(1.03, 0.02)
    (2, 0, 0)
    """
    if period_s > _LONGEST_STEP * spacing_s:
        return 0
    for multiple in range(1, _MULTIPLES + 1):
        turns = multiple * spacing_s / period_s
        if abs(turns - round(turns)) * _READINGS < _FEWEST_TURNS:
            return multiple - 1
    return _MULTIPLES


def add_waves(intervals: Array, period_s: float, count: int, response_s: float) -> None:
    """Correct AREA, and reduce NOISE by the share of the readings' variance that the wave explains.

    Args:
        intervals: consecutive intervals between readings of single moments, changed in place; the
            rows of ``PowerIntervals``.
        period_s: period of the steps.
        count: number of multiples of the step's frequency, from ``multiples``.
        response_s: response time of the sensor.
    """
    if len(intervals) < _READINGS:
        return
    t_s = np.append(intervals[:, iv.START], intervals[-1, iv.END]) - intervals[0, iv.START]
    width_s = np.diff(t_s)
    mean_w = (intervals[:, iv.AREA] - response_s * intervals[:, iv.BEND]) / width_s
    half_w = intervals[:, iv.BEND] / 2.0
    power_w = np.append(mean_w - half_w, mean_w[-1] + half_w[-1])
    pulse = 2.0 * np.pi / period_s * np.arange(1, count + 1)
    turn = np.outer(t_s, pulse)
    waves = np.concatenate([np.cos(turn), np.sin(turn)], axis=1)
    integral = np.concatenate([np.sin(turn), -np.cos(turn)], axis=1) / np.tile(pulse, 2)
    lines = width_s[:, None] * (waves[1:] + waves[:-1]) / 2.0
    coefficients, explained = _fits(waves, power_w)
    # Each interval uses the fit in the middle of which it is, or the nearest one.
    middle = np.arange(len(width_s)) - (_READINGS // 2 - 1)
    fit = np.clip(middle, 0, len(explained) - 1)
    cut_j = ((np.diff(integral, axis=0) - lines) * coefficients[fit]).sum(axis=1)
    intervals[:, iv.AREA] += explained[fit] * cut_j
    intervals[:, iv.NOISE] *= 1.0 - explained[fit]


def _fits(waves: Array, power_w: Array) -> tuple[Array, Array]:
    """Return the coefficients of each fit, and the share of the variance that they explain.

    The share is the adjusted coefficient of determination (R^2), at least 0. It is near 0 if the
    load does not have the period of the steps.
    """
    shown = sliding_window_view(waves, _READINGS, axis=0)
    shown = shown - shown.mean(axis=2, keepdims=True)
    power_w = sliding_window_view(power_w, _READINGS)
    power_w = power_w - power_w.mean(axis=1, keepdims=True)
    products = shown @ shown.transpose(0, 2, 1) + _RIDGE * _READINGS * np.eye(waves.shape[1])
    coefficients = np.linalg.solve(products, shown @ power_w[:, :, None])
    left_w = power_w - (coefficients.transpose(0, 2, 1) @ shown)[:, 0]
    free = (_READINGS - 1) / (_READINGS - 1 - waves.shape[1])
    total = (power_w**2).sum(axis=1) + 1e-9
    return coefficients[:, :, 0], np.maximum(1.0 - free * (left_w**2).sum(axis=1) / total, 0.0)

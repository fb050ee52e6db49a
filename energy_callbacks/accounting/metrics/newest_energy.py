"""Computes the energy of a device up to now; the time since its newest reading is extrapolated.

The mean power in this time is predicted by linear regression over equal time spans in the past: on
the mean power just before each of them, or on the power reading that was the newest one then,
whichever predicts these spans better. What the regression does not explain is the error.
"""

import math
from dataclasses import replace
from operator import itemgetter
from typing import Final

import numpy as np

from energy_callbacks.accounting.metrics.energy_sums import total_of_neighbours
from energy_callbacks.core.records import NORMAL_95, Energy
from energy_callbacks.sensing.estimation.cumulative_energy import Intervals
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.timeline import Timeline

# Longest time without readings that is extrapolated, s. Without faults, every source is read at
# least every 1.6 s, and a reading is late by at most 0.7 s (``known_sensors``).
_LONGEST_S: Final = 2.5
# Number of time spans in the past, and the smallest number. More spans reach further back, where
# the load may have been another one.
_SPANS: Final = 20
_FEWEST: Final = 4


def newest_energy(
    timeline: Timeline, key: str, start_s: float, end_s: float, now_s: float
) -> Energy:
    """Return the energy of a device between two moments, with unseen time at its end extrapolated.

    If that time is too long, or if there are too few readings before it, nothing is extrapolated:
    ``coverage`` of the result is then less than 1.

    Args:
        timeline: the readings.
        key: key of the device.
        start_s: start of the time span, monotonic time.
        end_s: end of the time span.
        now_s: the present; energy after it is not extrapolated.
    """
    found = timeline.energy(key, start_s, end_s)
    seen_s, until_s = seen_until_s(timeline, key), min(end_s, now_s)
    if seen_s is None or until_s <= max(seen_s, start_s) or until_s - seen_s > _LONGEST_S:
        return found
    unseen = _predicted(timeline, key, seen_s, (max(seen_s, start_s), until_s))
    if unseen is None:
        return found
    parts, lengths_s = [unseen], [until_s - max(seen_s, start_s)]
    if seen_s > start_s:
        parts.insert(0, timeline.energy(key, start_s, seen_s))
        lengths_s.insert(0, seen_s - start_s)
    both = total_of_neighbours(parts, lengths_s)
    return replace(both, coverage=both.coverage * (until_s - start_s) / (end_s - start_s))


def seen_until_s(timeline: Timeline, key: str) -> float | None:
    """Return the end of the time whose energy readings determine; ``None`` without any.

    Where the counter alone is used, power readings after its last reading see only a part of the
    time, or a mean over a longer time, and are not used.
    """
    newest_s = timeline.newest_s(key)
    if newest_s is None:
        return None
    past = timeline.intervals(key, newest_s - _LONGEST_S, newest_s, provisional=True)
    if past is None or not past.is_counted.any():
        return newest_s
    return float(past.t_s[1:][past.is_counted][-1])


def _predicted(
    timeline: Timeline, key: str, seen_s: float, unseen: tuple[float, float]
) -> Energy | None:
    """Return the energy in a time span after ``seen_s``; ``None`` if there are too few readings.

    Args:
        timeline: the readings.
        key: key of the device.
        seen_s: end of the time with readings.
        unseen: start and end of the time span.
    """
    width_s, ahead_s = unseen[1] - unseen[0], unseen[1] - seen_s
    past = timeline.intervals(key, seen_s - _SPANS * _LONGEST_S, seen_s, provisional=True)
    if past is None:
        return None
    # Moments in the past, and the same time span after each of them; after the last it is unseen.
    reading_s = float(past.t_s[-1] - past.t_s[-2])
    step_s = max(ahead_s, reading_s)
    count = min(int((seen_s - past.t_s[0] - reading_s) / step_s), _SPANS)
    if count < _FEWEST:
        return None
    moments_s: Array = seen_s - step_s * np.arange(count, -1.0, -1.0)
    ends_s = moments_s[:-1] + ahead_s
    after_w = _mean_w(past, ends_s - width_s, ends_s)
    known = [_mean_w(past, moments_s - reading_s, moments_s)]
    t_s, power_w = (np.asarray(column) for column in timeline.recent_power(key))
    if len(t_s):
        newest = np.searchsorted(t_s, moments_s + (t_s[-1] - seen_s), side="right") - 1
        known.append(power_w[np.maximum(newest, 0)])
    next_w, error_w = min((_regressed(one, after_w) for one in known), key=itemgetter(1))
    # The readings do not show all changes of power within a short time span.
    recent = timeline.energy(key, seen_s - width_s, seen_s)
    return replace(
        recent,
        energy_j=next_w * width_s,
        stderr_j=math.hypot(error_w * width_s, recent.resolution_j / NORMAL_95),
        edge_j=0.0,
        systematic_j=past.relative_error * next_w * width_s,
        method=f"{recent.method}, extrapolated",
    )


def _mean_w(past: Intervals, start_s: Array, end_s: Array) -> Array:
    """Return the mean power between pairs of moments, W, (n,)."""
    total_j = np.concatenate([[0.0], np.cumsum(past.energy_j)])
    start_j, end_j = (np.interp(t_s, past.t_s, total_j) for t_s in (start_s, end_s))
    return np.asarray((end_j - start_j) / (end_s - start_s))


def _regressed(known: Array, after_w: Array) -> tuple[float, float]:
    """Return the power after the last moment and its standard error, by linear regression.

    The slope is limited to the range from 0 (the mean power) to 1 (the power stays as it is).

    Args:
        known: power that is known at each moment, (n + 1,).
        after_w: power after each moment but the last, (n,).
    """
    off_w = known[:-1] - known[:-1].mean()
    square = float(off_w @ off_w)
    slope = min(max(float(off_w @ after_w) / square, 0.0), 1.0) if square else 0.0
    left_w = after_w - after_w.mean() - slope * off_w
    next_w = float(after_w.mean() + slope * (known[-1] - known[:-1].mean()))
    return max(next_w, 0.0), math.sqrt(float(left_w @ left_w) / (len(off_w) - 2))

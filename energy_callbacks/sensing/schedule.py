"""Computes when periodic work runs: at the same moments in all threads and ranks of a host.

Every thread that wakes up disturbs the training. Therefore most sensors are read at common reading
moments of the monotonic clock, and the journal is written shortly after these moments::

    sensors   |         |         |         BEAT_S apart, LEAD_S before the journal
    journal     |         |         |

A process that is killed loses the data after the last write of the journal: less than a second.
"""

import math
from typing import Final

# Time between two common reading moments, s.
BEAT_S: Final = 0.8
# Time from a common reading moment to the next write of the journal, s. The readings take less: on
# an H200 the energy counter, which is read first, delays the other readings by up to 25 ms.
LEAD_S: Final = 0.1
# Time after a change of phase in which sources that are cheap to read are read more often, s. A
# training whose phases are all longer reads them often in only a part of the time. In a training
# with shorter phases, every phase is resolved.
QUICK_FOR_S: Final = 8.0
# Tolerance for threads that wake up too early, s.
_EARLY_S: Final = 0.01


def until_reading_s(start_s: float, beats: int = 1) -> float:
    """Return the seconds from ``start_s`` to the ``beats``-th common reading moment after it."""
    return next_reading_s(start_s, beats) - start_s


def until_quick_reading_s(start_s: float, interval_s: float, changed_s: float) -> float:
    """Return the seconds from ``start_s`` to the next reading of a source that is cheap to read.

    Infinite if the last change of phase was more than ``QUICK_FOR_S`` seconds before ``start_s``.
    A source that sleeps until a common reading moment is not woken by a change of phase, so that
    the training thread has no work: the first of several short phases may begin up to ``BEAT_S``
    seconds before the first quick reading.

    Args:
        start_s: monotonic time of the last reading.
        interval_s: time between two quick readings. If ``BEAT_S`` and ``LEAD_S`` are multiples of
            it, the common reading moments are among the quick ones.
        changed_s: monotonic time of the last change of phase.
    """
    if start_s - changed_s > QUICK_FOR_S:
        return math.inf
    return next_multiple_s(start_s, interval_s) - start_s


def next_reading_s(now_s: float, beats: int = 1) -> float:
    """Return the monotonic time of the ``beats``-th common reading moment after ``now_s``."""
    return next_multiple_s(now_s + LEAD_S, BEAT_S) - LEAD_S + (beats - 1) * BEAT_S


def next_multiple_s(now_s: float, interval_s: float) -> float:
    """Return the first multiple of the interval that is more than ``_EARLY_S`` after ``now_s``."""
    return (math.floor((now_s + _EARLY_S) / interval_s) + 1.0) * interval_s

"""When periodic work runs: at the same moments in all threads and all ranks of a host.

Every thread that wakes up disturbs the training. Therefore sensors that store their values are
read at common moments of the monotonic clock, and the journal is written right after::

    sensors   |         |         |         BEAT_S apart, LEAD_S before the journal
    journal     |         |         |

A process that is killed loses what came after the last such moment: less than a second.
"""

import math
from typing import Final

BEAT_S: Final = 0.8
# Reading the energy counter first delays the other readings of a card by 25 ms (H200).
LEAD_S: Final = 0.1
# Tolerance for early wake-ups.
_EARLY_S: Final = 0.01


def until_reading_s(start_s: float, beats: int = 1) -> float:
    """Return the time from the start of one reading to the start of the next, or a later one."""
    return next_reading_s(start_s, beats) - start_s


def next_reading_s(now_s: float, beats: int = 1) -> float:
    """Return the monotonic time of the next reading, or of the ``beats``-th one from now."""
    return next_multiple_s(now_s + LEAD_S, BEAT_S) - LEAD_S + (beats - 1) * BEAT_S


def next_multiple_s(now_s: float, interval_s: float) -> float:
    """Return the next moment that is a multiple of the interval."""
    return (math.floor((now_s + _EARLY_S) / interval_s) + 1.0) * interval_s

"""Detects quantities without new readings while other quantities of their device have new ones.

Devices without any new reading are not reported here; ``Sampler`` reports sources that fail.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from energy_callbacks.core.records import Quantity
from energy_callbacks.sensing.timeline import Timeline

# A quantity is stale if it has had no readings for this time, s. Of all quantities, the time with
# throttled clocks has the longest interval between two readings: 4.8 s.
_SILENT_S: Final = 10.0
# Maximum number of messages about one quantity of a device.
_MOST_REPORTS: Final = 3


class StaleSensors:
    """Finds quantities in a timeline that have no new readings.

    Args:
        timeline: all readings of the attempt.
        start_s: monotonic time of the attempt's start.
    """

    def __init__(self, timeline: Timeline, start_s: float) -> None:
        self._timeline = timeline
        self._start_s = start_s
        self._silent: set[tuple[str, Quantity]] = set()
        self._reports: Counter[tuple[str, Quantity]] = Counter()

    def news(self) -> Iterator[str]:
        """Yield a message for each quantity that has become stale since the last call.

        After ``_MOST_REPORTS`` messages about a quantity, no more are yielded about it.
        """
        silent = self._timeline.silent(_SILENT_S)
        for (key, quantity), since_s in silent.items():
            is_new = (key, quantity) not in self._silent
            self._reports[key, quantity] += is_new
            if is_new and self._reports[key, quantity] <= _MOST_REPORTS:
                yield (
                    f"{key}: no readings of {quantity.replace('_', ' ')} since "
                    f"{since_s - self._start_s:.0f} s after the start; its other sensors respond."
                )
        self._silent = set(silent)

"""The time of a log as seconds that never decrease, and how its clock was set."""

from collections.abc import Iterator
from typing import Final

from energy_callbacks.importers.values import Moment, unix_s

_HOUR_S: Final = 3600.0
# How long the step over a change to winter time may be besides the hour.
_SLACK_S: Final = 60.0
# A longer pause in one log means that the clock was set.
_MOST_STEP_S: Final = 7 * 86400.0


class LogClock:
    """Takes the moments of a log in the order of the file.

    * Local time that goes back by an hour, and less than a minute, is the end of summer time:
      the hour is added again.
    * Any other step back, and one ahead of more than a week, is a clock that was set: it counts
      as no time at all. If the next moment goes on from the one before, it was a slip.
    """

    def __init__(self) -> None:
        self._first: Moment | None = None
        self._last = 0.0, 0.0  # as the log says, and since it began
        self._ahead_s = 0.0
        self._ahead_before_s = 0.0
        self._set: list[float] = []
        self._winter = 0
        self._summer = 0

    @property
    def unix_s(self) -> float:
        """Wall time of the first moment; 0.0 if there was none."""
        return unix_s(self._first) if self._first else 0.0

    @property
    def is_local(self) -> bool:
        """Whether the log says no zone."""
        return self._first is not None and self._first.is_local

    def t_s(self, found: Moment) -> float:
        """Seconds since the first moment."""
        if self._first is None:
            self._first, self._last = found, (found.s, 0.0)
        last_s, last_t_s = self._last
        step_s, elapsed_s = found.s - last_s, found.s - self._first.s
        if 0.0 <= elapsed_s + self._ahead_before_s - last_t_s <= _MOST_STEP_S:
            self._ahead_s = self._ahead_before_s  # it was a slip, or nothing at all
        elif step_s < 0.0 or step_s > _MOST_STEP_S:
            self._turned(step_s, found)
        if found.is_local and 0.0 <= step_s - _HOUR_S <= _SLACK_S:
            self._summer += 1
        self._last = found.s, elapsed_s + self._ahead_s
        return self._last[1]

    def _turned(self, step_s: float, found: Moment) -> None:
        self._ahead_before_s = self._ahead_s
        if found.is_local and 0.0 <= step_s + _HOUR_S <= _SLACK_S:
            self._winter += 1
            self._ahead_s += _HOUR_S
            self._ahead_before_s = self._ahead_s
        else:
            self._set.append(step_s)
            self._ahead_s -= step_s

    def problems(self) -> Iterator[str]:
        """Warnings about the times, a sentence each."""
        if self._winter:
            yield (
                "The log's local time went back by an hour, as at the end of summer time: the hour "
                "was added again."
            )
        if self._summer:
            yield (
                "The log's local time went ahead by an hour, as at the beginning of summer time: "
                "if it was that, this hour did not pass, and nothing of it is missing."
            )
        if self._set:
            worst_s = max(self._set, key=abs)
            count = len(self._set)
            yield (
                f"The log's clock was set {'once' if count == 1 else f'{count} times'} (by "
                f"{worst_s:+.3f} s{'' if count == 1 else ' at most'}): how long these steps took "
                "nobody knows, they count as no time and no energy."
            )

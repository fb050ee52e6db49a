"""Converts the times of a log to seconds that never decrease, and reports clock changes."""

from collections.abc import Iterator
from typing import Final

from energy_callbacks.importers.values import Moment, unix_s

_HOUR_S: Final = 3600.0
# Maximum time between two samples if summer time begins or ends between them. The local time then
# steps forward by an hour plus at most this time, or back by an hour minus at most this time.
_SLACK_S: Final = 60.0
# Maximum time between two samples. A longer step forward means that the log's clock was set.
_MOST_STEP_S: Final = 7 * 86400.0


class LogClock:
    """Converts the moments of a log, in the order of the file, to seconds since the first moment.

    * If times without time zone go back by 59 to 60 minutes, summer time has ended: an hour is
      added to all times from then on.
    * Any other step back, and any step forward of more than a week, means that the clock was set:
      the time since the previous moment is taken as 0. If the next other moment fits the times
      before the step again, only one time was wrong, and the correction is undone. Later moments do
      not undo it.
    """

    def __init__(self) -> None:
        self._first: Moment | None = None
        self._last_s = self._last_t_s = 0.0
        # Seconds to add to the log's times: at present, and before a step of the clock that the
        # next other moment may undo.
        self._added_s = self._added_before_s = 0.0
        self._clock_steps_s: list[float] = []
        self._winter_changes = self._summer_changes = 0

    @property
    def unix_s(self) -> float:
        """Wall time of the first moment, in Unix seconds; 0.0 if there was none."""
        return unix_s(self._first) if self._first else 0.0

    @property
    def is_local(self) -> bool:
        """Whether the log's times have no time zone."""
        return self._first is not None and self._first.is_local

    def t_s(self, moment: Moment) -> float:
        """Return the seconds from the first moment to ``moment``, the next moment in the file."""
        if self._first is None:
            self._first, self._last_s = moment, moment.s
        step_s, elapsed_s = moment.s - self._last_s, moment.s - self._first.s
        if 0.0 <= elapsed_s + self._added_before_s - self._last_t_s <= _MOST_STEP_S:
            # Only the previous time was wrong, or the clock has not been set.
            self._added_s = self._added_before_s
        elif step_s < 0.0 or step_s > _MOST_STEP_S:
            self._step_clock(step_s, is_local=moment.is_local)
        elif step_s > 0.0:  # samples of several devices have the same time
            self._added_before_s = self._added_s
        if moment.is_local and 0.0 <= step_s - _HOUR_S <= _SLACK_S:
            self._summer_changes += 1
        self._last_s, self._last_t_s = moment.s, elapsed_s + self._added_s
        return self._last_t_s

    def _step_clock(self, step_s: float, *, is_local: bool) -> None:
        self._added_before_s = self._added_s
        if is_local and 0.0 <= step_s + _HOUR_S <= _SLACK_S:
            self._winter_changes += 1
            self._added_s = self._added_before_s = self._added_s + _HOUR_S
        else:
            self._clock_steps_s.append(step_s)
            self._added_s -= step_s

    def problems(self) -> Iterator[str]:
        """Yield warnings about the times, one sentence each."""
        if self._winter_changes:
            yield (
                "The local time of the log decreased by one hour, as at the end of summer time. "
                "The hour was added again."
            )
        if self._summer_changes:
            yield (
                "The local time of the log increased by one hour, as at the beginning of summer "
                "time. If this is the reason, no data are missing."
            )
        if count := len(self._clock_steps_s):
            worst_s = max(self._clock_steps_s, key=abs)
            yield (
                f"The clock of the log was set {'once' if count == 1 else f'{count} times'} (by "
                f"{worst_s:+.3f} s{'' if count == 1 else ' at most'}). The duration of these steps "
                "is not known; they count as no time and no energy."
            )

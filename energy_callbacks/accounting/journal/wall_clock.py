"""Detects during an attempt that the wall clock was set or that the machine was suspended.

Energy is computed in monotonic time, so no energy is counted twice if the wall clock is set back.
Samples that a driver stamps with wall time may have a gap at the moment when the clock was set
(``sensing/sources/nvidia/driver_stamps.py``).
"""

from collections.abc import Iterator
from typing import Final

from energy_callbacks.sensing.clock import Clock, clock_offset

# Smallest change of the wall clock that is reported, s. ntpd sets a clock only if it is wrong by
# more than 0.128 s; otherwise ntpd only changes the clock's speed (ntpd(8), "-x").
_JUMP_S: Final = 0.1
# Maximum number of messages in one attempt.
_MOST_REPORTS: Final = 3


class WallClock:
    """Detects changes of the difference between wall time and monotonic time.

    Args:
        clock: tells wall time and monotonic time.
        start_s: monotonic time of the attempt's start.
    """

    def __init__(self, clock: Clock, start_s: float) -> None:
        self._clock = clock
        self._start_s = start_s
        self._ahead_s = clock_offset(clock)[1]
        self._reports = 0

    def news(self) -> Iterator[str]:
        """Yield a message if the clock was set or the machine was suspended since the last call.

        After ``_MOST_REPORTS`` messages, nothing more is yielded.
        """
        now_s, ahead_s = clock_offset(self._clock)
        jump_s, self._ahead_s = ahead_s - self._ahead_s, ahead_s
        if abs(jump_s) < _JUMP_S or self._reports == _MOST_REPORTS:
            return
        self._reports += 1
        way = "forward" if jump_s > 0.0 else "back"
        yield (
            f"The wall clock was set {way} by {abs(jump_s):.1f} s, or the machine was suspended, "
            f"{now_s - self._start_s:.0f} s after the start. Power samples may be missing there."
        )

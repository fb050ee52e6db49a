"""Converts a driver's Unix time stamps to the monotonic clock.

The offset between the wall clock and the monotonic clock is nearly constant until the wall clock is
set. Each call of ``new`` measures the offset. If the offset has jumped since the previous call, it
is unknown whether a new sample was stamped before or after the jump. Then a sample is used only if
exactly one of the two offsets gives a plausible time.
"""

from collections.abc import Sequence
from operator import ge
from typing import Final

from energy_callbacks.core.units import seconds_from_microseconds
from energy_callbacks.sensing.clock import Clock, clock_offset

# A change of the offset by more than this number of seconds between two calls is a jump.
# Synchronisation with a time server changes the offset by at most 0.5 ms per second (adjtimex(2):
# 500 ppm).
_JUMP_S: Final = 0.010
# A stamp may be in the future by at most this number of seconds, because stamps jitter: on an H200
# the time between two samples is 6 to 48 ms instead of 20 ms.
_FUTURE_S: Final = 0.010


class DriverStamps:
    """Converts the stamps of the samples in a driver's buffer, each sample once and in order.

    Args:
        clock: clock that gives monotonic and wall time.

    Attributes:
        untidy: number of calls in which the buffer had repeated samples or samples out of order.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_s = clock_offset(clock)[1]
        self._seen_us: frozenset[int] = frozenset()
        self._last_s = float("-inf")
        self.untidy = 0

    def new(self, samples: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
        """Return the samples that were not in the buffer at earlier calls, in order of time.

        Duplicates, samples in the future, samples that are not later than those of earlier calls,
        and samples whose time is ambiguous after a jump of the wall clock are dropped. A gap is
        better than a sample at a wrong time.

        Args:
            samples: the whole buffer, (Unix time in microseconds, value), in any order.

        Returns:
            (monotonic time in s, value) of each sample; the times increase strictly.
        """
        now_s, offset_s = clock_offset(self._clock)
        stamps = [stamp for stamp, _ in samples]
        self.untidy += any(map(ge, stamps, stamps[1:]))
        is_jump = abs(offset_s - self._offset_s) > _JUMP_S
        offsets_s = (self._offset_s, offset_s) if is_jump else (offset_s,)
        fresh = {stamp: value for stamp, value in samples if stamp not in self._seen_us}
        self._seen_us, self._offset_s = frozenset(stamps), offset_s
        # If no stamp of the previous call is left after a jump, the driver has probably changed all
        # stamps. Then new samples cannot be distinguished from old ones.
        if is_jump and len(fresh) == len(self._seen_us):
            return []
        last_s, latest_s = self._last_s, now_s + _FUTURE_S
        placed: list[tuple[float, float]] = []
        for stamp_us, value in fresh.items():
            unix_s = seconds_from_microseconds(stamp_us)
            possible = [unix_s - offset_s for offset_s in offsets_s]
            new = [t_s for t_s in possible if last_s < t_s <= latest_s]
            if len(new) == 1:  # otherwise no offset or both offsets give a plausible time
                placed.append((new[0], value))
        placed.sort()
        if placed:
            self._last_s = placed[-1][0]
        return placed

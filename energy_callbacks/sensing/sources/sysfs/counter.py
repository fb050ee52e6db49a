"""Converts the values of an energy counter that wraps, is reset or stops to J since the start."""

import math
from collections.abc import Iterable
from typing import Final

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.core.records import Channel

# A counter decreases when it wraps around at the end of its range, or when it is reset. If a reset
# counted as a wrap, up to the whole range would be added at once: 262 kJ for RAPL's range of
# 262143328850 microjoules (hubblo-org/scaphandre issue 351). With a real wrap, the energy since the
# previous reading is a few hundred joules. A decrease counts as a reset if a wrap would imply a
# mean power above MOST_POWER_W, which is ten times the largest TDP (thermal design power) of a CPU
# on sale (500 W, AMD EPYC 9965 data sheet). The mean power is the energy that the wrap would imply,
# divided by the sum of the time since the previous reading and _GRACE_S. _GRACE_S is a tolerance: a
# delay between reading the counter and the clock may make the measured time too short.
MOST_POWER_W: Final = 5000.0
_GRACE_S: Final = 1.0


class CounterUnchanged(ReadingMissed):
    """The counter has its previous value, although it should have changed; it may change soon."""


def wrap_remarks(counters: Iterable[tuple[Channel, int]]) -> list[str]:
    """Return a message for each counter that restarted at the end of its range.

    Args:
        counters: channel and number of wraps of each counter.
    """
    return [
        f"the counter of {channel.device.name} restarted at the end of its range "
        f"{wraps} {'time' if wraps == 1 else 'times'}; no energy is lost"
        for channel, wraps in counters
        if wraps
    ]


class Counter:
    """Adds up the increases of an energy counter since its first value, J.

    Attributes:
        wraps: number of wraps so far.

    Args:
        unit: one unit of the values, J, such as 1e-6 for microjoules.
        wrap: largest value, after which the counter continues at 0; ``None`` if it is not known or
            if the counter does not wrap: each decrease is then a reset.
        stale_s: time without a change after which the counter counts as stopped; ``None`` if it may
            stand still.
    """

    def __init__(
        self, *, unit: float, wrap: float | None = None, stale_s: float | None = None
    ) -> None:
        self.wraps = 0
        self._unit = unit
        self._range = -math.inf if wrap is None else wrap + 1
        self._stale_s = stale_s
        self._raw: float | None = None
        self._total = self._t_s = self._changed_s = 0.0
        self._same_s = 0.0  # from the last change to the last reading without one

    def advance(self, raw: float, t_s: float) -> float:
        """Take a new value, and return the energy since the first value, J.

        If the counter was reset, or counts again after it had stopped, the energy is 1 J less than
        before. The decrease shows that the energy in between is not known (``EnergyCurve``).

        Args:
            raw: value of the counter.
            t_s: monotonic time at which the value was read.

        Raises:
            CounterUnchanged: if the counter has not changed, but may not have stopped yet.
            ReadingMissed: if the counter has stopped.
        """
        if self._raw is None:
            self._raw, self._t_s, self._changed_s = raw, t_s, t_s
            return 0.0
        rise, passed_s = raw - self._raw, t_s - self._t_s
        self._raw, self._t_s = raw, t_s
        is_known = self._stale_s is None or self._is_running(rise, t_s, self._stale_s)
        if rise < 0:
            rise += self._range
            is_known &= 0 <= rise * self._unit <= MOST_POWER_W * (passed_s + _GRACE_S)
            self.wraps += is_known
        self._total += rise if is_known else -1.0 / self._unit
        return self._total * self._unit

    def _is_running(self, rise: float, t_s: float, stale_s: float) -> bool:
        """Return whether the counter had not stopped before it changed; raise if it has not."""
        if rise != 0:
            same_s, self._same_s, self._changed_s = self._same_s, 0.0, t_s
            return same_s <= stale_s
        self._same_s = t_s - self._changed_s
        if self._same_s > stale_s:
            raise ReadingMissed(f"it has stopped: no change for {self._same_s:.0f} s")
        raise CounterUnchanged(f"it has not changed for {self._same_s:.3g} s")

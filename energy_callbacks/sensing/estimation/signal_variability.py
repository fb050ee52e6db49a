"""Estimates from a series of readings how much of the load happened between them.

Readings that rise once and stay show everything. Readings that jump up and down indicate that more
happens between them than they show. The ratio of two mean squares tells them apart: that of
differences two readings apart, divided by that of neighbours. It is 2 or more after single jumps, 1
if each reading is a new random draw, and less if the load repeats faster than it is read.
"""

from typing import Final

_ROUGH: Final = 1.0
# In readings: one second of an H200's samples.
_MEMORY: Final = 50.0
_FEWEST: Final = 3.0


class SignalVariability:
    """Running statistics of a series.

    Attributes:
        typical: mean square of the difference between consecutive readings.
        local: the newest of these squares, or half of the one before if that is more.
        spread: mean square deviation of the readings from their mean.
        smooth: 1 for single jumps between constant levels, 0 if each reading is a new draw.

    Args:
        smooth_ratio: value of the ratio of mean squares after single jumps.
    """

    def __init__(self, smooth_ratio: float = 2.0) -> None:
        self._ratio_range = smooth_ratio - _ROUGH
        self._last: float | None = None
        self._last_but_one: float | None = None
        self._newest = self._twice = 0.0
        self._count = 0.0
        self._mean = 0.0
        self.typical = self.local = self.spread = 0.0
        self.smooth = 1.0

    def add(self, value: float) -> None:
        """Add the next reading."""
        last, last_but_one = self._last, self._last_but_one
        self._last, self._last_but_one = value, last
        if last is None:
            self._mean = value
            return
        count = self._count
        if count < _MEMORY:
            count = self._count = count + 1.0
        square = (value - last) ** 2
        self.local, self._newest = max(square, self._newest / 2.0), square
        once = self.typical  # a jump in this reading may not persist
        self.typical = once + (square - once) / count
        off = value - self._mean
        self._mean += off / count
        self.spread += (off**2 - self.spread) / count
        if last_but_one is not None:
            self._twice += ((value - last_but_one) ** 2 - self._twice) / count
        share = (self._twice / once - _ROUGH) / self._ratio_range if once else 1.0
        self.smooth = 0.0 if share < 0.0 else min(share, 1.0)

    @property
    def is_known(self) -> bool:
        """Whether there are enough readings for an estimate."""
        return self._count >= _FEWEST

    def variance(self, local: float, if_smooth: float, if_rough: float) -> float:
        """Return the variance that such readings hide, in their unit squared.

        Args:
            local: mean square of the differences nearby, which matters if the series is smooth.
            if_smooth: hidden fraction of ``local`` in a smooth series.
            if_rough: hidden fraction of ``typical`` in a rough series.
        """
        smooth = self.smooth
        if smooth == 1.0:
            return if_smooth * local
        share: float = if_smooth**smooth * if_rough ** (1.0 - smooth)
        return share * (smooth * local + (1.0 - smooth) * self.typical)

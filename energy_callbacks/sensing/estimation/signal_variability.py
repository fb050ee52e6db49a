"""Estimates from a series of readings how much the load varies between readings.

If readings rise once and then stay constant, the load does not vary between readings. If readings
rise and fall all the time, the load varies between readings. A ratio distinguishes the two cases:
the mean square of the difference between a reading and the one two readings earlier, divided by the
mean square of the difference between consecutive readings. The ratio is 2 or more for single jumps,
1 for independent readings, and less than 1 if readings alternate between high and low.
"""

from typing import Final

# The ratio (see above) of independent readings.
_ROUGH: Final = 1.0
# Number of readings over which means are taken, with exponential weights. It is the number of power
# samples of an H200 in one second.
_MEMORY: Final = 50.0
# Minimum number of differences between consecutive readings for an estimate.
_FEWEST: Final = 3.0


class SignalVariability:
    """Computes running statistics of a series of readings.

    Attributes:
        typical: mean square of the difference between consecutive readings.
        local: square of the newest difference between consecutive readings, or half of the square
            of the previous difference if this half is larger.
        spread: mean square deviation of the readings from their mean.
        smooth: 1 if the series resembles single jumps between constant levels, 0 if it resembles
            independent or alternating readings; otherwise between 0 and 1.

    Args:
        smooth_ratio: the lowest ratio, as defined in the module, for which ``smooth`` is 1; must be
            above 1.
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
        # A jump adds once to ``typical`` and two times to ``_twice``, the second time at the next
        # reading. Therefore ``once`` does not include the newest difference.
        once = self.typical
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
        """Return the variance due to changes between readings, in the squared unit of readings.

        The variance is ``if_smooth`` times the argument ``local`` if ``smooth`` is 1, and
        ``if_rough`` times ``typical`` if ``smooth`` is 0. In between, it is interpolated.

        Args:
            local: square of the difference between nearby readings.
            if_smooth: variance of a smooth series, as a fraction of ``local``.
            if_rough: variance of a rough series, as a fraction of ``typical``.
        """
        smooth = self.smooth
        if smooth == 1.0:
            return if_smooth * local
        share: float = if_smooth**smooth * if_rough ** (1.0 - smooth)
        return share * (smooth * local + (1.0 - smooth) * self.typical)

"""Computes the shape and the errors of intervals whose energy is known from the counter alone.

The counter gives the mean power of each interval. If power is constant before and after an interval
and jumps once inside it, three mean powers determine when it jumps::

    mean power     before    here    after
    power          ______________
                                 |________       jump at (after - here) / (after - before),
                  |         |         |          where 0 is the start of the interval and 1 its end

Whether power is constant in a neighbour is not known. It probably is if the neighbour has the same
mean as the next interval on that side, or if its mean is higher (or lower) than those on both of
its sides. The more a neighbour differs from that, the smaller is the jump that is used, and the
larger is the stated error.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.estimation.signal_variability import SignalVariability

# Number of intervals on each side of an interval that determine its shape.
_NEIGHBOURS: Final = 2
# Longer intervals are shaped without neighbours, because waiting for these would delay figures, s.
_LONGEST_S: Final = 0.15
# A square wave has at most one jump in an interval, and constant power in at least one interval
# between two jumps, if its period is at least this many intervals.
_FEWEST_IN_PERIOD: Final = 4.0
# Weight of the squared differences that speak against a single jump, relative to its square. It is
# large so that linear changes of power (a sine) are hardly taken for jumps.
_UNEQUAL: Final = 10.0
# Variance of changes that repeat within an interval, as a fraction of the mean square by which
# instant readings in it are unexplained. Fitted as the shares of ``power_intervals``.
_UNSEEN_BY_INSTANT: Final = 0.039


class _Counted(NamedTuple):
    """An interval between two readings of the counter.

    Attributes:
        start_s: start.
        end_s: end.
        energy_j: rise of the counter.
        point: variance of C at the start and at the end, J^2.
        local: ``SignalVariability.local`` of the mean powers.
        by_local: increase of the variance of the power inside with the square of an unexplained
            difference of mean powers.
        constant: the rest of this variance, W^2; NaN if the power may be distributed in any way.
        smooth: how far jumps are located, from 0 to 1.
        readings: instant power at the start and at the end of each part of the interval, and the
            length of the part in seconds; empty if there are no such readings.
    """

    start_s: float
    end_s: float
    energy_j: float
    point: float
    local: float
    by_local: float
    constant: float
    smooth: float
    readings: list[tuple[float, float, float]]

    @property
    def has_neighbours(self) -> bool:
        """Whether intervals beside this one are used to shape it, and this one to shape them."""
        return self.end_s - self.start_s <= _LONGEST_S and not math.isnan(self.constant)

    @property
    def power_w(self) -> float:
        """Mean power, for the neighbours; NaN if they do not use it."""
        return self.energy_j / (self.end_s - self.start_s) if self.has_neighbours else math.nan


class Shaped(NamedTuple):
    """Intervals with their shapes and errors.

    Attributes:
        rows: rows of ``PowerIntervals``, (n, 8).
        jump_at: position in the interval at which power increases by BEND, (n,).
        points: variance of C at the end of each interval, J^2, (n,).
    """

    rows: Array
    jump_at: Array
    points: Array


_NOTHING: Final = Shaped(np.empty((0, iv.WIDTH)), np.empty(0), np.empty(0))


class CountedIntervals:
    """Consecutive intervals between two readings of the counter, until ``take`` removes them.

    Args:
        window_s: time over which a power reading averages, s; infinite if there are none.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._period_s = math.inf
        self._variability = SignalVariability()
        self._waiting: list[_Counted] = []
        self._before_w: list[float] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def end_s(self) -> float:
        """End of the newest interval; minus infinity if there is none."""
        return self._waiting[-1].end_s if self._waiting else -math.inf

    def note_period(self, period_s: float) -> None:
        """Record the mean period of the training's steps from now on, s."""
        self._period_s = period_s

    def see(self, power_w: float) -> None:
        """Use the mean power between two readings of the counter to judge how much it varies."""
        self._variability.add(power_w)

    def add(
        self,
        start_s: float,
        end_s: float,
        energy_j: float,
        point: float,
        segment: Sequence[iv.Row] | None,
    ) -> None:
        """Add an interval that begins at ``end_s``, if there are intervals; call ``see`` first.

        Args:
            start_s: start of the interval.
            end_s: end of the interval.
            energy_j: rise of the counter.
            point: variance of C at the start and at the end, J^2.
            segment: intervals of the power readings in this interval; ``None`` if the power may be
                distributed in any way.
        """
        variability, width_s = self._variability, end_s - start_s
        is_any = segment is None or not variability.is_known
        constant = math.nan if is_any else variability.variance(0.0, *iv.MEAN)
        is_resolved = self._period_s >= _FEWEST_IN_PERIOD * width_s
        if segment is None or self._window_s >= width_s:
            segment = ()
        self._waiting.append(
            _Counted(
                start_s=start_s,
                end_s=end_s,
                energy_j=energy_j,
                point=point,
                local=variability.local,
                by_local=variability.variance(1.0, *iv.MEAN) - constant,
                constant=constant,
                smooth=variability.smooth if is_resolved else 0.0,
                readings=_instant(segment),
            )
        )

    def truncate(self, length: int) -> None:
        """Drop all intervals except the first ``length``."""
        del self._waiting[length:]

    def take(self, *, is_final: bool) -> Shaped:
        """Remove and return the intervals whose shape later intervals will not change.

        Args:
            is_final: whether no interval will follow directly; then all intervals are removed.
        """
        count = len(self._waiting)
        newest = () if is_final else self._waiting[: -_NEIGHBOURS - 1 : -1]
        for interval in newest:
            if not interval.has_neighbours:
                break
            count -= 1
        shaped = self._shaped(count)
        powers = self._before_w + [interval.power_w for interval in self._waiting[:count]]
        self._before_w = [] if is_final else powers[-_NEIGHBOURS:]
        del self._waiting[:count]
        return shaped

    def open(self) -> Shaped:
        """Return all intervals without removing them."""
        return self._shaped(len(self._waiting))

    def _shaped(self, count: int) -> Shaped:
        """Return the first ``count`` intervals."""
        if not count:
            return _NOTHING
        intervals = self._waiting[:count]
        unknown = [math.nan] * _NEIGHBOURS
        powers = [interval.power_w for interval in self._waiting[: count + _NEIGHBOURS]]
        power_w = np.array([*(unknown + self._before_w)[-_NEIGHBOURS:], *powers, *unknown])
        around_w = [power_w[first : first + count] for first in range(2 * _NEIGHBOURS + 1)]
        return _shaped(intervals, around_w)


def _instant(segment: Sequence[iv.Row]) -> list[tuple[float, float, float]]:
    """Return ``_Counted.readings``."""
    parts = []
    for row in segment:
        if row[iv.SEEN] > 0.0:
            mean_w, half_w = row[iv.AREA] / row[iv.SEEN], row[iv.BEND] / 2.0
            parts.append((mean_w - half_w, mean_w + half_w, row[iv.SEEN]))
    return parts


def _shaped(intervals: list[_Counted], around_w: list[Array]) -> Shaped:
    """Return intervals with their shapes and errors.

    Args:
        intervals: the n intervals.
        around_w: mean powers of the intervals two before, one before, at the same place, one after
            and two after, (n,) each; NaN if not known.
    """
    columns = np.array([interval[:8] for interval in intervals]).reshape(-1, 8).T
    start_s, end_s, energy_j, point, local, by_local, constant, smooth = columns
    width_s = end_s - start_s
    jump_w, jump_at, unexplained = _jumps(around_w, smooth)
    inside = by_local * np.fmin(unexplained, local) + constant
    is_any = np.isnan(constant)
    rows = np.zeros((len(intervals), iv.WIDTH))
    rows[:, iv.START], rows[:, iv.END], rows[:, iv.AREA] = start_s, end_s, energy_j
    rows[:, iv.SEEN], rows[:, iv.BEND] = width_s, jump_w
    # The mean of u * (1 - u) from 0 to 1 is 1/6, so the mean variance is width_s**2 * inside. If
    # the power may be distributed in any way, the error is at most the energy.
    rows[:, iv.INSIDE] = np.where(
        is_any, energy_j / math.sqrt(3.0), width_s * np.sqrt(6.0 * inside)
    )
    # NOISE is 0, because the energy of an interval is known. Therefore the time errors of the
    # readings, which ``CumulativeEnergy.set_bridge`` limits by NOISE, are a part of EDGE.
    unseen = np.where(is_any, 0.0, _unseen(intervals, around_w, energy_j / width_s, smooth))
    rows[:, iv.EDGE] = unseen * width_s**2 + point
    return Shaped(rows=rows, jump_at=jump_at, points=point)


def _jumps(around_w: list[Array], smooth: Array) -> tuple[Array, Array, Array]:
    """Return jumps of power, their positions, and the square of what no jump explains, W^2."""
    far_before_w, before_w, here_w, after_w, far_after_w = around_w
    against = _inconstant(far_before_w, before_w, here_w)
    against = against + _inconstant(here_w, after_w, far_after_w)
    is_between = (here_w - before_w) * (after_w - here_w) > 0.0
    rise = np.where(is_between, after_w - before_w, 1.0)
    share = np.where(is_between, smooth / (1.0 + _UNEQUAL * against / rise**2), 0.0)
    jump_at = np.where(is_between, (after_w - here_w) / rise, 0.0)
    beside = np.fmin((here_w - before_w) ** 2, (after_w - here_w) ** 2)
    by_jump = np.where(is_between, against, np.nan)
    return np.nan_to_num(share * rise), jump_at, np.fmin(beside, by_jump)


def _inconstant(left_w: Array, middle_w: Array, right_w: Array) -> Array:
    """Return the square by which the mean of an interval contradicts constant power in it, W^2."""
    left, right = middle_w - left_w, middle_w - right_w
    return np.where(left * right >= 0.0, 0.0, np.fmin(left**2, right**2))


def _unseen(
    intervals: list[_Counted], around_w: list[Array], power_w: Array, smooth: Array
) -> Array:
    """Return the variance of changes of power that repeat within an interval, W^2, (n,).

    Readings between the mean powers of the interval and of its neighbours are explained by a jump
    that is located.
    """
    parts = [(i, *part) for i, interval in enumerate(intervals) for part in interval.readings]
    unseen = (iv.UNSEEN * power_w) ** 2
    if parts:
        which: NDArray[np.intp] = np.array([part[0] for part in parts])
        start_w, end_w, seconds = np.array([part[1:] for part in parts]).T
        beside_w = (around_w[1], power_w, around_w[3])  # those of neighbours may all be NaN
        low_w, high_w = (
            (power_w + smooth * (extreme.reduce(beside_w) - power_w))[which]
            for extreme in (np.fmin, np.fmax)
        )
        squares = (_outside(start_w, low_w, high_w) ** 2 + _outside(end_w, low_w, high_w) ** 2) / 2
        total_s = np.bincount(which, seconds, len(intervals))
        is_read = total_s > 0.0
        mean = np.bincount(which, squares * seconds, len(intervals))[is_read] / total_s[is_read]
        unseen[is_read] = _UNSEEN_BY_INSTANT * mean
    return unseen


def _outside(value: Array, low: Array, high: Array) -> Array:
    """Return how far values are outside of a range."""
    return np.maximum(np.maximum(low - value, value - high), 0.0)

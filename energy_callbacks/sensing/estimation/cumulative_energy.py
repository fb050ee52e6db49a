"""Cumulative energy of one device as knots in time, and the energy between two moments.

Everything is a difference of one function C(t), so windows that touch add up exactly.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.records import Energy, Method
from energy_callbacks.sensing.estimation import power_intervals
from energy_callbacks.sensing.estimation.series import Array, BoundedColumns

T, ENERGY, WALK, LOOSE, UNSEEN, POINT, METHOD, BEND, EDGE, INSIDE = range(10)
WIDTH: Final = 10
# Those that run up from knot to knot.
_RUNNING: Final = slice(ENERGY, UNSEEN + 1)
# Where a row gets its columns from; UNSEEN is what SEEN leaves of the width, the rest is set.
_FROM: Final = (
    power_intervals.END,
    power_intervals.AREA,
    power_intervals.NOISE,
    power_intervals.NOISE,
    power_intervals.END,
    power_intervals.END,
    power_intervals.END,
    power_intervals.BEND,
    power_intervals.EDGE,
    power_intervals.INSIDE,
)
# Sums over days are off by this share of a window.
_ROUNDING: Final = 1e-9
# So many seconds are thinned out at a time.
_COMPACT_S: Final = 20.0
# The others run up over the whole attempt.
_TYPES: Final = dict.fromkeys((POINT, BEND, EDGE, INSIDE), np.float32) | {METHOD: np.int8}
METHODS: Final[tuple[Method, ...]] = (
    "counter+samples",
    "counter+power",
    "counter",
    "power",
    "model",
    "none",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """What lies between knots that follow each other, n intervals.

    Attributes:
        t_s: their ends, (n + 1,).
        energy_j: of each, (n,).
        noise_j2: variance of ``energy_j``, (n,).
        edge_j2: variance of the energy up to any moment inside, (n,).
        seen_s: seconds that were seen, (n,).
        method: the weakest of them.
        relative_error: bound of the systematic error, as a share.
    """

    t_s: Array
    energy_j: Array
    noise_j2: Array
    edge_j2: Array
    seen_s: Array
    method: Method
    relative_error: float


class CumulativeEnergy:
    """Knots of C(t), full resolution for the last ``keep_s`` seconds, then one a second.

    Columns of a row; those that end in * describe the interval that ends at the knot:

    ======  ==================================================================================
    T       time, s
    ENERGY  C(t), J
    WALK    variance of C that grows from knot to knot, J^2 (shape between samples)
    LOOSE   the part of it that no counter holds at both ends
    UNSEEN  seconds so far that no reading has seen
    POINT   variance of C(t) against the counter, J^2, without what is loose
    METHOD  * index into ``METHODS``
    BEND    * rise of power over the interval, W: C is a parabola there
    EDGE    * variance of C at any moment of the interval, J^2, forgotten further on
    INSIDE  * error scale of C inside the interval, J: variance INSIDE^2 x (1 - x)
    ======  ==================================================================================
    """

    def __init__(self, keep_s: float) -> None:
        self._columns = BoundedColumns(WIDTH, _TYPES)
        self._keep_s = keep_s
        self._pins: list[float] = []
        self._compacted_s = -np.inf

    def __len__(self) -> int:
        return len(self._columns)

    def time_of(self, index: int) -> float:
        """Time of one knot, counted from the front or (negative) from the back."""
        return self._columns.value(index, T)

    def append(self, rows: Array) -> None:
        """Add knots (n, 10) in time order."""
        self._columns.append(rows)

    def truncate(self, count: int) -> None:
        """Forget all knots but the first ``count``."""
        self._columns.truncate(count)

    def following(self, intervals: Array, factor: float, method: Method) -> Array:
        """Knots that carry on from the last one through ``intervals`` (n, 8) of ``shape``.

        The very first knot is put where the first interval begins; later a hole in front of the
        first interval stays unseen. All their variance is loose.
        """
        if not len(intervals):
            return np.empty((0, WIDTH))
        if len(self) and intervals[0, power_intervals.START] > self.time_of(-1):
            hole = [
                self.time_of(-1),
                intervals[0, power_intervals.START],
                0.0,
                0.0,
                0.0,
                0.0,
                0.0,
                0.0,
            ]
            intervals = np.concatenate([[hole], intervals])
        square = factor**2
        rows = intervals[:, _FROM]
        rows *= (1.0, factor, square, square, 1.0, 0.0, 0.0, factor, square, factor)
        rows[:, UNSEEN] -= intervals[:, power_intervals.START]
        rows[:, UNSEEN] -= intervals[:, power_intervals.SEEN]
        rows[:, METHOD] = METHODS.index(method)
        if not len(self):
            first = np.zeros((1, WIDTH))
            first[0, [T, METHOD]] = intervals[0, power_intervals.START], rows[0, METHOD]
            rows = np.concatenate([first, rows])
        running = rows[:, _RUNNING]
        running.cumsum(axis=0, out=running)
        if len(self):
            last = self._columns.row(len(self) - 1)
            running += last[_RUNNING]
            rows[:, POINT] = last[POINT]
        return rows

    def set_bridge(self, rows: Array, anchor_variance: float) -> None:
        """Rows between two anchors: a random walk that is held at both ends, nothing loose."""
        start = self._columns.column(WALK)[-1] if len(self) else 0.0
        rows[:, LOOSE] = self._columns.column(LOOSE)[-1] if len(self) else 0.0
        walked = rows[:, WALK] - start
        whole = max(float(walked[-1]), 1e-300)
        rows[:, POINT] = walked * (1.0 - walked / whole) + anchor_variance

    def pin(self, t_s: float) -> None:
        """Keep C at this moment exact permanently."""
        self._pins.append(t_s)

    def at(self, t_s: float) -> list[float]:
        """The row of any moment; outside the knots C is held.

        EDGE is all variance of C at that moment that is its own, in J^2.
        """
        after = min(int(self._columns.column(T).searchsorted(t_s)), len(self) - 1)
        right = self._columns.row(after)
        if not after or t_s >= right[T]:
            right[T] = t_s
            return right
        left = self._columns.row(after - 1)
        width_s = right[T] - left[T]
        share = (t_s - left[T]) / width_s
        found = [low + (high - low) * share for low, high in zip(left, right, strict=True)]
        bow = share * (1.0 - share)
        # Linear power inside the interval makes C a parabola through its two knots.
        found[ENERGY] -= right[BEND] * width_s * bow / 2.0
        found[POINT] = max(left[POINT], right[POINT])
        found[EDGE] = right[EDGE] + right[INSIDE] ** 2 * bow
        found[METHOD] = right[METHOD]
        found[T] = t_s
        return found

    def energy(
        self, start_s: float, end_s: float, relative_error: float, scale_error: float = 0.0
    ) -> Energy:
        """Energy from ``start_s`` to ``end_s``; coverage falls if the ends were not seen.

        ``scale_error`` is a random error, as a share, beside that of the knots.
        """
        if not len(self):
            return Energy(energy_j=None)
        start, end = self.at(start_s), self.at(end_s)
        energy_j, coverage = self._seen(start, end)
        if energy_j is None:
            return Energy(energy_j=None)
        walk, loose = end[WALK] - start[WALK], end[LOOSE] - start[LOOSE]
        held = min(max(walk - loose, 0.0), start[POINT] + end[POINT])
        variance = loose + held + start[EDGE] + end[EDGE]
        return Energy(
            energy_j=energy_j,
            stderr_j=math.hypot(math.sqrt(max(variance, 0.0)), scale_error * energy_j),
            systematic_j=relative_error * abs(energy_j),
            method=self._method(start_s, end_s),
            coverage=coverage,
        )

    def seen(self, start_s: float, end_s: float) -> tuple[float | None, float]:
        """Joules and coverage of ``energy``, without what is known of their quality."""
        return self._seen(self.at(start_s), self.at(end_s)) if len(self) else (None, 0.0)

    def _seen(self, start: list[float], end: list[float]) -> tuple[float | None, float]:
        start_s, end_s = start[T], end[T]
        first_s, last_s = self.time_of(0), self.time_of(-1)
        inside_s = min(max(end_s, first_s), last_s) - min(max(start_s, first_s), last_s)
        seen_s = inside_s - (end[UNSEEN] - start[UNSEEN])
        coverage = min(max(seen_s / (end_s - start_s), 0.0), 1.0)
        if coverage < _ROUNDING:
            return None, 0.0
        return end[ENERGY] - start[ENERGY], coverage if coverage < 1.0 - _ROUNDING else 1.0

    def intervals(self, start_s: float, end_s: float, relative_error: float) -> Intervals | None:
        """Those that end after ``start_s`` and by ``end_s``; ``None`` if there is none."""
        t_s = self._columns.column(T)
        low = max(int(t_s.searchsorted(start_s, side="right")), 1)
        high = int(t_s.searchsorted(end_s, side="right"))
        if high <= low:
            return None
        rows = self._columns.rows(low - 1, high)
        steps = np.diff(rows[:, [T, ENERGY, WALK, UNSEEN]], axis=0)
        return Intervals(
            t_s=rows[:, T],
            energy_j=steps[:, 1],
            noise_j2=steps[:, 2],
            edge_j2=rows[1:, EDGE],
            seen_s=np.maximum(steps[:, 0] - steps[:, 3], 0.0),
            method=METHODS[int(rows[1:, METHOD].max())],
            relative_error=relative_error,
        )

    def _method(self, start_s: float, end_s: float) -> Method:
        """The weakest method in the window."""
        t_s, methods = self._columns.column(T), self._columns.column(METHOD)
        low, high = t_s.searchsorted(start_s, side="right"), t_s.searchsorted(end_s)
        used = methods[low : high + 1]
        return METHODS[int(used.max() if len(used) else methods[-1])]

    def compact(self, committed: int) -> int:
        """Thin out what is older than ``keep_s``; returns how many rows were dropped.

        Only the first ``committed`` rows may be touched.
        """
        t_s = self._columns.column(T)
        if not committed:
            return 0
        horizon_s = t_s[committed - 1] - self._keep_s
        if horizon_s - max(self._compacted_s, t_s[0]) < _COMPACT_S:
            return 0
        # What was thinned before stays: a second pass would forget pins and errors.
        low, high = (int(i) for i in np.searchsorted(t_s, [self._compacted_s, horizon_s]))
        first = max(low - 1, 0)
        thin = self._thinned(self._columns.rows(first, high))
        self._columns.splice(first + 1, high, thin)
        self._compacted_s = float(horizon_s)
        return high - first - 1 - len(thin)

    def _thinned(self, rows: Array) -> Array:
        """What follows the first of these rows: one row a second, at knots, and one at each pin."""
        first, last = rows[0, T], rows[-1, T]
        seconds = np.floor(rows[1:, T])
        keep = rows[1:, T][np.diff(seconds, append=np.inf) != 0.0]
        times = np.union1d(keep, [pin for pin in self._pins if first < pin <= last])
        self._pins = [pin for pin in self._pins if pin > last]
        thin = np.array([self.at(float(t_s)) for t_s in times])
        ends = rows[1:, T]
        low = np.searchsorted(ends, np.concatenate([[first], times[:-1]]), side="right")
        high = np.searchsorted(ends, times, side="left")
        power = np.diff(rows[:, ENERGY]) / np.maximum(np.diff(rows[:, T]), 1e-12)
        range_w = _highest(power, low, high) + _highest(-power, low, high)
        spread_j = range_w * np.diff(times, prepend=first) / np.sqrt(12.0)
        thin[:, BEND] = 0.0
        thin[:, EDGE] = _highest(rows[1:, EDGE], low, high)
        thin[:, INSIDE] = np.hypot(spread_j, _highest(rows[1:, INSIDE], low, high))
        thin[:, METHOD] = _highest(rows[1:, METHOD], low, high)
        return thin


def _highest(values: Array, low: NDArray[np.intp], high: NDArray[np.intp]) -> Array:
    """The highest of ``values[low]`` to ``values[high]``, both included, for each pair."""
    bounds = np.column_stack([low, high + 1]).ravel()
    found: Array = np.maximum.reduceat(np.append(values, -np.inf), bounds)[::2]
    return found

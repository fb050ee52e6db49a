"""Stores the cumulative energy of one device, and computes the energy between two moments.

The cumulative energy C(t), in joules, is known at knots and interpolated between them. The
energy from t1 to t2 is C(t2) - C(t1), so the energies of adjacent time spans add up exactly.
"""

import math
from dataclasses import dataclass
from typing import Final, get_args

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.records import NORMAL_95, Energy, Method
from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.series import Array, BoundedColumns

T, ENERGY, WALK, LOOSE, UNSEEN, POINT, METHOD, BEND, JUMP, EDGE, INSIDE = range(11)
WIDTH: Final = 11
# The columns that accumulate from knot to knot: ENERGY, WALK, LOOSE and UNSEEN.
_RUNNING: Final = slice(ENERGY, UNSEEN + 1)
# Columns of a knot, and for each of them the column of ``PowerIntervals`` that it is computed from.
_COPIED: Final = (T, ENERGY, WALK, LOOSE, UNSEEN, BEND, EDGE, INSIDE)
_FROM: Final = (iv.END, iv.AREA, iv.NOISE, iv.NOISE, iv.END, iv.BEND, iv.EDGE, iv.INSIDE)
# Relative rounding error of sums over days. A coverage that differs from 0 or 1 by less than this
# counts as 0 or 1.
_ROUNDING: Final = 1e-9
# Minimum time span of the knots that are thinned at once, s.
_COMPACT_S: Final = 20.0
# Types of the columns whose values do not grow during the attempt; the other columns need float64.
_TYPES: Final = dict.fromkeys((POINT, BEND, JUMP, EDGE, INSIDE), np.float32) | {METHOD: np.int8}
# The most accurate method is the first.
METHODS: Final[tuple[Method, ...]] = get_args(Method)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """The n intervals between n + 1 consecutive knots.

    Attributes:
        t_s: times of the knots, (n + 1,).
        energy_j: energy of each interval, (n,).
        noise_j2: variance of ``energy_j``, (n,).
        edge_j2: additional variance of the cumulative energy at any moment inside the interval, not
            part of ``noise_j2``, (n,).
        seen_s: seconds of the interval that readings cover, (n,).
        is_counted: whether ``energy_j`` is from the counter alone, (n,).
        method: the least accurate of the methods by which the energies were computed.
        relative_error: bound of the systematic error of ``energy_j``, as a fraction of it.
    """

    t_s: Array
    energy_j: Array
    noise_j2: Array
    edge_j2: Array
    seen_s: Array
    is_counted: NDArray[np.bool_]
    method: Method
    relative_error: float


class CumulativeEnergy(BoundedColumns):
    """A table of knots of C(t).

    All knots of at least the last ``keep_s`` seconds are stored. Of the time before, one knot per
    second and the moments passed to ``pin`` are kept.

    An anchor is a reading of the energy counter from which C is computed. Each row of the table is
    one knot and has these columns; those marked * describe the interval that ends at the knot:

    ======  ==================================================================================
    T       time, s
    ENERGY  C(t), J
    WALK    variance of C due to unknown power between readings, J^2; grows from knot to knot
    LOOSE   the part of WALK from intervals that are not between two anchors, J^2
    UNSEEN  the part of the time since the first knot that no reading covers, s
    POINT   variance of C between two anchors, including the variance at the anchors, J^2
    METHOD  * index into ``METHODS``
    BEND    * increase of power from the start to the end of the interval, W
    JUMP    * position in the interval at which power increases by BEND, from 0 to 1; 0 if it
            increases evenly from the start to the end
    EDGE    * additional variance of C at each moment of the interval, J^2; does not accumulate
            from knot to knot
    INSIDE  * additional error of C inside the interval, J: the variance at position u (0 at the
            start, 1 at the end) is INSIDE^2 * u * (1 - u)
    ======  ==================================================================================

    Args:
        keep_s: length of the time before the newest final knot in which all knots are kept, s.
    """

    def __init__(self, keep_s: float) -> None:
        super().__init__(WIDTH, _TYPES)
        self._keep_s = keep_s
        self._pins: list[float] = []
        self._compacted_s = -np.inf

    def time_of(self, index: int) -> float:
        """Return the time of the knot with this index; -1 is the newest knot."""
        return float(self.column(T)[index])

    def width_at(self, t_s: float) -> float:
        """Return the width of the interval that contains ``t_s``; 0 outside of the curve."""
        times = self.column(T)
        after = int(times.searchsorted(t_s))
        return float(times[after] - times[after - 1]) if 0 < after < len(times) else 0.0

    def following(self, intervals: Array, factor: float, method: Method) -> Array:
        """Return the knots that extend the curve by ``intervals``.

        If there are no knots yet, the first new knot is at the start of the first interval. A gap
        between the last knot and the first interval becomes an interval without energy that no
        reading covers. NOISE (a column of ``PowerIntervals``) is added to WALK and LOOSE. For
        intervals between two anchors, ``set_bridge`` then corrects LOOSE.

        Args:
            intervals: rows of ``PowerIntervals``, (n, 8).
            factor: factor by which the energy of the intervals is multiplied.
            method: method by which the energy was computed.

        Returns:
            The rows to append, (m, 11).
        """
        if not len(intervals):
            return np.empty((0, WIDTH))
        if len(self) and intervals[0, iv.START] > self.time_of(-1):
            gap = np.zeros(iv.WIDTH)
            gap[[iv.START, iv.END]] = self.time_of(-1), intervals[0, iv.START]
            intervals = np.concatenate([[gap], intervals])
        square = factor**2
        scale = (1.0, factor, square, square, 1.0, factor, square, factor)
        rows = np.zeros((len(intervals), WIDTH))
        rows[:, _COPIED] = intervals[:, _FROM] * scale
        rows[:, UNSEEN] -= intervals[:, iv.START]
        rows[:, UNSEEN] -= intervals[:, iv.SEEN]
        rows[:, METHOD] = METHODS.index(method)
        if not len(self):
            first = np.zeros((1, WIDTH))
            first[0, [T, METHOD]] = intervals[0, iv.START], rows[0, METHOD]
            rows = np.concatenate([first, rows])
        running = rows[:, _RUNNING]
        running.cumsum(axis=0, out=running)
        if len(self):
            last = self.row(len(self) - 1)
            running += last[_RUNNING]
            rows[:, POINT] = last[POINT]
        return rows

    def set_bridge(self, rows: Array, anchor_variance: float | Array) -> None:
        """Set LOOSE and POINT of new knots between two anchors.

        Between anchors the error of C is that of a random walk with fixed ends, and LOOSE does not
        grow.

        Args:
            rows: knots after the first anchor up to the second anchor, inclusive, before they are
                appended; changed in place.
            anchor_variance: variance of C at the anchors, J^2; one number, or one for each of the
                last rows, if every row is an anchor.
        """
        start = self.column(WALK)[-1] if len(self) else 0.0
        rows[:, LOOSE] = self.column(LOOSE)[-1] if len(self) else 0.0
        walked = rows[:, WALK] - start
        total = max(float(walked[-1]), 1e-300)
        at_anchors = np.atleast_1d(anchor_variance)
        rows[:, POINT] = walked * (1.0 - walked / total)
        rows[: -len(at_anchors), POINT] += at_anchors[0]
        rows[-len(at_anchors) :, POINT] += at_anchors

    def pin(self, t_s: float) -> None:
        """Keep a knot at this moment when knots are thinned."""
        self._pins.append(t_s)

    def at(self, t_s: float) -> list[float]:
        """Return the row interpolated at ``t_s``.

        Before the first knot and after the last knot, C is constant. EDGE of the returned row
        includes the variance that INSIDE describes. BEND, JUMP and INSIDE are those of the interval
        around ``t_s``.
        """
        after = min(int(self.column(T).searchsorted(t_s)), len(self) - 1)
        right = self.row(after)
        if not after or t_s >= right[T]:
            right[T] = t_s
            return right
        left = [column.item(after - 1) for column in self._table[: POINT + 1]]
        width_s = right[T] - left[T]
        share = (t_s - left[T]) / width_s
        row = right.copy()
        for index in range(ENERGY, UNSEEN + 1):
            low = left[index]
            row[index] = low + (right[index] - low) * share
        bow = share * (1.0 - share)
        jump_at = right[JUMP]
        # C is a parabola through the two knots if power is linear, and two lines if it jumps.
        bent = min(share * (1.0 - jump_at), jump_at * (1.0 - share)) if jump_at else bow / 2.0
        row[ENERGY] -= right[BEND] * width_s * bent
        row[POINT] = max(left[POINT], right[POINT])
        row[EDGE] = right[EDGE] + right[INSIDE] ** 2 * bow
        row[T] = t_s
        return row

    def energy(
        self, start_s: float, end_s: float, relative_error: float, scale_error: float = 0.0
    ) -> Energy:
        """Return the energy from ``start_s`` to ``end_s``, with its errors.

        Energy before the first knot and after the last is not included. ``coverage`` is below 1 if
        the time span begins before the first knot, ends after the last, or contains gaps.

        Args:
            start_s: start of the time span, monotonic time.
            end_s: end of the time span, after ``start_s``.
            relative_error: bound of the systematic error, as a fraction of the energy.
            scale_error: additional standard error, as a fraction of the energy.
        """
        if not len(self):
            return Energy(energy_j=None)
        start, end = self.at(start_s), self.at(end_s)
        energy_j, coverage = self._seen(start, end)
        if energy_j is None:
            return Energy(energy_j=None)
        walk, loose = end[WALK] - start[WALK], end[LOOSE] - start[LOOSE]
        held = min(max(walk - loose, 0.0), start[POINT] + end[POINT])
        random_j2, edge_j2 = loose + held, start[EDGE] + end[EDGE]
        return Energy(
            energy_j=energy_j,
            stderr_j=math.hypot(math.sqrt(max(random_j2, 0.0)), scale_error * energy_j),
            edge_j=NORMAL_95 * math.sqrt(max(edge_j2, 0.0)),
            systematic_j=relative_error * abs(energy_j),
            method=self._method(start_s, end_s),
            coverage=coverage,
        )

    def seen(self, start_s: float, end_s: float) -> tuple[float | None, float]:
        """Return ``energy_j`` and ``coverage`` as ``energy`` does, without computing errors."""
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
        """Return the intervals that end in (``start_s``, ``end_s``]; ``None`` if there are none."""
        t_s = self.column(T)
        low = max(int(t_s.searchsorted(start_s, side="right")), 1)
        high = int(t_s.searchsorted(end_s, side="right"))
        if high <= low:
            return None
        width_s, energy_j, noise_j2, unseen_s = (
            self.column(index)[low:high] - self.column(index)[low - 1 : high - 1]
            for index in (T, ENERGY, WALK, UNSEEN)
        )
        methods = self.column(METHOD)[low:high]
        return Intervals(
            t_s=t_s[low - 1 : high].copy(),
            energy_j=energy_j,
            noise_j2=noise_j2,
            edge_j2=self.column(EDGE)[low:high].astype(np.float64),
            seen_s=np.maximum(width_s - unseen_s, 0.0),
            is_counted=methods == METHODS.index("counter"),
            method=METHODS[int(methods.max())],
            relative_error=relative_error,
        )

    def _method(self, start_s: float, end_s: float) -> Method:
        """Return the least accurate method of all intervals between two moments."""
        t_s, methods = self.column(T), self.column(METHOD)
        low, high = t_s.searchsorted(start_s, side="right"), t_s.searchsorted(end_s)
        used = methods[low : high + 1]
        return METHODS[int(used.max() if len(used) else methods[-1])]

    def compact(self, committed: int) -> int:
        """Thin old knots if there are enough of them, and return the number of dropped rows.

        Knots are old if they are more than ``keep_s`` before the newest final knot.

        Args:
            committed: number of rows that are final; later rows are not changed.
        """
        t_s = self.column(T)
        if not committed:
            return 0
        horizon_s = t_s[committed - 1] - self._keep_s
        if horizon_s - max(self._compacted_s, t_s[0]) < _COMPACT_S:
            return 0
        # Thinned rows are not thinned again, because that would lose pins and errors.
        low, high = (int(i) for i in np.searchsorted(t_s, [self._compacted_s, horizon_s]))
        first = max(low - 1, 0)
        if high - first < 2:  # after a long pause of the readings there is nothing to thin
            return 0
        thin = self._thinned(self.rows(first, high))
        self.splice(first + 1, high, thin)
        self._compacted_s = float(horizon_s)
        return high - first - 1 - len(thin)

    def _thinned(self, rows: Array) -> Array:
        """Return the rows that replace all rows after the first one.

        These are the last knot of each second, and the row interpolated at each pinned moment.
        """
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
        thin[:, [BEND, JUMP]] = 0.0
        thin[:, EDGE] = _highest(rows[1:, EDGE], low, high)
        thin[:, INSIDE] = np.hypot(spread_j, _highest(rows[1:, INSIDE], low, high))
        thin[:, METHOD] = _highest(rows[1:, METHOD], low, high)
        return thin


def _highest(values: Array, low: NDArray[np.intp], high: NDArray[np.intp]) -> Array:
    """Return, for each pair of ``low`` and ``high``, the maximum of ``values[low : high + 1]``."""
    bounds = np.column_stack([low, high + 1]).ravel()
    return np.maximum.reduceat(np.append(values, -np.inf), bounds)[::2]

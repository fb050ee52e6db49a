"""Bounded columns of numbers, and the time series of one gauge or counter."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class BoundedColumns:
    """Rows of floats in time order, appended at the end and dropped at the front.

    The first column is time. Storage grows by little and is used again, so that appending costs
    O(1) a row and little lies idle; each column lies in one piece, because a search or a maximum
    goes down one column of a long run.

    Args:
        width: how many columns.
        types: of those that need less than 16 digits, by their place.
    """

    __slots__ = ("_length", "_table")

    def __init__(self, width: int, types: Mapping[int, type[Any]] | None = None) -> None:
        types = types or {}
        self._table: list[NDArray[Any]] = [
            np.empty(64, types.get(index, np.float64)) for index in range(width)
        ]
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def truncate(self, length: int) -> None:
        """Forget all rows but the first ``length``."""
        self._length = min(length, self._length)

    def rows(self, first: int = 0, last: int | None = None) -> Array:
        """Rows from ``first`` to before ``last``, as a copy: (n, width)."""
        return np.column_stack([column[: self._length][first:last] for column in self._table])

    def row(self, index: int) -> list[float]:
        """One row, counted from the front."""
        return [column.item(index) for column in self._table]

    def value(self, row: int, column: int) -> float:
        """One value; the row counted from the front or (negative) from the back."""
        return float(self._table[column].item(row if row >= 0 else self._length + row))

    def column(self, index: int) -> Array:
        """One column, as a view: (n,)."""
        return self._table[index][: self._length]

    def append(self, rows: Array) -> None:
        """Add rows (m, width) at the end."""
        if not len(rows):
            return
        needed = self._length + len(rows)
        self._reserve(needed)
        for index, column in enumerate(self._table):
            column[self._length : needed] = rows[:, index]
        self._length = needed

    def _reserve(self, needed: int) -> None:
        for index, column in enumerate(self._table):
            if needed > len(column):
                grown = np.empty(needed + needed // 64 + 64, column.dtype)
                grown[: self._length] = column[: self._length]
                self._table[index] = grown

    def splice(self, first: int, last: int, rows: Array) -> None:
        """Put rows (m, width) in the place of those from ``first`` to before ``last``.

        What lies before them is not touched: a day of knots is not copied each minute.
        """
        moved, tail = first + len(rows), self._length - last
        self._reserve(moved + tail)
        for index, column in enumerate(self._table):
            column[moved : moved + tail] = column[last : last + tail]
            column[first:moved] = rows[:, index]
        self._length = moved + tail


class TimeSeries:
    """Readings of one channel, the last ``keep_s`` seconds of them.

    Readings that do not lie after the one before are dropped and counted in ``out_of_order``.

    Attributes:
        t_s: times, strictly rising.
        values: at these times.
    """

    __slots__ = ("_keep_s", "out_of_order", "t_s", "values")

    def __init__(self, keep_s: float) -> None:
        # Rows come and are asked for one by one, which takes numpy ten times as long.
        self.t_s, self.values = array("d"), array("d")
        self._keep_s = keep_s
        self.out_of_order = 0

    def append(self, t_s: float, value: float) -> None:
        """Add one reading."""
        if self.t_s and t_s <= self.t_s[-1]:
            self.out_of_order += 1
            return
        self.t_s.append(t_s)
        self.values.append(value)
        if t_s - self.t_s[0] > 1.5 * self._keep_s:
            old = bisect_left(self.t_s, t_s - self._keep_s)
            del self.t_s[:old], self.values[:old]

    def between(self, start_s: float, end_s: float) -> "array[float]":
        """Values with ``start_s < t_s <= end_s``, as a copy."""
        return self.values[bisect_right(self.t_s, start_s) : bisect_right(self.t_s, end_s)]

    def readings(self, start_s: float, end_s: float) -> "tuple[array[float], array[float]]":
        """Times and values with ``start_s < t_s <= end_s``, as copies."""
        inside = slice(bisect_right(self.t_s, start_s), bisect_right(self.t_s, end_s))
        return self.t_s[inside], self.values[inside]

    def rate(self, start_s: float, end_s: float) -> float | None:
        """Rise a second of a counter over a span, or a little more: from reading to reading.

        ``None`` before the second reading.
        """
        last = bisect_right(self.t_s, end_s) - 1
        if last < 1:
            return None
        first = min(max(bisect_right(self.t_s, start_s) - 1, 0), last - 1)
        rise = self.values[last] - self.values[first]
        return rise / (self.t_s[last] - self.t_s[first])

    def latest(self, after_s: float = -np.inf) -> float | None:
        """The newest value, ``None`` if there is none after ``after_s``."""
        return self.values[-1] if self.t_s and self.t_s[-1] > after_s else None

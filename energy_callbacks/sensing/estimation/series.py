"""Stores growing columns of numbers, and the recent readings of one gauge or counter."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class BoundedColumns:
    """A table of numbers whose rows are in time order; the first column is time.

    The storage of dropped rows is reused. Each column is contiguous in memory, because searches and
    maxima read long parts of a single column.

    Args:
        width: number of columns.
        types: dtypes of the columns that need fewer than 16 digits, by column index; the others
            are float64.
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
        """Drop all rows except the first ``length``."""
        self._length = min(length, self._length)

    def rows(self, first: int = 0, last: int | None = None) -> Array:
        """Return a copy of the rows from ``first`` to before ``last``, (n, width)."""
        return np.column_stack([column[: self._length][first:last] for column in self._table])

    def row(self, index: int) -> list[float]:
        """Return the row with this index as Python numbers."""
        return [column.item(index) for column in self._table]

    def column(self, index: int) -> Array:
        """Return a view of one column, (n,)."""
        return self._table[index][: self._length]

    def append(self, rows: Array) -> None:
        """Add rows at the end, (m, width)."""
        if len(rows):
            self.splice(self._length, self._length, rows)

    def splice(self, first: int, last: int, rows: Array) -> None:
        """Replace the rows from ``first`` to before ``last`` by ``rows``, of shape (m, width).

        Rows before ``first`` are not copied, because there may be very many.
        """
        moved, tail = first + len(rows), self._length - last
        self._reserve(moved + tail)
        for index, column in enumerate(self._table):
            column[moved : moved + tail] = column[last : last + tail]
            column[first:moved] = rows[:, index]
        self._length = moved + tail

    def _reserve(self, needed: int) -> None:
        for index, column in enumerate(self._table):
            if needed > len(column):
                # Smaller steps leave more freed blocks that are too small to be used again: with
                # 1/64, eight GPUs need 3 MiB more after 40 minutes (benchmark longrun).
                grown = np.empty(needed + needed // 12 + 64, column.dtype)
                grown[: self._length] = column[: self._length]
                self._table[index] = grown


class TimeSeries:
    """The readings of one channel over at least the last ``keep_s`` seconds.

    Readings that are not later than the previous one are dropped.

    Attributes:
        t_s: times, strictly increasing.
        values: values at these times.
    """

    __slots__ = ("_keep_s", "t_s", "values")

    def __init__(self, keep_s: float) -> None:
        # Appending and querying single readings takes ten times as long with numpy arrays.
        self.t_s, self.values = array("d"), array("d")
        self._keep_s = keep_s

    def append(self, t_s: float, value: float) -> None:
        """Add one reading."""
        if self.t_s and t_s <= self.t_s[-1]:
            return
        self.t_s.append(t_s)
        self.values.append(value)
        if t_s - self.t_s[0] > 1.5 * self._keep_s:
            old = bisect_left(self.t_s, t_s - self._keep_s)
            del self.t_s[:old], self.values[:old]

    def readings(self, start_s: float, end_s: float) -> "tuple[array[float], array[float]]":
        """Return copies of times and values with ``start_s < t_s <= end_s``."""
        inside = slice(bisect_right(self.t_s, start_s), bisect_right(self.t_s, end_s))
        return self.t_s[inside], self.values[inside]

    def rate(self, start_s: float, end_s: float) -> float | None:
        """Return the mean increase per second of a counter over a time span.

        The increase is measured from the last reading at or before ``start_s`` (the first stored
        reading if there is none) to the last reading at or before ``end_s``. If both are the same
        reading, the increase is measured from the previous reading.
        ``None`` if there are fewer than two readings up to ``end_s``.
        """
        last = bisect_right(self.t_s, end_s) - 1
        if last < 1:
            return None
        first = min(max(bisect_right(self.t_s, start_s) - 1, 0), last - 1)
        rise = self.values[last] - self.values[first]
        return rise / (self.t_s[last] - self.t_s[first])

    def latest(self, after_s: float = -np.inf) -> float | None:
        """Return the newest value; ``None`` if there is none later than ``after_s``."""
        return self.values[-1] if self.t_s and self.t_s[-1] > after_s else None

"""A bounded time series of one gauge or counter."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Columns:
    """Rows of floats in time order, appended at the end and dropped at the front.

    The first column is time. Storage grows by doubling, so that appending costs O(1) a row.
    """

    __slots__ = ("_length", "_table")

    def __init__(self, width: int) -> None:
        self._table: Array = np.empty((64, width))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def truncate(self, length: int) -> None:
        """Forget all rows but the first ``length``."""
        self._length = min(length, self._length)

    @property
    def rows(self) -> Array:
        """All rows, as a view: (n, width)."""
        return self._table[: self._length]

    def column(self, index: int) -> Array:
        """One column, as a view: (n,)."""
        return self._table[: self._length, index]

    def append(self, rows: Array) -> None:
        """Add rows (m, width) at the end."""
        needed = self._length + len(rows)
        if needed > len(self._table):
            grown = np.empty((max(needed, 2 * len(self._table)), self._table.shape[1]))
            grown[: self._length] = self.rows
            self._table = grown
        self._table[self._length : needed] = rows
        self._length = needed

    def replace(self, rows: Array) -> None:
        """Keep these rows (m, width) instead, in storage that fits them."""
        self._table = rows.copy() if len(rows) else np.empty((64, self._table.shape[1]))
        self._length = len(rows)


class Series:
    """Readings of one channel, the last ``keep_s`` seconds of them.

    Readings that do not lie after the one before are dropped and counted in ``out_of_order``.
    """

    __slots__ = ("_columns", "_keep_s", "out_of_order")

    def __init__(self, keep_s: float) -> None:
        self._columns = Columns(2)
        self._keep_s = keep_s
        self.out_of_order = 0

    @property
    def t_s(self) -> Array:
        """Times, (n,), strictly rising."""
        return self._columns.column(0)

    @property
    def values(self) -> Array:
        """Values, (n,)."""
        return self._columns.column(1)

    def append(self, t_s: float, value: float) -> None:
        """Add one reading."""
        if len(self._columns) and t_s <= self.t_s[-1]:
            self.out_of_order += 1
            return
        self._columns.append(np.array([[t_s, value]]))
        if t_s - self.t_s[0] > 1.5 * self._keep_s:
            kept = self._columns.rows[self.t_s >= t_s - self._keep_s]
            self._columns.replace(kept)

    def between(self, start_s: float, end_s: float) -> Array:
        """Values with ``start_s < t_s <= end_s``, (m,)."""
        low, high = np.searchsorted(self.t_s, [start_s, end_s], side="right")
        return self.values[low:high]

    def latest(self, after_s: float = -np.inf) -> float | None:
        """The newest value, ``None`` where there is none after ``after_s``."""
        is_there = len(self._columns) and self.t_s[-1] > after_s
        return float(self.values[-1]) if is_there else None

"""Converts the ``series`` lines of a journal to one table of numbers for each device."""

import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.accounting.journal import journal

Array = NDArray[np.float64]
Row = Sequence[float | None]
# Maximum number of values in a row; a longer row is damaged. Rows have 15 values in version 2.
_MOST_VALUES = 1000


class DeviceColumns:
    """The table of one device: a row per ``series`` line, a column per quantity.

    Unknown values are NaN.

    Args:
        names: names of the columns; the first is ``t_s``.
        table: (n, columns), rows in time order; ``None`` if there are no rows.
    """

    def __init__(
        self, names: Sequence[str] = ("t_s", *journal.COLUMNS), table: Array | None = None
    ) -> None:
        self._names = tuple(names)
        self._table = np.empty((0, len(self._names))) if table is None else table

    def __getitem__(self, name: str) -> Array:
        """Return the column ``name``, (n,); all values are NaN if there is no such column."""
        if name not in self._names:
            return np.full(len(self._table), np.nan)
        column: Array = self._table[:, self._names.index(name)]
        return column

    @property
    def seen_s(self) -> Array:
        """For each row, the time up to which ``energy_j`` is known, in seconds, (n,).

        If the journal has no ``seen_s`` for a row, the time of the row is returned.
        """
        seen_s = self["seen_s"]
        return np.where(np.isnan(seen_s), self["t_s"], seen_s)

    def moved(self, by_s: float, by_j: float) -> "DeviceColumns":
        """Return a copy with ``by_s`` added to times and ``by_j`` added to cumulative energies."""
        table = self._table.copy()
        for name, by in (("t_s", by_s), ("seen_s", by_s), ("energy_j", by_j)):
            if name in self._names:
                table[:, self._names.index(name)] += by
        return DeviceColumns(self._names, table)

    def until(self, t_s: float) -> "DeviceColumns":
        """Return the rows up to a moment."""
        return DeviceColumns(self._names, self._table[self["t_s"] <= t_s])

    @classmethod
    def chained(cls, parts: Sequence["DeviceColumns"]) -> "DeviceColumns":
        """Return the rows of all parts in order, in one table with the columns of the last part."""
        names = parts[-1]._names  # noqa: SLF001 - of the same class
        tables = [np.column_stack([one[name] for name in names]) for one in parts]
        return cls(names, np.concatenate(tables))

    @property
    def memory_bytes(self) -> Array:
        """For each row, the first known of used, resident and allocated memory, in bytes, (n,)."""
        used, resident = self["memory_used_bytes"], self["rss_bytes"]
        other = np.where(np.isnan(resident), self["allocated_bytes"], resident)
        return np.where(np.isnan(used), other, used)


class RowLog:
    """Collects the values of a journal's ``series`` lines in arrays of numbers.

    A machine with eight GPUs produces over a million rows a day. A value takes 8 bytes in an array;
    in a list it would take 32 bytes.
    """

    def __init__(self) -> None:
        # Index of each device, by device key.
        self._places: dict[str, int] = {}
        # The first three arrays have an element for each row: its time, the index of its device,
        # and the number of its values. ``_values`` has the values of all rows, one after the other.
        self._t_s = array("d")
        self._devices = array("I")
        self._lengths = array("I")
        self._values = array("d")

    def add(self, t_s: float, rows: Mapping[str, Row]) -> None:
        """Add the rows of one ``series`` line.

        Args:
            t_s: time of the line, in seconds since the attempt began.
            rows: values of each device, by device key; ``None`` for an unknown value. Values that
                are missing at the end of a row are unknown too.

        Raises:
            TypeError: for a value that is neither a number nor a text, such as a list.
            ValueError: for a text that is not a number, or for a row with too many values.
            OverflowError: for a whole number that is too large for a ``float``.
        """
        t_s, known = float(t_s), len(self._values)
        if any(len(row) > _MOST_VALUES for row in rows.values()):
            raise ValueError(f"a row has more than {_MOST_VALUES} values")
        try:
            self._values.extend(chain.from_iterable(rows.values()))  # type: ignore[arg-type]
        except (OverflowError, TypeError):  # a value is None, or invalid
            del self._values[known:]
            self._values.extend([_number(value) for row in rows.values() for value in row])
        self._lengths.extend(map(len, rows.values()))
        self._devices.extend([self._places.setdefault(key, len(self._places)) for key in rows])
        self._t_s.extend(repeat(t_s, len(rows)))

    def columns(self, names: Sequence[str]) -> dict[str, DeviceColumns]:
        """Return the table of each device, by device key.

        Args:
            names: names of the values in a row, in the order of the values.
        """
        t_s, values = np.asarray(self._t_s), np.array(self._values)
        values[np.isinf(values)] = np.nan  # JSON has no infinity, but 1e999 is read as infinity
        devices, lengths = np.asarray(self._devices), np.asarray(self._lengths)
        owners = np.repeat(devices, lengths)
        columns = {}
        for key, place in self._places.items():
            rows = devices == place
            table = _table(t_s[rows], lengths[rows], values[owners == place], len(names))
            columns[key] = DeviceColumns(("t_s", *names), table)
        return columns


def _table(t_s: Array, lengths: NDArray[np.uint32], values: Array, width: int) -> Array:
    """Return the time and ``width`` values of each row, (n, 1 + width); missing values are NaN.

    Args:
        t_s: (n,), times.
        lengths: (n,), number of values of each row.
        values: values of all rows, one row after the other.
        width: number of values to return for each row; further values of a row are dropped.
    """
    widest = max(width, int(lengths.max(initial=0)))
    table = np.full((len(t_s), 1 + widest), np.nan)
    table[:, 0] = t_s
    table[:, 1:][np.arange(widest) < lengths[:, np.newaxis]] = values
    return table[:, : 1 + width]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)

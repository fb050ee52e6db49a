"""Stores the series rows of a journal as columns: one table of numbers for each device."""

import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.accounting.journal import journal

Array = NDArray[np.float64]
Row = Sequence[float | None]


class DeviceColumns:
    """The rows of one device; unknown values are NaN.

    Args:
        names: names of the columns, time first.
        table: (n, columns), in time order; ``None`` if there are no rows.
    """

    def __init__(
        self, names: Sequence[str] = ("t_s", *journal.COLUMNS), table: Array | None = None
    ) -> None:
        self._names = tuple(names)
        self._table = np.empty((0, len(self._names))) if table is None else table

    def __getitem__(self, name: str) -> Array:
        """Return a column by name, (n,); NaN if there is no such column."""
        if name not in self._names:
            return np.full(len(self._table), np.nan)
        column: Array = self._table[:, self._names.index(name)]
        return column

    @property
    def seen_s(self) -> Array:
        """Time up to which the energy of each row is known, (n,)."""
        seen_s = self["seen_s"]
        return np.where(np.isnan(seen_s), self["t_s"], seen_s)

    def moved(self, by_s: float, by_j: float) -> "DeviceColumns":
        """Return a copy with ``by_s`` added to times and ``by_j`` to cumulative energies."""
        table = self._table.copy()
        for name, by in (("t_s", by_s), ("seen_s", by_s), ("energy_j", by_j)):
            if name in self._names:
                table[:, self._names.index(name)] += by
        return DeviceColumns(self._names, table)

    @classmethod
    def chained(cls, parts: Sequence["DeviceColumns"]) -> "DeviceColumns":
        """Return the rows of all parts in order, with the column names of the last part."""
        names = parts[-1]._names  # noqa: SLF001 - of the same class
        tables = [np.column_stack([one[name] for name in names]) for one in parts]
        return cls(names, np.concatenate(tables))

    @property
    def memory_bytes(self) -> Array:
        """Used memory; if unknown, resident memory; if that is unknown, allocated memory; (n,)."""
        used, resident = self["memory_used_bytes"], self["rss_bytes"]
        other = np.where(np.isnan(resident), self["allocated_bytes"], resident)
        return np.where(np.isnan(used), other, used)


class RowLog:
    """Collects series lines as plain numbers.

    Eight GPUs produce over a million rows a day. A number in an array takes 8 bytes; a number in a
    record would take a hundred times as much.
    """

    def __init__(self) -> None:
        # Indices of devices, by device key.
        self._places: dict[str, int] = {}
        # Of each row: time, index of its device, number of its values. Then the values of all rows.
        self._t_s = array("d")
        self._devices = array("I")
        self._lengths = array("I")
        self._values = array("d")

    def add(self, t_s: float, rows: Mapping[str, Row]) -> None:
        """Add one line; values that are missing at the end of a row count as unknown.

        Raises:
            TypeError: for a value that is neither a number nor a text, such as a list.
            ValueError: for a text that is not a number.
        """
        t_s, known = float(t_s), len(self._values)
        try:
            self._values.extend(chain.from_iterable(rows.values()))  # type: ignore[arg-type]
        except TypeError:  # a value is null
            del self._values[known:]
            self._values.extend([_number(value) for row in rows.values() for value in row])
        self._lengths.extend(map(len, rows.values()))
        self._devices.extend([self._places.setdefault(key, len(self._places)) for key in rows])
        self._t_s.extend(repeat(t_s, len(rows)))

    def columns(self, names: Sequence[str]) -> dict[str, DeviceColumns]:
        """Return the rows of each device, by device key.

        Args:
            names: names of the values of a row, in order.
        """
        t_s, values = np.asarray(self._t_s), np.asarray(self._values)
        devices, lengths = np.asarray(self._devices), np.asarray(self._lengths)
        owners = np.repeat(devices, lengths)
        columns = {}
        for key, place in self._places.items():
            rows = devices == place
            table = _table(t_s[rows], lengths[rows], values[owners == place], len(names))
            columns[key] = DeviceColumns(("t_s", *names), table)
        return columns


def _table(t_s: Array, lengths: NDArray[np.uint32], values: Array, width: int) -> Array:
    """Return time and ``width`` values of each row, (n, 1 + width).

    Args:
        t_s: (n,), times.
        lengths: (n,), number of values of each row.
        values: values of all rows.
        width: number of columns of values; more values than these are dropped.
    """
    widest = max(width, int(lengths.max(initial=0)))
    table = np.full((len(t_s), 1 + widest), np.nan)
    table[:, 0] = t_s
    table[:, 1:][np.arange(widest) < lengths[:, np.newaxis]] = values
    return table[:, : 1 + width]


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)

"""The series rows of a journal as plain columns, one table of numbers for each device."""

import math
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.accounting.journal import journal

Array = NDArray[np.float64]
Row = Sequence[float | None]

_MEMORY_NAMES = ("memory_used_bytes", "rss_bytes", "allocated_bytes")


class DeviceColumns:
    """The rows of one device; NaN if a row does not say.

    Args:
        names: of the columns, time first.
        table: (n, columns), in time order.
    """

    def __init__(
        self, names: Sequence[str] = ("t_s", *journal.COLUMNS), table: Array | None = None
    ) -> None:
        self._names = tuple(names)
        self._table = np.empty((0, len(self._names))) if table is None else table

    def __getitem__(self, name: str) -> Array:
        """One column by its name, (n,)."""
        if name not in self._names:
            return np.full(len(self._table), np.nan)
        found: Array = self._table[:, self._names.index(name)]
        return found

    @property
    def seen_s(self) -> Array:
        """The moment up to which the energy of each row is, (n,)."""
        seen_s = self["seen_s"]
        return np.where(np.isnan(seen_s), self["t_s"], seen_s)

    def moved(self, by_s: float, by_j: float) -> "DeviceColumns":
        """The same on a time axis that began earlier, after an amount of energy."""
        table = self._table.copy()
        for name, by in (("t_s", by_s), ("seen_s", by_s), ("energy_j", by_j)):
            if name in self._names:
                table[:, self._names.index(name)] += by
        return DeviceColumns(self._names, table)

    @classmethod
    def chained(cls, parts: Sequence["DeviceColumns"]) -> "DeviceColumns":
        """Rows that follow each other, with the names of the last."""
        if len(parts) == 1:
            return parts[0]
        names = parts[-1]._names  # noqa: SLF001 - of its own kind
        tables = [np.column_stack([one[name] for name in names]) for one in parts]
        return cls(names, np.concatenate(tables))

    @property
    def memory_bytes(self) -> Array:
        """In use on the card, else resident, else allocated, (n,)."""
        used, resident, allocated = (self[name] for name in _MEMORY_NAMES)
        return np.where(np.isnan(used), np.where(np.isnan(resident), allocated, resident), used)


class RowLog:
    """Takes in series lines and keeps nothing but numbers.

    A day of eight GPUs is over a million rows: numbers in arrays take 8 bytes each, records
    would take a hundred times that. Lines of the same devices share their arrays, so that a line
    costs a few calls, however many devices it has.
    """

    def __init__(self) -> None:
        self._lines: dict[tuple[str, ...], _Lines] = {}

    def add(self, t_s: float, rows: Mapping[str, Row]) -> None:
        """Take in one line; the values that a row lacks at its end are unknown.

        Raises:
            TypeError: for a value that is neither a number nor a text, such as a list.
            ValueError: for a text that is not a number.
        """
        keys = tuple(rows)
        if not keys:
            return
        lines = self._lines.get(keys)
        if lines is None:
            lines = self._lines[keys] = _Lines()
        lines.add(float(t_s), rows)

    def columns(self, names: Sequence[str]) -> dict[str, DeviceColumns]:
        """All rows by device key.

        Args:
            names: of the values of a row, in their order.
        """
        found: dict[str, list[Array]] = {}
        for keys, lines in self._lines.items():
            for key, table in zip(keys, lines.tables(len(keys), len(names)), strict=True):
                found.setdefault(key, []).append(table)
        return {
            key: DeviceColumns(("t_s", *names), _in_time(tables)) for key, tables in found.items()
        }


class _Lines:
    """Lines with the same devices."""

    def __init__(self) -> None:
        self._t_s = array("d")
        self._values = array("d")
        self._lengths = array("l")

    def add(self, t_s: float, rows: Mapping[str, Row]) -> None:
        known = len(self._values)
        try:
            self._values.extend(chain.from_iterable(rows.values()))  # type: ignore[arg-type]
        except TypeError:  # a null among them
            del self._values[known:]
            self._values.extend([_number(value) for row in rows.values() for value in row])
        self._lengths.extend(map(len, rows.values()))
        self._t_s.append(t_s)

    def tables(self, devices: int, width: int) -> list[Array]:
        """Time and ``width`` values of each line, (lines, 1 + width), for each device."""
        lengths = np.asarray(self._lengths).reshape(-1, devices)
        values = np.asarray(self._values)
        owner = np.repeat(np.arange(lengths.size) % devices, lengths.ravel())
        return [
            self._table(values[owner == device], lengths[:, device], width)
            for device in range(devices)
        ]

    def _table(self, values: Array, lengths: NDArray[np.int_], width: int) -> Array:
        widest = max(width, int(lengths.max(initial=0)))
        table = np.full((len(lengths), 1 + widest), np.nan)
        table[:, 0] = self._t_s
        table[:, 1:][np.arange(widest) < lengths[:, None]] = values
        return table[:, : 1 + width]


def _in_time(tables: Sequence[Array]) -> Array:
    """Rows of several tables in one, in time order."""
    if len(tables) == 1:
        return tables[0]
    joined = np.concatenate(tables)
    found: Array = joined[np.argsort(joined[:, 0], kind="stable")]
    return found


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)

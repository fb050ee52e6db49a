"""Reads carbon intensities over time from a CSV file, such as an export of Electricity Maps.

The file needs a header line with a column of times and a column of intensities in gCO2e/kWh. A row
is valid until the next row, or for the usual time between two rows if the next row is later than
that. An empty intensity is a gap.
"""

import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Any, Final, NamedTuple

from energy_callbacks.core.config import MOST_G_PER_KWH
from energy_callbacks.core.units import kilograms_from_grams

# Names of columns, as ``_plain`` returns them. "Carbon intensity gCO2eq/kWh (Life cycle)" is in
# exports of Electricity Maps since 2024, "(LCA)" in earlier ones; "carbon_intensity_avg" is in
# their files for research. If a file has several of these columns, the first here is used.
_TIMES: Final = ("datetime (utc)", "time (utc)", "datetime", "time", "timestamp", "date")
_INTENSITIES: Final[Mapping[str, str]] = {
    "carbon intensity gco2eq/kwh (life cycle)": "life cycle",
    "carbon intensity gco2eq/kwh (lca)": "life cycle",
    "carbon intensity gco2eq/kwh (direct)": "direct emissions only",
    "intensity": "",
    "carbon_intensity": "",
    "carbon_intensity_avg": "",
    "carbonintensity": "",
}
_ZONES: Final = ("zone name", "zone id", "zone")
# A row is valid until the next one if the time between them is at most this times the usual time.
# Months differ by a tenth.
_LATE: Final = 1.5
# A larger file is refused, because it would delay the start. An export of Electricity Maps has
# about 120 bytes per row: a year in steps of five minutes has 13 MB.
_MOST_BYTES: Final = 50_000_000


class Row(NamedTuple):
    """The carbon intensity from one moment to another.

    Attributes:
        start_s: start, in seconds since 1970.
        end_s: end, in seconds since 1970.
        kg_per_kwh: carbon intensity, kg CO2e per kWh.
    """

    start_s: float
    end_s: float
    kg_per_kwh: float


@dataclass(frozen=True, slots=True, kw_only=True)
class IntensityTable:
    """The carbon intensities in a file.

    Attributes:
        name: name of the file.
        kind: which emissions the intensities include; empty if the file does not say.
        zone: name of the zone in the file; ``None`` if the file does not say.
        rows: rows in time order; times between two rows may be missing.
    """

    name: str
    kind: str
    zone: str | None
    rows: Sequence[Row]

    @property
    def source(self) -> str:
        """Text for reports that says where the intensities come from."""
        return f"{self.name} ({self.kind})" if self.kind else self.name

    def at(self, unix_s: float) -> tuple[Row | None, float]:
        """Return the row at a time, and when another row or no row applies; ``None`` in a gap.

        Args:
            unix_s: time in seconds since 1970.
        """
        after = bisect_right(self.rows, unix_s, key=lambda row: row.start_s)
        next_s = self.rows[after].start_s if after < len(self.rows) else float("inf")
        row = self.rows[after - 1] if after else None
        return (row, row.end_s) if row is not None and unix_s < row.end_s else (None, next_s)


def read(path: str | Path) -> IntensityTable:
    """Read a CSV file.

    Raises:
        ValueError: if the file cannot be read, lacks a column, or has an invalid value. For an
            invalid value, the message has its line and column.
    """
    path = Path(path).expanduser()
    try:
        status = path.stat()
        if status.st_size > _MOST_BYTES:
            raise ValueError(
                f"{path} has {status.st_size} bytes, which is too large; keep only "
                "the rows that the run needs"
            )
        return _parsed(path, status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise ValueError(
            f"the file with carbon intensities cannot be read: {error}; pass a number in "
            "gCO2e/kWh or the path of a CSV file"
        ) from error


@lru_cache(maxsize=4)
def _parsed(path: Path, _mtime_ns: int, _size: int) -> IntensityTable:
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            return _Reader(path, csv.reader(file)).table()
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not encoded in UTF-8: {error}") from error


class _Reader:
    """Reads one file.

    Args:
        path: path of the file, for messages.
        lines: the lines of the file, as ``csv.reader`` returns them.
    """

    def __init__(self, path: Path, lines: Any) -> None:
        self._path = path
        self._lines = lines
        self._header: list[str] = next(lines, [])
        # If a name is repeated, the first column with this name is used.
        self._numbers = {_plain(name): at for at, name in reversed([*enumerate(self._header)])}

    def table(self) -> IntensityTable:
        """Return the contents of the file."""
        time = self._first("times", _TIMES)
        intensity = self._first("carbon intensities", _INTENSITIES)
        zones: dict[str, None] = {}
        points = list(self._points(time, self._numbers[intensity], zones))
        if len(points) < 2:
            raise ValueError(
                f"{self._path} needs at least two rows, got {len(points)}: a row is valid until "
                "the time of the next one; for a single value, pass a number in gCO2e/kWh"
            )
        return IntensityTable(
            name=self._path.name,
            kind=_INTENSITIES[intensity],
            zone=next(iter(zones), None),
            rows=tuple(_rows(points)),
        )

    def _first(self, what: str, known: Iterable[str]) -> str:
        """Return the first of the known names that the header has."""
        for name in known:
            if name in self._numbers:
                return name
        names = ", ".join(map(repr, known))
        raise ValueError(
            f"{self._path}, line 1: no column has {what}, got {','.join(self._header)!r}; "
            f"name it as one of {names}, with ',' between columns"
        )

    def _points(
        self, time: str, intensity: int, zones: dict[str, None]
    ) -> Iterator[tuple[float, float | None]]:
        """Yield time (s since 1970) and intensity (kg/kWh) of each line, and collect the zones."""
        at, before_s = self._numbers[time], -math.inf
        zone = next((self._numbers[name] for name in _ZONES if name in self._numbers), None)
        for cells in self._lines:
            if not any(cells):
                continue
            if len(cells) < len(self._header):
                raise self._error(len(cells), "the line ends before this column")
            at_s = self._time(cells[at], at, is_utc=time.endswith("(utc)"))
            if at_s <= before_s:
                raise self._error(
                    at,
                    f"{cells[at]!r} is not later than the time in the line "
                    "before; sort the lines by time",
                )
            before_s = at_s
            if zone is not None:
                self._note_zone(cells[zone], zone, zones)
            yield at_s, self._intensity(cells[intensity], intensity)

    def _note_zone(self, name: str, column: int, zones: dict[str, None]) -> None:
        zones[name] = None
        if len(zones) > 1:
            names = " and ".join(zones)
            raise self._error(
                column, f"the file has several zones ({names}); keep the rows of one zone"
            )

    def _time(self, text: str, column: int, *, is_utc: bool) -> float:
        try:
            time = datetime.fromisoformat(text.strip())
        except ValueError:
            message = f"{text!r} is not a time; write 2026-01-31T13:00Z, for example"
            raise self._error(column, message) from None
        if time.tzinfo is None and not is_utc:
            raise self._error(
                column,
                f"{text!r} has no time zone; write {text.strip()}Z for UTC or +01:00 for another "
                "zone, or name the column 'time (UTC)'",
            )
        return (time.replace(tzinfo=UTC) if time.tzinfo is None else time).timestamp()

    def _intensity(self, text: str, column: int) -> float | None:
        if not text.strip():
            return None
        try:
            g_per_kwh = float(text)
        except ValueError:
            message = f"{text!r} is not a number; leave the cell empty if it is not known"
            raise self._error(column, message) from None
        if not 0.0 <= g_per_kwh <= MOST_G_PER_KWH:
            message = f"must lie between 0 and {MOST_G_PER_KWH:g} gCO2e/kWh, got {text!r}"
            raise self._error(column, message)
        return kilograms_from_grams(g_per_kwh)

    def _error(self, column: int, message: str) -> ValueError:
        name = self._header[column]
        line = self._lines.line_num
        return ValueError(f"{self._path}, line {line}, column {column + 1} ({name}): {message}")


def _plain(name: str) -> str:
    """Return the name of a column in lower case, with plain digits.

    >>> _plain(" Carbon intensity gCO₂eq/kWh (direct)")
    'carbon intensity gco2eq/kwh (direct)'
    """
    return " ".join(name.replace("₂", "2").lower().split())


def _rows(points: Sequence[tuple[float, float | None]]) -> Iterator[Row]:
    usual_s = median_low(after[0] - before[0] for before, after in pairwise(points))
    for (start_s, kg_per_kwh), (next_s, _) in pairwise([*points, (math.inf, None)]):
        end_s = next_s if next_s - start_s <= _LATE * usual_s else start_s + usual_s
        if kg_per_kwh is not None:
            yield Row(start_s, end_s, kg_per_kwh)

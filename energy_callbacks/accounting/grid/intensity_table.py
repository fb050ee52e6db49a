"""Reads carbon intensities over time from a CSV file, such as an export of Electricity Maps.

The file needs a header line with a column of times and a column of intensities in gCO2e/kWh. A row
is valid until the next row, or for the usual time between two rows if the next row is later than
that. An empty intensity is a gap.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median_low
from typing import Final, NamedTuple

from energy_callbacks.accounting.dated_csv import TIMES, DatedCsv, parse
from energy_callbacks.core.settings.checks import MOST_G_PER_KWH
from energy_callbacks.core.units import kilograms_from_grams

# Names of columns, as ``plain`` returns them. "Carbon intensity gCO2eq/kWh (Life cycle)" is in
# exports of Electricity Maps since 2024, "(LCA)" in earlier ones; "carbon_intensity_avg" is in
# their files for research. If a file has several of these columns, the first here is used.
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
    except OSError:
        return _parsed(path, 0, 0)  # raises the error with a message
    return _parsed(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _parsed(path: Path, _mtime_ns: int, _size: int) -> IntensityTable:
    instead = "; pass a number in gCO2e/kWh or the path of a CSV file"
    return parse(path, _table, what="carbon intensities", instead=instead)


def _table(file: DatedCsv) -> IntensityTable:
    """Return the contents of a file."""
    time = file.first("times", TIMES)
    intensity = file.first("carbon intensities", _INTENSITIES)
    zones: dict[str, None] = {}
    points = list(_points(file, time, file.columns[intensity], zones))
    if len(points) < 2:
        raise ValueError(
            f"{file.path} needs at least two rows, got {len(points)}: a row is valid until "
            "the time of the next one; for a single value, pass a number in gCO2e/kWh"
        )
    return IntensityTable(
        name=file.path.name,
        kind=_INTENSITIES[intensity],
        zone=next(iter(zones), None),
        rows=tuple(_rows(points)),
    )


def _points(
    file: DatedCsv, time: str, intensity: int, zones: dict[str, None]
) -> Iterator[tuple[float, float | None]]:
    """Yield time (s since 1970) and intensity (kg/kWh) of each line, and collect the zones."""
    zone = next((file.columns[name] for name in _ZONES if name in file.columns), None)
    for at_s, cells in file.rows(time):
        if zone is not None:
            zones[cells[zone]] = None
            if len(zones) > 1:
                names = " and ".join(zones)
                message = f"the file has several zones ({names}); keep the rows of one zone"
                raise file.error(zone, message)
        yield at_s, _intensity(file, cells[intensity], intensity)


def _intensity(file: DatedCsv, text: str, column: int) -> float | None:
    g_per_kwh = file.number(text, column, "if it is not known")
    if g_per_kwh is None:
        return None
    if not 0.0 <= g_per_kwh <= MOST_G_PER_KWH:
        message = f"must lie between 0 and {MOST_G_PER_KWH:g} gCO2e/kWh, got {text!r}"
        raise file.error(column, message)
    return kilograms_from_grams(g_per_kwh)


def _rows(points: Sequence[tuple[float, float | None]]) -> Iterator[Row]:
    usual_s = median_low(after[0] - before[0] for before, after in pairwise(points))
    for (start_s, kg_per_kwh), (next_s, _) in pairwise([*points, (math.inf, None)]):
        end_s = next_s if next_s - start_s <= _LATE * usual_s else start_s + usual_s
        if kg_per_kwh is not None:
            yield Row(start_s, end_s, kg_per_kwh)

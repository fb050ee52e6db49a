"""Reads CSV files with a column of times; errors have the line and the column."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

_Parsed = TypeVar("_Parsed")

# Names of columns of times, as ``plain`` returns them. If a file has several, the first is used.
TIMES: Final = ("datetime (utc)", "time (utc)", "datetime", "time", "timestamp", "date")
# A larger file is refused, because it would delay the start. An export of Electricity Maps has
# about 120 bytes per row: a year in steps of five minutes has 13 MB.
_MOST_BYTES: Final = 50_000_000


class DatedCsv:
    """One file that is being read.

    Args:
        path: path of the file, for messages.
        lines: the lines of the file, as ``csv.reader`` returns them.

    Attributes:
        columns: number of each column by name; of repeated names the first.
    """

    def __init__(self, path: Path, lines: Any) -> None:
        self.path = path
        self._lines = lines
        self._header: list[str] = next(lines, [])
        self.columns = {plain(name): at for at, name in reversed([*enumerate(self._header)])}

    def first(self, what: str, known: Iterable[str]) -> str:
        """Return the first of the known names that the header has.

        Args:
            what: contents of the column, for the message.
            known: names, as ``plain`` returns them.
        """
        for name in known:
            if name in self.columns:
                return name
        names = ", ".join(map(repr, known))
        raise ValueError(
            f"{self.path}, line 1: no column has {what}, got {','.join(self._header)!r}; "
            f"name it as one of {names}, with ',' between columns"
        )

    def rows(self, time: str) -> Iterator[tuple[float, list[str]]]:
        """Yield the time (s since 1970) and the cells of each line that is not empty.

        Args:
            time: name of the column of times.
        """
        at, before_s = self.columns[time], -math.inf
        for cells in self._lines:
            if not any(cells):
                continue
            if len(cells) < len(self._header):
                raise self.error(len(cells), "the line ends before this column")
            at_s = self._time(cells[at], at, is_utc=time.endswith("(utc)"))
            if at_s <= before_s:
                message = f"{cells[at]!r} is not later than the time in the line before"
                raise self.error(at, f"{message}; sort the lines by time")
            before_s = at_s
            yield at_s, cells

    def number(self, text: str, column: int, empty: str) -> float | None:
        """Return the number in a cell of the present line; ``None`` if the cell is empty.

        Args:
            text: contents of the cell.
            column: its column.
            empty: when a cell is empty, for the message: ``for no cap``, for example.
        """
        if not text.strip():
            return None
        try:
            return float(text)
        except ValueError:
            message = f"{text!r} is not a number; leave the cell empty {empty}"
            raise self.error(column, message) from None

    def error(self, column: int, message: str) -> ValueError:
        """Return an error about a column of the present line."""
        name = self._header[column]
        line = self._lines.line_num
        return ValueError(f"{self.path}, line {line}, column {column + 1} ({name}): {message}")

    def _time(self, text: str, column: int, *, is_utc: bool) -> float:
        try:
            time = datetime.fromisoformat(text.strip())
        except ValueError:
            message = f"{text!r} is not a time; write 2026-01-31T13:00Z, for example"
            raise self.error(column, message) from None
        if time.tzinfo is None and not is_utc:
            raise self.error(
                column,
                f"{text!r} has no time zone; write {text.strip()}Z for UTC or +01:00 for another "
                "zone, or name the column 'time (UTC)'",
            )
        return (time.replace(tzinfo=UTC) if time.tzinfo is None else time).timestamp()


def parse(
    path: Path, parser: Callable[[DatedCsv], _Parsed], *, what: str, instead: str = ""
) -> _Parsed:
    """Open a file and return what ``parser`` makes of it.

    Args:
        path: path of the file.
        parser: reads the file.
        what: contents of the file, for the message.
        instead: text that says what the user can do if the file cannot be read.

    Raises:
        ValueError: if the file cannot be read, is too large, or is no text or CSV file.
    """
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ValueError(f"{path} has {size} bytes, which is too large; keep only needed rows")
        with path.open(encoding="utf-8-sig", newline="") as file:
            return parser(DatedCsv(path, csv.reader(file)))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not encoded in UTF-8: {error}") from error
    except csv.Error as error:  # for example, a quote is not closed
        raise ValueError(f"{path} is not a CSV file: {error}{instead}") from error
    except OSError as error:
        raise ValueError(f"the file with {what} cannot be read: {error}{instead}") from error


def plain(name: str) -> str:
    """Return the name of a column in lower case, with plain digits.

    >>> plain(" Carbon intensity gCO₂eq/kWh (direct)")
    'carbon intensity gco2eq/kwh (direct)'
    """
    return " ".join(name.replace("₂", "2").lower().split())

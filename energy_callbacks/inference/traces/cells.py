"""Reads CSV files whose errors have the file, the line and the column."""

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from energy_callbacks.accounting.journal.headers import is_number

_Parsed = TypeVar("_Parsed")
_MOST_BYTES: Final = 50_000_000  # as accounting/dated_csv.py; a profile has some thousand rows


class Line:
    """One line of a file.

    Args:
        path: path of the file, for messages.
        number: number of the line.
        cells: text of each column, by name.

    Attributes:
        path: path of the file.
    """

    def __init__(self, path: Path, number: int, cells: dict[str, str]) -> None:
        self.path = path
        self._where = f"{path}, line {number}"
        self._cells = cells

    def text(self, column: str) -> str:
        """Return the text of a column; empty if the file does not have it."""
        return (self._cells.get(column) or "").strip()

    def number(self, column: str) -> float | None:
        """Return the number in a column; ``None`` if the cell is empty."""
        return self._parsed(
            column, _finite, "is not a number; leave the cell empty if it is unknown"
        )

    def known(self, column: str) -> float:
        """Return the number in a column.

        Raises:
            ValueError: if it is not known.
        """
        if (value := self.number(column)) is None:
            raise self.error(column, "the cell is empty")
        return value

    def above_0(self, column: str) -> float:
        """Return the number in a column.

        Raises:
            ValueError: if it is not known, 0 or negative.
        """
        if (value := self.known(column)) <= 0.0:
            raise self.error(column, f"{value:g} is not above 0")
        return value

    def list(self, column: str) -> list[Any]:
        """Return the JSON list in a column; an empty cell is an empty list."""
        found = self._parsed(column, json.loads, "is not a JSON list such as [50, 25]")
        if not isinstance(found, list | None):
            raise self.error(column, f"{self.text(column)!r} is not a JSON list such as [50, 25]")
        return found or []

    def numbers(self, column: str) -> tuple[float, ...]:
        """Return the numbers in the JSON list in a column."""
        values = self.list(column)
        for value in values:
            if not is_number(value):
                raise self.error(column, f"{value!r} is not a number")
        return tuple(map(float, values))

    def word(self, column: str, words: Sequence[str]) -> Any:
        """Return the word in a column, which must be one of ``words``."""
        if (word := self.text(column)) not in words:
            raise self.error(column, f"{word!r} is not one of {', '.join(words)}")
        return word

    def error(self, column: str, message: str) -> ValueError:
        """Return an error about a column of this line."""
        at = [*self._cells].index(column) + 1 if column in self._cells else "missing"
        return ValueError(f"{self._where}, column {at} ({column}): {message}")

    def _parsed(self, column: str, parse: Callable[[str], _Parsed], problem: str) -> _Parsed | None:
        text = self.text(column)
        try:
            return parse(text) if text else None
        except ValueError:
            raise self.error(column, f"{text!r} {problem}") from None


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def header(path: Path) -> list[str]:
    """Return the names of the columns of a file.

    Raises:
        ValueError: if the file cannot be read, is too large, or is not text.
    """
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ValueError(f"{path} has {size} bytes, which is too large; keep only needed rows")
        with path.open(encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file), [])
    except csv.Error as error:
        raise ValueError(f"{path}, line 1: {error}; is this a CSV file?") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not encoded in UTF-8: {error}") from error
    except OSError as error:
        raise ValueError(f"the trace cannot be read: {error}") from error


def lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a file that are not empty.

    Raises:
        ValueError: if a line has fewer or more cells than the header, or is no CSV.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            for cells in reader:
                yield _whole(path, reader.line_num, cells)
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}, after line {reader.line_num}: {error}") from error


def _whole(path: Path, number: int, cells: dict[Any, Any]) -> Line:
    """Return a line that has one cell for each column."""
    if more := cells.pop(None, None):
        raise ValueError(
            f"{path}, line {number}: {len(more)} cells more than the header has; quote cells that "
            "contain a comma"
        )
    line = Line(path, number, cells)
    if short := [name for name, text in cells.items() if text is None]:
        raise line.error(short[0], "the line ends before this column")
    return line

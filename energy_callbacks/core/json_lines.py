"""Reads JSON-lines files that begin with a header line: journals, and recordings of readings."""

import json
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.extras import install_command

Record = dict[str, Any]

# Maximum length of a line in characters. The longest lines of journals are records of profilers, of
# some 100,000 characters.
_LONGEST_LINE: Final = 2**24


@dataclass(slots=True)
class Damage:
    """Counts the lines of a file that cannot be used.

    Attributes:
        line: number of the line that was read last, from 1.
        count: number of lines that cannot be used.
        first: number of the first of them; 0 if there is none.
    """

    line: int = 0
    count: int = 0
    first: int = 0

    def add(self) -> None:
        """Count the line that was read last."""
        self.count += 1
        self.first = self.first or self.line


def lines(file: TextIO) -> Iterator[str]:
    """Yield the lines of a file; lines of more than 16 million characters are cut."""
    while line := file.readline(_LONGEST_LINE):
        yield line if line.endswith("\n") else _end_of(line, file)


def _end_of(line: str, file: TextIO) -> str:
    """Skip the rest of a line of which only the beginning was read; return the beginning."""
    end = line
    while len(end) == _LONGEST_LINE and not end.endswith("\n"):
        end = file.readline(_LONGEST_LINE)
    return line if end is line else f"{line}\n"


def parsed(lines: Iterable[str], damage: Damage | None = None) -> Iterator[Record]:
    """Yield the JSON objects that have a key ``type``; all other lines are skipped.

    ``NaN`` and ``Infinity``, which are not JSON, become ``None``.

    Args:
        lines: the lines of a file.
        damage: counts the skipped lines, except for empty lines and for a last line without line
            end, which a process leaves behind that is killed while it writes.
    """
    # raw_decode takes half the time of json.loads on short lines.
    decode = json.JSONDecoder(parse_constant=lambda _: None).raw_decode
    damage = Damage() if damage is None else damage
    for damage.line, line in enumerate(lines, start=1):
        try:
            record, end = decode(line)
        except (RecursionError, ValueError):  # ValueError: also for numbers of over 4300 digits
            record, end = None, 0
        if isinstance(record, dict) and "type" in record and not line[end:].strip():
            yield record
        elif line.endswith("\n") and line.strip():
            damage.add()


def check_version(header: Record, version: int, what: str, path: Path) -> None:
    """Check that this version of the package can read a file.

    Args:
        header: first record of the file.
        version: newest version of the file format that can be read.
        what: name of the file format, for the message.
        path: path of the file, for the message.

    Raises:
        JournalError: if the version in the header is newer, or not a whole number.
    """
    found = header.get("version", 0)
    if not isinstance(found, int):
        raise JournalError(
            f"{path} is a damaged {what}: version of its header must be a whole number, got "
            f"{reprlib.repr(found)}"
        )
    if found > version:
        raise JournalError(
            f"{path} is a {what} of version {found}, this installation reads up to "
            f"{version}; run: {install_command(upgrade=True)}"
        )

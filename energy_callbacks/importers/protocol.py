"""The protocol of a log format: how it is recognised, and its content as journal lines."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A file that another program wrote.

    Attributes:
        path: of the file.
        choice: which of its runs is meant, what stands behind ``#``; ``None`` if not known.
        head: its beginning as text, at most ``files.HEAD_BYTES``.
    """

    path: Path
    choice: str | None
    head: str

    @property
    def run_id(self) -> str:
        """The same for the same file and choice, so that importing twice gives one run."""
        known = f"{self.path.stat().st_size} {self.choice} {self.head}"
        return hashlib.sha256(known.encode("utf-8", "replace")).hexdigest()[:12]

    @property
    def first_line(self) -> str:
        """Without what ends it."""
        return self.head.partition("\n")[0].strip()

    def columns(self) -> list[str]:
        """Names in the first line of a CSV file, trimmed and in lower case."""
        return [cell.lower() for cell in files.cells(self.first_line)]


class Importer(Protocol):
    """A module of this folder: one file format."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """Of the program that writes it, for people."""
        ...

    def recognises(self, log: Log) -> bool:
        """Whether the beginning of a file is of this format; reads no further."""
        ...

    def records(self, log: Log) -> Iterator[Record]:
        """The journal that a measurement of ours would have left, its header first.

        Raises:
            JournalError: if nothing in the file can be used, or no run of several was chosen.
        """
        ...

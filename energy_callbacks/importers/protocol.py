"""Defines ``Importer``, the protocol of a log format, and ``Log``, the file that it reads."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.errors import JournalError
from energy_callbacks.importers import files

# Name that selects the last run of a file with several runs, as in ``emissions.csv#last``.
LAST: Final = "last"
_MOST_NAMED: Final = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """A file that another program wrote.

    Attributes:
        path: the file.
        choice: name of the run to read, which the user gives after ``#`` if the file has several
            runs; ``None`` if not given.
        head: beginning of the file as text, at most ``files.HEAD_BYTES`` characters.
    """

    path: Path
    choice: str | None
    head: str

    @property
    def run_id(self) -> str:
        """Identifier of the run: a hash of file size, ``head`` and ``choice``.

        It is the same whenever the same file is imported with the same choice.
        """
        known = f"{self.path.stat().st_size} {self.choice} {self.head}"
        return hashlib.sha256(known.encode("utf-8", "replace")).hexdigest()[:12]

    @property
    def first_line(self) -> str:
        """First line of the file, trimmed."""
        return self.head.partition("\n")[0].strip()

    def columns(self) -> list[str]:
        """Return the column names of a CSV file in lower case, without units such as ``[W]``."""
        return [cell.lower().split(" [")[0] for cell in files.cells(self.first_line)]

    def rows(
        self,
        damage: files.Damage,
        columns: Sequence[str] | None = None,
        *,
        complete_only: bool = False,
    ) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield line number (from 0) and cells (by column name) of each row of a CSV file.

        Args:
            damage: counts the skipped rows, such as rows with a wrong number of cells.
            columns: names of the columns; ``None`` reads them from the first line, which is then
                not yielded.
            complete_only: see ``files.lines``.
        """
        names = self.columns() if columns is None else columns
        lines = files.lines(self.path, damage, complete_only=complete_only)
        for number, line in enumerate(lines):
            if not line.strip() or (number == 0 and columns is None):
                continue
            cells = files.cells(line)
            if len(cells) == len(names):
                yield number, dict(zip(names, cells, strict=True))
            else:
                damage.places += 1

    def check_one_run(self) -> None:
        """Check that the user has not chosen a run in a file that has only one.

        Raises:
            JournalError: for a choice other than ``last``.
        """
        if self.choice not in (None, LAST):
            raise JournalError(
                f"{self.path} contains one run, got {self.choice!r} after #; leave it out"
            )

    def chosen(self, runs: Mapping[str, T], label: Callable[[T], str]) -> T:
        """Return the run that ``choice`` selects, or the only run if ``choice`` is ``None``.

        The choice ``last`` selects the last run.

        Args:
            runs: runs by name, in the order of the file.
            label: returns a description of a run for the error message.

        Raises:
            JournalError: if there is no run, if the file has several runs and ``choice`` is
                ``None``, or if the chosen run does not exist.
        """
        if not runs:
            raise JournalError(f"{self.path} contains no run that can be read; give another log")
        if self.choice == LAST or (self.choice is None and len(runs) == 1):
            return list(runs.values())[-1]
        if self.choice in runs:
            return runs[self.choice or ""]
        problem = f"no run {self.choice!r}" if self.choice else f"{len(runs)} runs"
        named = [f"{name} ({label(runs[name])})" for name in list(runs)[-_MOST_NAMED:]]
        which = "the last are" if len(runs) > len(named) else "they are"
        raise JournalError(
            f"{self.path} contains {problem}; give {self.path.name}#{LAST}, or a name after #: "
            f"{which} {', '.join(named)}"
        )


class Importer(Protocol):
    """A module of ``importers.formats``, which reads one file format."""

    @property
    def NAME(self) -> str:  # noqa: N802 - a constant of the module
        """Name of the program that writes the format, as shown to users."""
        ...

    def recognises(self, log: Log) -> bool:
        """Return whether the beginning of a file has this format."""
        ...

    def records(self, log: Log) -> Iterator[Record]:
        """Convert a log to a journal, and yield the records (lines) of the journal.

        The first record is the header. The file is read when the first record is requested.

        Raises:
            JournalError: if the file cannot be used, for example because it has several runs and
                ``log.choice`` selects none of them.
        """
        ...

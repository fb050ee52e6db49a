"""Writes every reading of an attempt to disk, if requested."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from energy_callbacks.accounting.journal.journal import JournalWriter
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.recording import Lines


class RawReadings:
    """Readings go in on the threads of their sources, lines are written on the journal's.

    Args:
        journal: the attempt's journal; the file lies beside it and ends in ``.readings``.
        start_s: monotonic time of the attempt's start.
        unix_s: the wall time then.
    """

    def __init__(self, journal: Path, start_s: float, unix_s: float) -> None:
        self._new: deque[Sequence[Reading]] = deque()
        self._lines = Lines(start_s, unix_s)
        self._writer = JournalWriter(journal.with_suffix(".readings"))
        self._writer.write(self._lines.header)

    def keep(self, readings: Sequence[Reading]) -> None:
        """Remember what a source has just read."""
        self._new.append(readings)

    def update(self) -> None:
        """Write down what is new."""
        while self._new:
            for line in self._lines.of(self._new.popleft()):
                self._writer.write(line)
        self._writer.flush()

    def close(self) -> None:
        """Write the rest; nothing may follow."""
        self.update()
        self._writer.close()

"""Writes every reading of an attempt to disk, if ``EnergyConfig.raw_readings`` is set."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path

from energy_callbacks.accounting.journal.journal import JournalWriter
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.recording import Lines


class RawReadings:
    """Collects readings on the threads of their sources, and writes them on the journal's thread.

    Args:
        journal: path of the attempt's journal; the readings are written to the same path, with its
            suffix replaced by ``.readings``.
        start_s: monotonic time of the attempt's start.
        unix_s: wall time of the attempt's start.

    Attributes:
        path: path of the file.
    """

    def __init__(self, journal: Path, start_s: float, unix_s: float) -> None:
        self._new: deque[Sequence[Reading]] = deque()
        self._lines = Lines(start_s, unix_s)
        self.path = journal.with_suffix(".readings")
        self._writer = JournalWriter(self.path)
        self._writer.write(self._lines.header)

    def keep(self, readings: Sequence[Reading]) -> None:
        """Queue the readings that a source has returned."""
        self._new.append(readings)

    def update(self) -> None:
        """Write the queued readings."""
        while self._new:
            for line in self._lines.of(self._new.popleft()):
                self._writer.write(line)
        self._writer.flush()

    def close(self) -> None:
        """Close the file; readings that are still queued are lost."""
        self._writer.close()

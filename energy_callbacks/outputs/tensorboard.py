"""Writes an event file for TensorBoard; needs neither TensorFlow nor PyTorch."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from energy_callbacks.core import atomic_files
from energy_callbacks.core.extras import check_installed
from energy_callbacks.outputs import summaries

_serial = iter(range(2**62))


class TensorBoardOutput:
    """Writes scalars into one event file, which is opened at the first write.

    ``RecordWriter`` is used directly, because ``EventFileWriter`` imports TensorFlow if TensorFlow
    is installed. This import takes 5 s and 500 MB (TensorFlow 2.21).

    Args:
        log_dir: run directory. No other writer may be open in it, because TensorBoard reads new
            events only from the newest event file of a directory.
        opened_unix_s: wall time in the name of the file; ``None`` for the time of the first write.

    Raises:
        MissingExtraError: if TensorBoard is not installed.

    Attributes:
        folder: the run directory.
        prefix: prefix of the tags; always empty.
    """

    prefix = ""

    def __init__(
        self, log_dir: str | os.PathLike[str], *, opened_unix_s: float | None = None
    ) -> None:
        check_installed("tensorboard")
        self.folder = str(Path(log_dir))
        self._opened_unix_s = opened_unix_s
        self._writer: Any = None

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Append one event with all scalars of a step."""
        if scalars:
            self._append(summaries.scalars(scalars), step, unix_s)

    def add(self, summary: Any, step: int) -> None:
        """Append a summary of any kind, with the current wall time."""
        self._append(summary, step, time.time())

    def _append(self, summary: Any, step: int, unix_s: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

        if self._writer is None:
            self._writer = self._open()
        event = Event(wall_time=unix_s, step=step, summary=summary)
        self._writer.write(event.SerializeToString())
        self.flush()

    def flush(self) -> None:
        """Write all appended events to disk."""
        if self._writer is not None:
            self._writer.flush()

    def _open(self) -> Any:
        """Open a file whose name no other writer has: PyTorch's names lack the last part."""
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.record_writer import RecordWriter

        unix_s = time.time() if self._opened_unix_s is None else self._opened_unix_s
        name = (
            f"events.out.tfevents.{unix_s:010.0f}.{socket.gethostname()}"
            f".{os.getpid()}.{next(_serial)}.energy"
        )
        writer = RecordWriter(os.fdopen(atomic_files.open_new(Path(self.folder) / name), "wb"))
        first = Event(wall_time=unix_s, file_version="brain.Event:2")
        writer.write(first.SerializeToString())
        return writer

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, which writes its own event file."""
        return self.__dict__ | {"_writer": None}

    def close(self) -> None:
        """Close the event file; a later write opens a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

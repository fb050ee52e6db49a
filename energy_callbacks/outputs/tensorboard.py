"""An event file of our own that TensorBoard reads, written without TensorFlow and torch."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from energy_callbacks.outputs import summaries

_serial = iter(range(2**62))


class TensorBoardOutput:
    """Writes classic scalars into one event file, opened at the first write.

    ``RecordWriter`` is used by itself: ``EventFileWriter`` would import all of TensorFlow if
    it is installed (5 s and 500 MB, measured with TensorFlow 2.21).

    Args:
        log_dir: run directory. It must not hold another open writer: TensorBoard's live view
            follows only the newest event file of a directory.
    """

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        self._log_dir = Path(log_dir)
        self._writer: Any = None

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Append one event with all scalars of a step."""
        if scalars:
            self._append(summaries.scalars(scalars), step, unix_s)

    @property
    def folder(self) -> str:
        """The run directory."""
        return str(self._log_dir)

    @property
    def prefix(self) -> str:
        """Tags stand as they are."""
        return ""

    def add(self, summary: Any, step: int) -> None:
        """Append a summary of any kind."""
        self._append(summary, step, time.time())

    def _append(self, summary: Any, step: int, unix_s: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

        if self._writer is None:
            self._writer = self._open()
        event = Event(wall_time=unix_s, step=step, summary=summary)
        self._writer.write(event.SerializeToString())
        self.flush()

    def flush(self) -> None:
        """Put on disk what was appended until now."""
        if self._writer is not None:
            self._writer.flush()

    def _open(self) -> Any:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._log_dir.mkdir(parents=True, exist_ok=True)
        unix_s = time.time()
        name = (
            f"events.out.tfevents.{unix_s:010.0f}.{socket.gethostname()}"
            f".{os.getpid()}.{next(_serial)}"
        )
        writer = RecordWriter((self._log_dir / name).open("wb"))
        first = Event(wall_time=unix_s, file_version="brain.Event:2")
        writer.write(first.SerializeToString())
        return writer

    def __getstate__(self) -> dict[str, Any]:
        """A copy writes a file of its own."""
        return {"_log_dir": self._log_dir, "_writer": None}

    def close(self) -> None:
        """Close the file; a later write begins a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

"""Writes an event file for TensorBoard, without TensorFlow and PyTorch."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from energy_callbacks.outputs import summaries

_serial = iter(range(2**62))


class TensorBoardOutput:
    """Writes classic scalars into one event file, which is opened at the first write.

    ``RecordWriter`` is used directly, because ``EventFileWriter`` imports TensorFlow if it is
    installed (5 s and 500 MB, measured with TensorFlow 2.21).

    Args:
        log_dir: run directory. It must not contain another open writer: TensorBoard's live view
            follows only the newest event file of a directory.

    Attributes:
        folder: the run directory.
        prefix: of the tags; always empty.
    """

    prefix = ""

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        self.folder = str(Path(log_dir))
        self._writer: Any = None

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Append one event with all scalars of a step."""
        if scalars:
            self._append(summaries.scalars(scalars), step, unix_s)

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
        """Write everything that was appended to disk."""
        if self._writer is not None:
            self._writer.flush()

    def _open(self) -> Any:
        from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.record_writer import RecordWriter

        Path(self.folder).mkdir(parents=True, exist_ok=True)
        unix_s = time.time()
        name = (
            f"events.out.tfevents.{unix_s:010.0f}.{socket.gethostname()}"
            f".{os.getpid()}.{next(_serial)}"
        )
        writer = RecordWriter((Path(self.folder) / name).open("wb"))
        first = Event(wall_time=unix_s, file_version="brain.Event:2")
        writer.write(first.SerializeToString())
        return writer

    def __getstate__(self) -> dict[str, Any]:
        """A copy writes its own file."""
        return {"folder": self.folder, "_writer": None}

    def close(self) -> None:
        """Close the file; a later write begins a new one."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

"""The run of a ``SummaryWriter``, of PyTorch or of tensorboardX, into which a user logs."""

from typing import Any


class WriterBoard:
    """Takes whole summaries, as Lightning itself hands them to such a writer.

    Args:
        writer: is the user's; it is neither opened nor closed here.
        prefix: what the user's logger puts before each tag.
    """

    def __init__(self, writer: Any, prefix: str = "") -> None:
        self._writer = writer
        self.prefix = prefix

    @property
    def folder(self) -> str:
        """The run directory."""
        return str(self._file_writer.get_logdir())

    @property
    def _file_writer(self) -> Any:
        return self._writer._get_file_writer()  # noqa: SLF001 - takes a summary, alike in both

    def add(self, summary: Any, step: int) -> None:
        """Append one. tensorboardX has classes of its own for the same bytes."""
        if type(self._writer).__module__.partition(".")[0] == "tensorboardX":
            from tensorboardX.proto.summary_pb2 import (  # pyright: ignore[reportMissingImports]
                Summary,
            )

            summary = Summary.FromString(summary.SerializeToString())
        self._file_writer.add_summary(summary, step)

    def flush(self) -> None:
        """Wait until the writer's own thread has written all."""
        self._writer.flush()

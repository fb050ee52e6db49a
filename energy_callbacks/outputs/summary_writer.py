"""Adds summaries to the run directory of a user's ``SummaryWriter`` (PyTorch or tensorboardX)."""

from typing import Any


class WriterBoard:
    """A ``Board`` that passes summaries to the user's writer.

    Args:
        writer: the user's open ``SummaryWriter``, which this class does not close.
        prefix: prefix that the user's logger adds to each tag.
    """

    def __init__(self, writer: Any, prefix: str = "") -> None:
        self._writer = writer
        self.prefix = prefix

    @property
    def folder(self) -> str:
        """The run directory."""
        return str(self._writer._get_file_writer().get_logdir())  # noqa: SLF001 - see ``add``

    def add(self, summary: Any, step: int) -> None:
        """Append a summary.

        In both libraries, only the writer's internal file writer has a method for complete
        summaries. tensorboardX has its own protobuf classes, so the summary is converted.
        """
        if type(self._writer).__module__.partition(".")[0] == "tensorboardX":
            from tensorboardX.proto.summary_pb2 import (  # pyright: ignore[reportMissingImports]
                Summary,
            )

            summary = Summary.FromString(summary.SerializeToString())
        self._writer._get_file_writer().add_summary(summary, step)  # noqa: SLF001 - see above

    def flush(self) -> None:
        """Wait until all appended summaries are written to disk."""
        self._writer.flush()

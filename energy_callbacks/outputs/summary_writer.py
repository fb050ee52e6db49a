"""The TensorBoard run of a user's ``SummaryWriter``, of PyTorch or of tensorboardX."""

from typing import Any


class WriterBoard:
    """Passes complete summaries to the writer.

    Args:
        writer: of the user; it is neither opened nor closed here.
        prefix: that the user's logger puts before each tag.
    """

    def __init__(self, writer: Any, prefix: str = "") -> None:
        self._writer = writer
        self.prefix = prefix

    @property
    def folder(self) -> str:
        """The run directory."""
        return str(self._writer._get_file_writer().get_logdir())  # noqa: SLF001 - see ``add``

    def add(self, summary: Any, step: int) -> None:
        """Append a summary; only the writer's file writer accepts one, in both libraries.

        tensorboardX has its own classes for the same bytes.
        """
        if type(self._writer).__module__.partition(".")[0] == "tensorboardX":
            from tensorboardX.proto.summary_pb2 import (  # pyright: ignore[reportMissingImports]
                Summary,
            )

            summary = Summary.FromString(summary.SerializeToString())
        self._writer._get_file_writer().add_summary(summary, step)  # noqa: SLF001 - see above

    def flush(self) -> None:
        """Wait until the writer's thread has written everything."""
        self._writer.flush()

"""The protocol of outputs, which receive figures during training."""

from collections.abc import Mapping
from typing import Any, Protocol


class Output(Protocol):
    """Receives scalars of a step, on the training thread, so ``write`` must be quick."""

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write the scalars of one step.

        Args:
            scalars: values by tag, see ``docs/reference/metrics.md``.
            step: the training's own step.
            unix_s: wall time of the scalars.
        """
        ...

    def close(self) -> None:
        """Flush and release; may be called twice."""
        ...


class Board(Protocol):
    """A TensorBoard run directory that a writer has open; it receives complete summaries."""

    @property
    def folder(self) -> str:
        """The run directory; may be in a bucket."""
        ...

    @property
    def prefix(self) -> str:
        """The prefix of this package's tags."""
        ...

    def add(self, summary: Any, step: int) -> None:
        """Append a summary.

        Args:
            summary: a ``Summary`` of ``tensorboard.compat.proto``.
            step: the training's own step.
        """
        ...

    def flush(self) -> None:
        """Write everything that was appended to disk."""
        ...

"""The protocol of outputs, which receive figures during training."""

from collections.abc import Mapping
from typing import Any, Protocol


class Output(Protocol):
    """Takes scalars at a step; called on the training thread, so it must be quick."""

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write figures of one step.

        Args:
            scalars: tag to value, see ``docs/reference/metrics.md``.
            step: the training's own step.
            unix_s: wall time of the figures.
        """
        ...

    def close(self) -> None:
        """Flush and release; safe to call twice."""
        ...


class Board(Protocol):
    """A TensorBoard run directory that another writer has open; it takes whole summaries."""

    @property
    def folder(self) -> str:
        """The run directory, perhaps in a bucket."""
        ...

    @property
    def prefix(self) -> str:
        """The prefix of our tags."""
        ...

    def add(self, summary: Any, step: int) -> None:
        """Append one.

        Args:
            summary: a ``Summary`` of ``tensorboard.compat.proto``.
            step: the training's own step.
        """
        ...

    def flush(self) -> None:
        """Put on disk what was appended until now."""
        ...

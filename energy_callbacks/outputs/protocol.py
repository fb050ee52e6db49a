"""Defines the protocols ``Output``, for scalars, and ``Board``, for TensorBoard summaries."""

from collections.abc import Mapping
from typing import Any, Protocol


class Output(Protocol):
    """A destination of scalars; called on the training thread, so ``write`` must be quick."""

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write the scalars of one step.

        Args:
            scalars: values by tag; ``docs/reference/metrics.md`` lists the tags.
            step: number of the step, as the training counts it.
            unix_s: wall time at which the scalars are logged, in Unix seconds.
        """
        ...

    def close(self) -> None:
        """Write buffered data and release resources; may be called more than once."""
        ...


class Board(Protocol):
    """An open TensorBoard run directory, to which complete summaries can be added."""

    @property
    def folder(self) -> str:
        """The run directory; may be a URL of cloud storage."""
        ...

    @property
    def prefix(self) -> str:
        """The prefix that the user's logger adds to each tag; empty if there is none."""
        ...

    def add(self, summary: Any, step: int) -> None:
        """Append a summary.

        Args:
            summary: a ``Summary`` of ``tensorboard.compat.proto``.
            step: number of the step, as the training counts it.
        """
        ...

    def flush(self) -> None:
        """Write all appended summaries to disk."""
        ...

"""Defines the protocols of destinations.

``Output`` receives scalars, ``Board`` TensorBoard summaries, ``RunLog`` the configuration, final
figures and report of a training.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from energy_callbacks.core.settings.checks import check_methods

Value = str | float | bool
"""Value of a configuration or hyperparameter."""


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


def check_outputs(outputs: object) -> None:
    """Check the argument ``outputs`` of a meter.

    Raises:
        TypeError: if it is no list, or if an output lacks a method.
    """
    if not isinstance(outputs, list | tuple):
        raise TypeError(f"outputs must be a list, got {outputs!r}; write outputs=[...]")
    advice = "give objects such as TensorBoardOutput('runs') or FunctionOutput(function)"
    for output in outputs:
        check_methods("an output", output, ("write", "close"), advice)


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


class RunLog(Protocol):
    """A run of an experiment tracker, such as W&B, which the training has open.

    The framework's own logger writes the rows of the training to the same run.
    """

    @property
    def name(self) -> str:
        """Name of the tracker, for messages."""
        ...

    def begin(self, config: Mapping[str, Value], tag_prefix: str) -> None:
        """Add the configuration, and suggest a layout of charts; called on the training thread.

        Args:
            config: settings and properties of the training, by name.
            tag_prefix: the user's setting ``tag_prefix``.
        """
        ...

    def end(self, figures: Mapping[str, float]) -> None:
        """Set the figures that are known at the end of the training, before there is a report.

        Called on the training thread, so it must not wait for a server.

        Args:
            figures: values by tag, such as ``final/total_wh``.
        """
        ...

    def report(self, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        """Set the figures of the report, and add its files; never called on the training thread.

        Args:
            figures: values by tag, such as ``final/total_wh``.
            files: the files of the report.
        """
        ...

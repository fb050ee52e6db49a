"""Adds configuration, chart layout, final figures and report to a run of Weights & Biases."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from energy_callbacks.accounting.metrics.tags import INTERVALS, TAGS
from energy_callbacks.outputs.protocol import Value


class WandbRun:
    """A ``RunLog`` for the user's W&B run.

    W&B passes everything to a process of its own, so no method waits for the server. A run that the
    user has finished accepts nothing more: ``report`` then raises ``wandb.UsageError``.

    Args:
        run: the open ``wandb.Run``, which this class does not finish.
        step: name of the metric with which the framework logs the step of a row; the x axis.
        prefix: text that the framework adds before each tag.
    """

    name = "W&B"

    def __init__(self, run: Any, *, step: str, prefix: str = "") -> None:
        self._run = run
        self._step = step
        self._prefix = prefix
        self._expected: set[str] = set()

    def begin(self, config: Mapping[str, Value], tag_prefix: str) -> None:
        """Add the configuration; assign the x axis, and hide the ends of intervals.

        W&B shows one section of charts per text before the first ``/``, and no automatic chart of
        a hidden metric.
        """
        self._run.config.update({"energy_callbacks": dict(config)}, allow_val_change=True)
        prefix = self._prefix + tag_prefix
        for group in sorted({tag.partition("/")[0] for tag in TAGS}):
            self._run.define_metric(f"{prefix}{group}/*", step_metric=self._step)
        for tag in INTERVALS:
            for end in ("_lo", "_hi"):
                name = f"{prefix}{tag}{end}"
                self._run.define_metric(name, step_metric=self._step, hidden=True)

    def end(self, figures: Mapping[str, float]) -> None:
        """Set the figures in the summary, because the user may finish the run at once."""
        self._expected = set(figures)
        self._run.summary.update(dict(figures))

    def report(self, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        """Add an artifact with the files, and set the figures in the summary.

        Figures that were expected and are not in the report, because their error is too large, are
        removed.
        """
        import wandb  # pyright: ignore[reportMissingImports]

        name = f"energy-report-{self._run.id}"
        artifact = wandb.Artifact(name, type="energy-report", metadata=dict(figures))
        for path in files:
            artifact.add_file(str(path))
        self._run.log_artifact(artifact)
        for tag in sorted(self._expected - figures.keys()):
            del self._run.summary[tag]
        self._run.summary.update(dict(figures))

"""The result of a batch-size search."""

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from energy_callbacks.core.tables import aligned
from energy_callbacks.report.charts.batch_size_plot import batch_size_figure
from energy_callbacks.report.charts.drawing import figure_png
from energy_callbacks.report.model import batch_sizes
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, BatchSizePoint
from energy_callbacks.report.model.models import Ratio
from energy_callbacks.tuning.search.trial import Trial
from energy_callbacks.tuning.tensorboard import write_tensorboard

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeResult:
    """The curve, and the size that was chosen from it.

    Attributes:
        size: the batch size of each rank, which was run; that of micro-batches if the global
            batch was fixed.
        why: in a sentence.
        objective: what was asked for.
        trials: in the order in which they were run.
        memory_bytes: of the device; ``None`` if unknown.
        duration_s: how long the search took.
        energy_j: what it cost, this rank's GPUs and, on the first of a host, that; ``None`` if
            unknown.
    """

    size: int
    why: str
    objective: str
    trials: tuple[Trial, ...]
    memory_bytes: int | None
    duration_s: float
    energy_j: float | None

    @property
    def chosen(self) -> Trial:
        """The newest trial of the chosen size."""
        return next(t for t in reversed(self.trials) if t.size == self.size and t.status == "ok")

    @property
    def accumulation(self) -> int:
        """So many micro-batches to a step of the optimizer."""
        return self.chosen.accumulation

    def learning_rate_factors(self, size_before: int) -> tuple[float, float]:
        """By how much to change a learning rate that was found with another batch size.

        Args:
            size_before: samples of a step of the optimizer, on each rank.

        Returns:
            Linear (Goyal et al. 2017, for SGD) and square root (Krizhevsky 2014, Malladi et al.
            2022 for Adam).

        Raises:
            ValueError: if ``size_before`` is no size.
        """
        if size_before < 1:
            raise ValueError(
                f"size_before must be the batch size of the learning rate, got {size_before!r}"
            )
        ratio = self.size * self.accumulation / size_before
        return ratio, math.sqrt(ratio)

    @property
    def curve(self) -> BatchSizeCurve:
        """As in reports."""
        return BatchSizeCurve(
            size=self.size,
            why=self.why,
            objective=self.objective,
            points=points(self.trials),
            memory_bytes=self.memory_bytes,
            duration_s=self.duration_s,
            energy_j=self.energy_j,
        )

    def as_json(self) -> dict[str, Any]:
        """Everything, with what follows of each trial."""
        derived = ("samples_per_s", "power_w", "j_per_sample")
        trials = [asdict(t) | {name: getattr(t, name) for name in derived} for t in self.trials]
        return asdict(self) | {"accumulation": self.accumulation, "trials": trials}

    def figure(self) -> "Figure":
        """Throughput, joules a sample and memory over the batch size, by matplotlib."""
        figure = batch_size_figure(self.curve)
        assert figure is not None  # the chosen size has run
        return figure

    def save_png(self, path: str | os.PathLike[str]) -> None:
        """Write the figure."""
        Path(path).write_bytes(figure_png(self.figure()))

    def write_tensorboard(self, log_dir: str | os.PathLike[str]) -> None:
        """Write the curve for TensorBoard, see ``tuning.board``.

        Args:
            log_dir: a run directory of its own.
        """
        write_tensorboard(Path(log_dir), self.trials, figure_png(self.figure()))

    def __str__(self) -> str:
        """As a table, smallest size first."""
        table = [batch_sizes.HEAD, *batch_sizes.rows(self.curve)]
        sentence = f"batch size {self.size}: {self.curve.sentence}"
        return "\n".join([sentence, "", *aligned(table, ">")])


def points(trials: Sequence[Trial]) -> tuple[BatchSizePoint, ...]:
    """Trials as in reports."""
    return tuple(
        BatchSizePoint(
            size=trial.size,
            accumulation=trial.accumulation,
            fits=trial.status == "ok",
            reason=trial.reason,
            samples_per_s=trial.samples_per_s,
            samples_per_s_error=_rate_error(trial),
            scope=trial.scope,
            power_w=trial.power_w,
            j_per_sample=_ratio(trial),
            peak_bytes=trial.peak_bytes,
        )
        for trial in trials
    )


def _rate_error(trial: Trial) -> float | None:
    rate = trial.samples_per_s
    return None if rate is None else 1.96 * trial.time_error * rate


def _ratio(trial: Trial) -> Ratio | None:
    value_j = trial.j_per_sample
    if value_j is None:
        return None
    error_j = trial.energy.error_j / trial.samples
    return Ratio(
        value_j=value_j,
        low_j=max(value_j - error_j, 0.0),
        high_j=value_j + error_j,
        stderr_j=trial.energy.stderr_j / trial.samples,
        systematic_j=trial.energy.systematic_j / trial.samples,
        steps=trial.steps,
    )

"""The result of a batch-size search, and its display as table, figure and in TensorBoard."""

import math
import os
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.core.records import NORMAL_95
from energy_callbacks.core.tables import aligned
from energy_callbacks.outputs import hparams, summaries
from energy_callbacks.outputs.protocol import Value
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.report.charts.batch_size_plot import batch_size_figure
from energy_callbacks.report.charts.drawing import figure_png
from energy_callbacks.report.model import batch_sizes
from energy_callbacks.report.model.amounts import Ratio
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, BatchSizePoint
from energy_callbacks.tuning.search.trial import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Tag of the figure in TensorBoard.
_PICTURE: Final = "tuning/curve"
_BYTES_PER_GB: Final = 1e9
# Fields that ``BatchSizePoint`` copies from ``Trial``.
_SAME: Final = (
    "size", "accumulation", "reason", "samples_per_s", "scope", "power_w", "peak_bytes",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeResult:
    """The chosen batch size, and the trials from which it was chosen.

    Attributes:
        size: chosen batch size of each rank; the size of a micro-batch if the global batch size
            was fixed.
        why: the reason for the choice, in a sentence.
        objective: name of the objective of the search, or the weight of energy as text.
        trials: all trials, in the order in which they were run. Their random errors include the
            variance between trials of the same size.
        memory_bytes: memory of the device, or of the smallest device of all ranks; ``None`` if
            unknown.
        duration_s: duration of the search, in seconds.
        energy_j: energy of the search that this rank has measured, in joules: that of its GPUs and,
            on the first rank of a host, also that of the host. ``None`` if unknown.
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
        """The newest successful trial of the chosen size."""
        return next(t for t in reversed(self.trials) if t.size == self.size and t.status == "ok")

    @property
    def accumulation(self) -> int:
        """Number of micro-batches per optimizer step at the chosen size."""
        return self.chosen.accumulation

    def learning_rate_factors(self, size_before: int) -> tuple[float, float]:
        """Return factors for a learning rate that was found with another batch size.

        Args:
            size_before: number of samples per optimizer step on each rank when the learning rate
                was found.

        Returns:
            The linear factor (Goyal et al. 2017, for SGD), and its square root (Krizhevsky 2014;
            Malladi et al. 2022, for Adam).

        Raises:
            ValueError: if ``size_before`` is below 1.
        """
        if size_before < 1:
            raise ValueError(
                "size_before must be the batch size for which the learning rate was chosen, got "
                f"{size_before!r}"
            )
        ratio = self.size * self.accumulation / size_before
        return ratio, math.sqrt(ratio)

    @property
    def curve(self) -> BatchSizeCurve:
        """The result as the record that reports contain."""
        names = [field.name for field in fields(self) if field.name != "trials"]
        shared = {name: getattr(self, name) for name in names}
        return BatchSizeCurve(**shared, points=points(self.trials))

    def as_json(self) -> dict[str, Any]:
        """Return all fields as a dictionary; trials include throughput, power and J/sample."""
        derived = ("samples_per_s", "power_w", "j_per_sample")
        trials = [asdict(t) | {name: getattr(t, name) for name in derived} for t in self.trials]
        return asdict(self) | {"accumulation": self.accumulation, "trials": trials}

    def figure(self) -> "Figure":
        """Return a matplotlib figure: throughput, energy per sample and memory by batch size."""
        figure = batch_size_figure(self.curve)
        assert figure is not None  # the chosen size has run
        return figure

    def save_png(self, path: str | os.PathLike[str]) -> None:
        """Write the figure to a PNG file."""
        Path(path).write_bytes(figure_png(self.figure()))

    def write_tensorboard(self, log_dir: str | os.PathLike[str]) -> None:
        """Write the curve for TensorBoard.

        The TensorBoard run in ``log_dir`` has a scalar for each quantity, with the batch size as
        step, and an image of the figure. In addition, each size that ran gets its own TensorBoard
        run in a subdirectory, such as ``batch_size_32``, which the page "HParams" lists.

        Args:
            log_dir: directory of the TensorBoard run; nothing else may write to it.
        """
        newest = {trial.size: trial for trial in self.trials if trial.status == "ok"}
        with closing(TensorBoardOutput(Path(log_dir))) as curve:
            for size, trial in sorted(newest.items()):
                curve.write(_scalars(trial), size, time.time())
                _write_session(Path(log_dir) / f"batch_size_{size}", trial)
            curve.add(summaries.image(_PICTURE, figure_png(self.figure())), 0)

    def __str__(self) -> str:
        """Return the reason for the choice, and a table in ascending order of the sizes."""
        table = [batch_sizes.HEAD, *batch_sizes.rows(self.curve)]
        sentence = f"batch size {self.size}: {self.curve.sentence}"
        return "\n".join([sentence, "", *aligned(table, ">")])


def points(trials: Sequence[Trial]) -> tuple[BatchSizePoint, ...]:
    """Convert trials to the points of a ``BatchSizeCurve``."""
    return tuple(
        BatchSizePoint(
            **{name: getattr(trial, name) for name in _SAME},
            fits=trial.status == "ok",
            samples_per_s_error=(
                NORMAL_95 * trial.time_error * trial.samples_per_s if trial.samples_per_s else None
            ),
            j_per_sample=_ratio(trial),
        )
        for trial in trials
    )


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
        edge_j=trial.energy.edge_j / trial.samples,
        systematic_j=trial.energy.systematic_j / trial.samples,
        steps=trial.steps,
    )


def _write_session(folder: Path, trial: Trial) -> None:
    values: dict[str, Value] = {
        "batch_size": trial.size,
        "accumulation": trial.accumulation,
    }
    scalars = _scalars(trial)
    now_s = time.time()
    with closing(TensorBoardOutput(folder)) as run:
        run.add(hparams.experiment(values, scalars, now_s), 0)
        run.add(hparams.session_start(values, now_s), 0)
        run.write(scalars, 0, now_s)
        run.add(hparams.session_end(now_s, is_success=True), 0)


def _scalars(trial: Trial) -> dict[str, float]:
    known = {
        "tuning/samples_per_s": trial.samples_per_s,
        "tuning/power_w": trial.power_w,
        "tuning/j_per_sample": trial.j_per_sample,
        "tuning/peak_memory_gb": trial.peak_bytes and trial.peak_bytes / _BYTES_PER_GB,
    }
    return {tag: value for tag, value in known.items() if value is not None}

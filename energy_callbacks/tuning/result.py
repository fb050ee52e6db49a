"""What a search for a batch size has found."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from energy_callbacks.report import words
from energy_callbacks.tuning.trial import Trial
from energy_callbacks.units import watt_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeResult:
    """The curve, and the size that was chosen from it.

    Attributes:
        size: the batch size of each rank, which was run; that of micro-batches where the global
            batch was fixed.
        why: in a sentence.
        objective: what was asked for.
        trials: in the order in which they were run.
        memory_bytes: of the device; ``None`` where nobody knows.
        duration_s: how long the search took.
        energy_j: what it cost, this rank's GPUs and, on the first of a host, that; ``None`` where
            nobody knows.
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
            ValueError: where ``size_before`` is no size.
        """
        if size_before < 1:
            raise ValueError(
                f"size_before must be the batch size of the learning rate, got {size_before!r}"
            )
        ratio = self.size * self.accumulation / size_before
        return ratio, math.sqrt(ratio)

    def as_json(self) -> dict[str, Any]:
        """Everything, with what follows of each trial."""
        derived = ("samples_per_s", "power_w", "j_per_sample")
        trials = [asdict(t) | {name: getattr(t, name) for name in derived} for t in self.trials]
        return asdict(self) | {"trials": trials}

    def __str__(self) -> str:
        """As a table, smallest size first."""
        cost = "" if self.energy_j is None else f" and {watt_hours(self.energy_j):.3g} Wh"
        rows = [_row(trial, self) for trial in sorted(self.trials, key=lambda t: t.size)]
        head = ("size", "samples/s", "W", "J/sample", "memory", "")
        return "\n".join(
            [
                f"batch size {self.size}: {self.why}",
                f"{len(self.trials)} trials in {words.duration(self.duration_s)}{cost}",
                "",
                *_aligned([head, *rows]),
            ]
        )


def _row(trial: Trial, result: BatchSizeResult) -> tuple[str, ...]:
    if trial.samples_per_s is None:
        return (_size(trial), "-", "-", "-", "-", "out of memory")
    return (
        _size(trial),
        f"{trial.samples_per_s:.4g}",
        "-" if trial.power_w is None else f"{trial.power_w:.0f}",
        _energy(trial),
        words.size(trial.peak_bytes),
        "<- chosen" if trial is result.chosen else "",
    )


def _size(trial: Trial) -> str:
    return str(trial.size) if trial.accumulation == 1 else f"{trial.size} x {trial.accumulation}"


def _energy(trial: Trial) -> str:
    if trial.j_per_sample is None:
        return "-"
    error = trial.energy.error_j / trial.samples
    if not trial.energy.is_resolved:
        return f"< {trial.j_per_sample + error:.3g}"
    return " ± ".join(words.with_error(trial.j_per_sample, error))


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]

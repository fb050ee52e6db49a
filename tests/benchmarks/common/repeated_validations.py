"""Measures the energy of a validation that is repeated many times in a training."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from tests.benchmarks.bars import Bar
from tests.benchmarks.common.phase_cells import PhaseRuns, run_cells
from tests.benchmarks.common.phase_runs import PhaseCell

SEEDS: Final = 20
_FIRST_SEED: Final = 2_000_000
# Largest difference between the sum over phases and the energy of the training, as a share: the
# phases divide that energy, and values are rounded to nine digits.
_SUM: Final = 1e-6


def _cell(sensor: str, train_s: float, validation_s: float, repeats: int) -> PhaseCell:
    share = validation_s / (train_s + validation_s)
    return PhaseCell(sensor=sensor, validation_s=validation_s, repeats=repeats, share=share)


# Trainings, and the largest mean error as a share; ``None`` if it may be too uncertain to resolve.
CASES: Final[Mapping[str, tuple[PhaseCell, float | None]]] = {
    "H200, 60 ms": (_cell("H200", 0.25, 0.06, 60), 0.06),
    "A100, 300 ms": (_cell("A100", 0.7, 0.3, 25), 0.06),
    "A100, 1 s": (_cell("A100", 2.0, 1.0, 8), 0.02),
    "V100, 60 ms": (_cell("V100", 0.25, 0.06, 60), 0.08),
    "RAPL, 1 s": (_cell("RAPL", 2.0, 1.0, 40), 0.01),
    "RTX 30xx, 300 ms": (_cell("RTX 30xx", 0.7, 0.3, 25), None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The error of the energy of all validations of a training.

    Attributes:
        name: sensor and length of a validation.
        error: mean of |found - true| / true over the seeds.
        bias: mean of (found - true) / true.
        resolved: share of the seeds whose result is resolved.
        sum_shift: largest difference between the sum over phases and the energy of the training, as
            a share.
        bar: the largest mean error; ``None`` for a result that may be unresolved.
    """

    name: str
    error: float
    bias: float
    resolved: float
    sum_shift: float
    bar: float | None

    def bars(self) -> Iterator[Bar]:
        """Yield the bars."""
        name = f"repeated validation, {self.name}"
        yield Bar(name=f"{name}: sum over phases", value=self.sum_shift, at_most=_SUM)
        if self.bar is not None:
            yield Bar(name=f"{name}: mean error", value=self.error, at_most=self.bar)
            yield Bar(name=f"{name}: share resolved", value=self.resolved, at_least=1.0)

    def __str__(self) -> str:
        bar = "" if self.bar is None else f" (at most {self.bar:.0%})"
        return (
            f"repeated validation, {self.name:<18} mean |error| {self.error:7.2%}{bar}, "
            f"mean error {self.bias:+7.2%}, resolved {self.resolved:.0%}"
        )


def validations() -> list[Validation]:
    """Measure all trainings."""
    cells = {name: cell for name, (cell, _) in CASES.items()}
    return [_validation(name, runs) for name, runs in run_cells(cells, SEEDS, _FIRST_SEED)]


def _validation(name: str, runs: PhaseRuns) -> Validation:
    error = runs.error_j / runs.true_j
    return Validation(
        name=name,
        error=float(np.mean(np.abs(error))),
        bias=float(np.mean(error)),
        resolved=float(np.mean(runs.is_resolved)),
        sum_shift=float(np.max(runs.sum_shift)),
        bar=CASES[name][1],
    )

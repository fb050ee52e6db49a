"""Measures the quality of the intervals of repeated validations, cell by cell.

``python -m tests.benchmarks.common.phase_cells PATTERN RUNS`` prints coverage, half-width and
error of each cell whose name matches the regular expression. These runs are meant for fitting
constants: their lengths, delays, levels and seeds differ from those that ``calibration`` judges.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

import numpy as np

from tests.benchmarks.common.coverage import (
    NARROW,
    SHAPE_WIDTH_LIMIT,
    WIDTH_LIMIT,
    IntervalCell,
    interval_cell,
)
from tests.benchmarks.common.phase_design import NAMED, design, for_fitting
from tests.benchmarks.common.phase_runs import PhaseCell, measured, training
from tests.benchmarks.common.power_signal import Array
from tests.lanes import ONE_THREAD

_FIT_SEED: Final = 1_000_000
# Gains are drawn within this bound, which is that of NVIDIA's sensors (RAPL states 10 %).
_GAIN_BOUND: Final = 0.05
# The runs of a cell are divided into this many tasks of the pool, if there are enough.
_TASKS, _FEWEST_RUNS = 8, 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRuns:
    """Results of trainings with gain 1, (n,) each, in joules.

    Attributes:
        error_j: energy of all validations, found minus true; NaN if none was found.
        true_j: the true energy.
        shape_j: half-width of the interval without the systematic part.
        total_j: half-width of the whole interval.
        gain: factor of the readings with which whole intervals are judged.
        is_resolved: 1 for results that are resolved, otherwise 0.
        sum_shift: difference between the sum over phases and the energy of the whole training, as
            a share.
        seconds: time that a run took.
    """

    error_j: Array
    true_j: Array
    shape_j: Array
    total_j: Array
    gain: Array
    is_resolved: Array
    sum_shift: Array
    seconds: Array

    def shares(self, *, is_whole: bool) -> tuple[Array, Array]:
        """Return |error| and half-width as shares of the truth.

        All readings of a card with a gain g are g times those of a card without, and so are the
        energy and the errors that are found. Whole intervals are those of cards with a gain.
        """
        if not is_whole:
            return np.abs(self.error_j) / self.true_j, self.shape_j / self.true_j
        found_j = self.gain * (self.true_j + self.error_j)
        return np.abs(found_j - self.true_j) / self.true_j, self.gain * self.total_j / self.true_j


_MEASURED: Final = tuple(name for name in PhaseRuns.__slots__ if name != "gain")


@dataclass(frozen=True, slots=True)
class _Task:
    cell: PhaseCell
    seeds: tuple[int, ...]


def run_cells(
    cells: Mapping[str, PhaseCell], runs: int, first_seed: int = 0
) -> Iterator[tuple[str, PhaseRuns]]:
    """Yield the name and the results of each cell, computed on all cores.

    Args:
        cells: cells by name.
        runs: number of trainings of each cell.
        first_seed: seed of the first training.
    """
    seeds = range(first_seed, first_seed + runs)
    parts = max(min(runs // _FEWEST_RUNS, _TASKS), 1)
    tasks = [
        _Task(cell, tuple(seeds[part::parts])) for cell in cells.values() for part in range(parts)
    ]
    # Threads of NumPy's linear algebra would wait for each other. New processes read the variable.
    os.environ.update(ONE_THREAD)
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        done = pool.map(_run, tasks)
        for name in cells:
            columns = np.concatenate([next(done) for _ in range(parts)]).T
            values = dict(zip(_MEASURED, columns, strict=True))
            yield name, PhaseRuns(**values, gain=_gains(columns.shape[1], first_seed))


def _gains(count: int, seed: int) -> Array:
    """Return gains, (n,), one in each n-th part of their range, in random order.

    Gains drawn without this rule would differ in their median by 8 % from cell to cell.
    """
    parts = np.random.default_rng(seed).permutation(count) + 0.5
    gains: Array = 1.0 + _GAIN_BOUND * (2.0 * parts / count - 1.0)
    return gains


def _run(task: _Task) -> Array:
    return np.array([_row(task.cell, seed) for seed in task.seeds])


def _row(cell: PhaseCell, seed: int) -> tuple[float, ...]:
    """Return the fields ``_MEASURED`` of one training."""
    start_s = time.perf_counter()
    random = np.random.default_rng([seed, *cell.name.encode()])
    drawn = training(cell, random)
    found = measured(cell, drawn, random)
    energy, true_j = found.validation, drawn.true_j("validation")
    return (
        np.nan if energy.energy_j is None else energy.energy_j - true_j,
        true_j,
        float(np.hypot(1.96 * energy.stderr_j, energy.edge_j)),
        energy.error_j,
        float(energy.is_resolved),
        abs(found.sum_j / found.whole_j - 1.0),
        time.perf_counter() - start_s,
    )


def judged_cells(
    cells: Mapping[str, PhaseCell], runs: int, first_seed: int = 0
) -> Iterator[tuple[tuple[IntervalCell, IntervalCell], PhaseRuns]]:
    """Yield the shape part and the whole interval of each cell, and its runs."""
    for name, found in run_cells(cells, runs, first_seed):
        is_judged = cells[name].is_identified
        shape = interval_cell(
            name,
            "shape part",
            *found.shares(is_whole=False),
            width_limit=SHAPE_WIDTH_LIMIT if is_judged else None,
            narrow=NARROW,
        )
        whole = interval_cell(
            name,
            "whole interval",
            *found.shares(is_whole=True),
            width_limit=WIDTH_LIMIT if is_judged else None,
        )
        yield (shape, whole), found


def row(parts: Sequence[IntervalCell], runs: PhaseRuns, cells: int) -> str:
    """Return a line: coverage, half-width and its ratio to the error for each part, and the error.

    Args:
        parts: shape part and whole interval.
        runs: the runs.
        cells: number of all cells that are judged.
    """
    texts = [
        f"{'' if part.is_met(cells) else '! ':>2}{part.coverage:4.0%} {part.half_width:7.2%} "
        f"{part.ratio:5.1f} x"
        for part in parts
    ]
    error = runs.error_j / runs.true_j
    no_width = "" if parts[0].width_limit else " (width not judged)"
    return (
        f"{' | '.join(texts)} | error {np.nanmedian(np.abs(error)):7.2%}, "
        f"mean {np.nanmean(error):+7.2%}, resolved {runs.is_resolved.mean():4.0%}, "
        f"{1e3 * runs.seconds.mean():5.0f} ms  {parts[0].name}{no_width}"
    )


HEAD: Final = (
    "shape part (gain 1): held, half-width, in median errors | whole interval (any gain) | "
    "median and mean error  (! = misses a bar)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each matching cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", help="regular expression; '' for all cells")
    parser.add_argument("runs", type=int, help="trainings of each cell; bars need 200")
    told = parser.parse_args(arguments)
    cells = {
        name: for_fitting(cell)
        for name, cell in (NAMED | design()).items()
        if re.search(told.pattern, name)
    }
    print(f"{len(cells)} cells, with lengths and delays near those of their names\n{HEAD}")
    for parts, runs in judged_cells(cells, told.runs, _FIT_SEED):
        print(row(parts, runs, 2 * len(cells)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

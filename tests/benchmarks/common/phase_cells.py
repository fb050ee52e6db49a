"""The design of the trainings with phases, and the quality of the intervals in one of its cells.

``python -m tests.benchmarks.common.phase_cells PATTERN RUNS`` prints coverage, half-width and
error of each cell whose name matches the regular expression. These runs are meant for fitting
constants: their lengths, delays, levels and seeds differ from those that ``calibration`` judges.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tests.benchmarks.common.pairwise import Choice, pairwise
from tests.benchmarks.common.phase_runs import PhaseCell, measured, training
from tests.benchmarks.common.power_signal import Array
from tests.benchmarks.common.sensor_models import CARD_MODELS

FACTORS: Final = {
    "sensor": tuple(CARD_MODELS),
    "validation_s": (0.03, 0.06, 0.12, 0.3, 0.6, 1.0, 2.0),
    "repeats": (20, 60, 200),
    "load": ("flat", "staircase"),
    "delay": ((0.0, False), (0.03, False), (0.12, False), (0.0, True), (0.03, True), (0.12, True)),
    "length_spread": (0.0, 0.03),
    "share": (0.1, 0.25, 0.5),
}
# A training may last this much longer, s, for one more pair of levels.
_COSTLY_S: Final = 60.0
# For fitting: factor of lengths and of delays, time between steps of a staircase, and power.
_FIT_LENGTHS, _FIT_DELAYS, _FIT_STAIR_S = 1.13, 0.77, 0.085
_FIT_LEVELS_W: Final = (("idle", 70.0), ("train", 330.0), ("validation", 130.0))
FIT_SEED: Final = 1_000_000
# Gains are drawn within the bound that the sensor states, but at least this one.
_GAIN_BOUND: Final = 0.05


def design() -> list[PhaseCell]:
    """Return cells in which every pair of levels occurs, as cheap ones as possible."""
    return [_cell(choice) for choice in pairwise(FACTORS, lambda choice: _cost(_cell(choice)))]


def _cell(choice: Choice) -> PhaseCell:
    delay_s, is_jittered = choice["delay"]
    others = {name: level for name, level in choice.items() if name != "delay"}
    return PhaseCell(**others, delay_s=delay_s, is_delay_jittered=is_jittered)


def _cost(cell: PhaseCell) -> float:
    return cell.duration_s / _COSTLY_S


def for_fitting(cell: PhaseCell) -> PhaseCell:
    """Return a cell like this one with other lengths, delays and levels."""
    return replace(
        cell,
        validation_s=_FIT_LENGTHS * cell.validation_s,
        delay_s=_FIT_DELAYS * cell.delay_s,
        stair_s=_FIT_STAIR_S,
        levels_w=_FIT_LEVELS_W,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRuns:
    """Results of the runs of a cell with gain 1, (n,) each, in joules.

    Attributes:
        error_j: energy of all validations, found minus true; NaN if none was found.
        true_j: the true energy.
        shape_j: half-width of the interval without the systematic part.
        total_j: half-width of the whole interval.
        gain: factor of the readings that whole intervals are judged with.
        is_resolved: 1 for results that are resolved.
        seconds: time that a run took.
    """

    error_j: Array
    true_j: Array
    shape_j: Array
    total_j: Array
    gain: Array
    is_resolved: Array
    seconds: Array

    def shares(self, *, is_whole: bool) -> tuple[Array, Array]:
        """Return |error| and half-width as shares of the truth.

        All readings of a card with a gain g are g times those of one without, and so are energy
        and errors that are found. Whole intervals are those of such cards.
        """
        if not is_whole:
            return np.abs(self.error_j) / self.true_j, self.shape_j / self.true_j
        found_j = self.gain * (self.true_j + self.error_j)
        return np.abs(found_j - self.true_j) / self.true_j, self.gain * self.total_j / self.true_j


@dataclass(frozen=True, slots=True)
class _Task:
    cell: PhaseCell
    seeds: tuple[int, ...]


def run_cells(cells: Iterable[PhaseCell], runs: int, first_seed: int = 0) -> Iterator[PhaseRuns]:
    """Yield the results of each cell, with ``runs`` trainings each, computed on all cores."""
    seeds = range(first_seed, first_seed + runs)
    with ProcessPoolExecutor() as pool:
        parts = max(min(runs // 10, 8), 1)
        tasks = [_Task(cell, tuple(seeds[part::parts])) for cell in cells for part in range(parts)]
        done = pool.map(_run, tasks)
        for _ in range(len(tasks) // parts):
            rows = np.concatenate([next(done) for _ in range(parts)])
            yield _as_runs(rows)


def _as_runs(rows: Array) -> PhaseRuns:
    names = ("error_j", "true_j", "shape_j", "total_j", "gain", "is_resolved", "seconds")
    return PhaseRuns(**dict(zip(names, rows.T, strict=True)))


def _run(task: _Task) -> Array:
    return np.array([_row(task.cell, seed) for seed in task.seeds])


def _row(cell: PhaseCell, seed: int) -> tuple[float, ...]:
    start_s = time.perf_counter()
    random = np.random.default_rng([seed, *cell.name.encode()])
    drawn = training(cell, random)
    found = measured(cell, drawn, random)
    true_j = drawn.true_j("validation")
    error_j = np.nan if found.energy_j is None else found.energy_j - true_j
    edge_j = getattr(found, "edge_j", 0.0)
    shape_j = float(np.hypot(1.96 * found.stderr_j, edge_j))
    bound = found.systematic_j / found.energy_j if found.energy_j else 0.0
    bound = max(bound, _GAIN_BOUND)
    gain = 1.0 + random.uniform(-bound, bound)
    took_s = time.perf_counter() - start_s
    return error_j, true_j, shape_j, found.error_j, gain, float(found.is_resolved), took_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each matching cell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", help="regular expression; '' for all cells")
    parser.add_argument("runs", type=int, help="trainings for each cell")
    told = parser.parse_args(arguments)
    cells = [cell for cell in map(for_fitting, design()) if re.search(told.pattern, cell.name)]
    print(f"{len(cells)} cells; held, half-width in median errors, of: shape part | whole interval")
    for cell, runs in zip(cells, run_cells(cells, told.runs, FIT_SEED), strict=True):
        print(row(cell, runs), flush=True)
    return 0


def row(cell: PhaseCell, runs: PhaseRuns) -> str:
    """Return the quality of the intervals of a cell as a line of text."""
    texts = []
    for is_whole in (False, True):
        error, width = runs.shares(is_whole=is_whole)
        middle = float(np.nanmedian(error))
        ratio = float(np.median(width)) / middle
        texts.append(f"{np.mean(error <= width):4.0%} {np.median(width):7.2%} {ratio:5.1f} x")
    error = runs.error_j / runs.true_j
    judged = "" if cell.is_identified else " (width not judged)"
    return (
        f"{' | '.join(texts)} | error {np.nanmedian(np.abs(error)):7.2%}, "
        f"mean {np.nanmean(error):+7.2%}, resolved {runs.is_resolved.mean():4.0%}, "
        f"{1e3 * runs.seconds.mean():5.0f} ms  {cell.name}{judged}"
    )


if __name__ == "__main__":
    sys.exit(main())

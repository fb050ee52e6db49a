"""Measures how often the stated intervals hold the truth, and whether they are too wide.

Two kinds of windows are measured in virtual time, on simulated sensors of known energy:

* phases: the validations of a training, whose edges are edges of the load. Conditions are in
  ``common/phase_design.py``: every pair of levels occurs in some cell;
* random windows, under loads that know nothing of the windows (``common/random_windows.py``).

In each cell, two parts of the interval are judged: the whole 95 % interval, of sensors whose gain
is anywhere within the stated bound, and the part without the systematic bound, of sensors without
an error of gain. The bars (``common/coverage.py``):

* the interval holds the truth. A cell misses if the share held is below 90 % so clearly that chance
  explains it with a probability below 1 % over all cells;
* the median half-width is at most 4 times the median error. The part without the systematic bound
  may also be up to 1 % of the truth, and 6 median errors for phases. For phases, widths are judged
  if the sensor can determine the levels of the phases and their delay.

Constants are fitted on other lengths, delays, levels and seeds (``common/phase_cells.py``).

``python -m tests.benchmarks.calibration [--quick] [--json FILE]``: 20 to 25 minutes on two cores;
quick, with 12 named cells of phases, about one.
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from tests.benchmarks import bars
from tests.benchmarks.common import random_windows
from tests.benchmarks.common.coverage import FEWEST, IntervalCell, bars_of
from tests.benchmarks.common.phase_cells import HEAD, judged_cells, row
from tests.benchmarks.common.phase_design import DATED, NAMED, design
from tests.benchmarks.common.runs import measured_all

SEEDS, QUICK_SEEDS = 20, 3
EXACT_SEEDS = 10
RUNS: Final = FEWEST


def windows(*, is_quick: bool) -> tuple[list[IntervalCell], list[IntervalCell]]:
    """Return the judged cells of random windows, and those of loads without bars."""
    judged = random_windows.runs(QUICK_SEEDS if is_quick else SEEDS)
    exact = [] if is_quick else random_windows.exact_runs(EXACT_SEEDS)
    results = measured_all([*judged, *exact])
    return (
        list(random_windows.cells({run: results[run] for run in judged})),
        list(random_windows.cells({run: results[run] for run in exact}, by_load=True)),
    )


def phases(*, is_quick: bool) -> Iterator[IntervalCell]:
    """Yield the cells of phases, and print a row for each."""
    cells = NAMED if is_quick else NAMED | design() | DATED
    print(f"phases, {RUNS} trainings each\n{HEAD}")
    for parts, runs in judged_cells(cells, RUNS):
        print(row(parts, runs, 2 * len(cells)), flush=True)
        yield from parts


def main() -> int:
    """Print the tables and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    of_phases = list(phases(is_quick=arguments.quick))
    judged, exact = windows(is_quick=arguments.quick)
    for part in random_windows.PARTS:
        print(f"\nrandom windows, {part} (! = misses a bar)")
        print(random_windows.table(judged, part, len(of_phases) + len(judged)), flush=True)
    if exact:
        print("\nrandom windows, no bars: loads that most sensors measure exactly")
        print(random_windows.table(exact, "shape part"))
    found = [*of_phases, *judged]
    return bars.finish(
        "calibration",
        arguments,
        bars_of(found),
        cells=[asdict(cell) for cell in found],
        no_bars=[asdict(cell) for cell in exact],
    )


if __name__ == "__main__":
    sys.exit(main())

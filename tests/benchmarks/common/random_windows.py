"""Measures the intervals of windows at random moments, on cards of the simulated driver.

A cell is one sensor and one length of windows, with the windows of eight loads: square waves of 31
to 230 ms and staircases of 60 and 150 ms between 100 and 400 W. Each run varies these periods by up
to 10 %, so that no load is a multiple of a window or of a sensor's period by design. Loads that
beat with a sensor have exactly their period, and cells of their own.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from tests.benchmarks.common.cards import WIDTHS_S, Array, Windows
from tests.benchmarks.common.coverage import NARROW, IntervalCell, Part, interval_cell
from tests.benchmarks.common.runs import Results, Run

SENSORS: Final = (
    "samples and counter (H200)",
    "25 % duty and counter (A100)",
    "counter only (A100)",
    "50 % duty only (Pascal)",
    "1 s average and counter",
    "1 s average only",
    "50 % duty and counter (V100)",
    "samples and counter (V100)",
)
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
BEATS: Final = (
    ("samples and counter (H200)", "21 ms"),
    ("counter only (A100)", "97 ms"),
    ("25 % duty only (A100)", "97 ms"),
    ("1 s average only", "1030 ms"),
)
# Most sensors measure these exactly, so that no width can be compared with the error of zero.
EXACT: Final = ("1030 ms", "constant")
_WINDOWS: Final = 100
_SPREAD: Final = 0.1
# The systematic bound of NVIDIA's sensors (sensing/sources/nvidia/known_sensors.py).
_GAIN_BOUND: Final = 0.05
PARTS: Final[tuple[Part, ...]] = ("shape part", "whole interval")


def runs(seeds: int) -> list[Run]:
    """Return the runs of all judged cells."""
    pooled = [
        Run(card=sensor, load=load, seed=seed, count=_WINDOWS, spread=_SPREAD)
        for sensor in SENSORS
        for load in LOADS
        for seed in range(seeds)
    ]
    beats = [
        Run(card=sensor, load=load, seed=seed, count=_WINDOWS)
        for sensor, load in BEATS
        for seed in range(seeds)
    ]
    return [*pooled, *beats]


def exact_runs(seeds: int) -> list[Run]:
    """Return the runs of loads that most sensors measure exactly."""
    return [
        Run(card=sensor, load=load, seed=seed, count=_WINDOWS, spread=_SPREAD)
        for sensor in SENSORS
        for load in EXACT
        for seed in range(seeds)
    ]


def cells(results: Results, *, by_load: bool = False) -> Iterator[IntervalCell]:
    """Yield the cells of all runs: for each sensor, or for each sensor and load that beat.

    Args:
        results: windows of each run.
        by_load: whether every load has its own cells.
    """
    groups: dict[str, list[Run]] = {}
    for run in results:
        name = f"exactly {run.load}, {run.card}" if not run.spread else run.card
        groups.setdefault(f"{run.load}, {run.card}" if by_load else name, []).append(run)
    for part in PARTS:
        narrow = NARROW if part == "shape part" else 0.0
        for name, members in groups.items():
            for width_s in WIDTHS_S:
                found = [results[run][width_s] for run in members]
                pairs = np.concatenate([_shares(windows, part) for windows in found], axis=1)
                yield interval_cell(f"{name}, {1e3 * width_s:g} ms", part, *pairs, narrow=narrow)


def _shares(windows: Windows, part: Part) -> Array:
    """Return |error| and half-width as shares of the truth, (2, n).

    The windows are of cards without an error of gain. All readings of a card with a gain g are g
    times as large, and so are the energies and errors that are found. Whole intervals are those of
    such cards, with another gain for each window.
    """
    if part == "shape part":
        return np.array([np.abs(windows.error_j), windows.random_j]) / windows.true_j
    count = len(windows.true_j)
    gain = 1.0 + np.random.default_rng(5).uniform(-_GAIN_BOUND, _GAIN_BOUND, count)
    found_j = gain * (windows.true_j + windows.error_j)
    return np.array([np.abs(found_j - windows.true_j), gain * windows.total_j]) / windows.true_j


def table(found: Sequence[IntervalCell], part: Part, cells: int | None = None) -> str:
    """Return a table: a row for each sensor, a column for each length of windows.

    Args:
        found: the cells.
        part: the part of the interval to show.
        cells: number of all cells that are judged; ``None`` if these have no bars.
    """
    lines = [_line(part, [f"{1e3 * width_s:g} ms" for width_s in WIDTHS_S])]
    lines.append(_line("", ["held, width, error"] * len(WIDTHS_S)))
    rows: dict[str, list[str]] = {}
    for cell in found:
        if cell.part == part:
            missed = "" if cells is None or cell.is_met(cells) else "! "
            text = f"{missed}{cell.coverage:.1%} {cell.ratio:.3g} x {cell.error:.2%}"
            rows.setdefault(cell.name.rpartition(",")[0], []).append(text)
    lines += [_line(name, texts) for name, texts in rows.items()]
    return "\n".join(lines)


def _line(first: str, texts: Iterable[str]) -> str:
    return f"{first:<44}" + "".join(f"{text:>25}" for text in texts)

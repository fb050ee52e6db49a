"""Measures the error of the energy of windows on cards of known energy.

Simulated cards (``cards``) are measured for a minute in virtual time. The table has the mean of
|found - true| / true over random windows, as the median of five seeds. Loads are square waves
between 100 and 400 W and a staircase of 60 ms, with exactly the periods of their names. The card
like an H200 has bars; the others show what their sensors allow.

With ``--data FOLDER`` windows of recorded cards are shown as well (``recordings``: folders
``external_meter`` and ``h200_power``). ``peers`` measures other tools on such a card.

``python -m tests.benchmarks.accuracy [--quick] [--json FILE] [--data FOLDER]``
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.cards import CARDS, WIDTHS_S
from tests.benchmarks.common.recordings import Finding, findings
from tests.benchmarks.common.runs import Results, Run, measured_all

LOADS: Final = ("31 ms", "97 ms", "230 ms", "1030 ms", "staircase")
JUDGED: Final = "samples and counter (H200)"
_FAST: Final = {0.05: 0.13, 0.2: 0.032, 1.0: 0.008, 5.0: 0.002}
_SLOW: Final = {0.05: 0.08, 0.2: 0.016, 1.0: 0.005, 5.0: 0.0012}
# load to length of windows to the largest mean error, as a share
BARS: Final[Mapping[str, Mapping[float, float]]] = {
    "31 ms": _FAST,
    "97 ms": _FAST,
    "230 ms": _SLOW,
    "1030 ms": _SLOW,
    "staircase": _SLOW,
}
SEEDS, QUICK_SEEDS = 5, 3
_WINDOWS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Mean error of one card under one load in windows of one length, as a share."""

    card: str
    load: str
    width_s: float
    error: float

    @property
    def bar(self) -> float | None:
        """The largest error; ``None`` if it is not judged."""
        return BARS[self.load][self.width_s] if self.card == JUDGED else None

    @property
    def is_met(self) -> bool:
        """Whether the bar is met, or there is none."""
        return self.bar is None or self.error <= self.bar


def simulated(seeds: int) -> list[Cell]:
    """Measure all cards under all loads."""
    cases = [(card, load) for card in CARDS for load in LOADS]
    runs = [
        Run(card=card, load=load, seed=seed, count=_WINDOWS)
        for card, load in cases
        for seed in range(seeds)
    ]
    return cells(measured_all(runs))


def cells(results: Results) -> list[Cell]:
    """Return the median over seeds of the mean errors."""
    errors: dict[tuple[str, str, float], list[float]] = {}
    for run, found in results.items():
        for width_s, windows in found.items():
            mean = float(np.mean(np.abs(windows.error_j) / windows.true_j))
            errors.setdefault((run.card, run.load, width_s), []).append(mean)
    return [
        Cell(card=card, load=load, width_s=width_s, error=float(np.median(means)))
        for (card, load, width_s), means in errors.items()
    ]


def table(found: Sequence[Cell]) -> str:
    """Return the table, in per cent: a row for each card and load, a column for each length."""
    heads = "".join(f"{f'{1e3 * width_s:g} ms':>18}" for width_s in WIDTHS_S)
    lines = [f"{'mean |error|, %':<32}{heads}"]
    for card in dict.fromkeys(c.card for c in found):
        lines.append(card)
        for load in dict.fromkeys(c.load for c in found):
            row = (c for c in found if (c.card, c.load) == (card, load))
            lines.append(f"  {load:<30}" + "".join(f"{_text(c):>18}" for c in row))
    return "\n".join(lines)


def _text(c: Cell) -> str:
    bar = "" if c.bar is None else f" ({'' if c.is_met else 'MISSED '}{100 * c.bar:g})"
    return f"{100 * c.error:.3f}{bar}"


def recorded(folder: Path | None) -> list[Finding]:
    """Print and return the errors on recordings; without a folder, print that none are shown."""
    if folder is None:
        print("recordings: not shown, no folder was given (--data FOLDER)")
        return []
    found = list(findings(folder))
    for finding in found:
        bar = "" if finding.bar is None else f", bar {finding.bar:.1%}"
        print(f"{finding.what:<86}{finding.error:>8.2%}{bar}: {finding.verdict}")
    return found


def judged(found: Sequence[Cell], of_recordings: Sequence[Finding]) -> list[Bar]:
    """Return the bars of simulated and recorded cards."""
    simulated_bars = [
        Bar(
            name=f"{c.load}, {1e3 * c.width_s:g} ms windows: mean error",
            value=c.error,
            at_most=c.bar,
        )
        for c in found
        if c.bar is not None
    ]
    recorded_bars = [
        Bar(name=f.what.partition(" (")[0], value=f.error, at_most=f.bar)
        for f in of_recordings
        if f.bar is not None
    ]
    return simulated_bars + recorded_bars


def main() -> int:
    """Print the tables and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with recordings of real cards")
    arguments = parser.parse_args()
    found = simulated(QUICK_SEEDS if arguments.quick else SEEDS)
    print(table(found), end="\n\n", flush=True)
    of_recordings = recorded(arguments.data)
    return bars.finish(
        "accuracy",
        arguments,
        judged(found, of_recordings),
        cells=[asdict(c) for c in found],
        recordings=[asdict(f) for f in of_recordings],
    )


if __name__ == "__main__":
    sys.exit(main())

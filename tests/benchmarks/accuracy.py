"""How far the energy of a window is from the truth, card by card.

Simulated cards of known energy (``cards``) are measured for a minute on virtual time; the table is
the mean of |found - true| / true over random windows, median of five seeds. Loads are squares
between 100 and 400 W and a staircase of 60 ms, exactly as named. The card like an H200 has bars;
the others show what their sensors allow.

Then the same windows by other tools, in real time (``peers``), and with ``--data FOLDER`` windows
of recorded cards (``recordings``: folders ``external_meter`` and ``h200_power``).

``python -m tests.benchmarks.accuracy [--quick] [--json FILE] [--without-peers] [--data FOLDER]``:
3 minutes, nearly all of it for the peers; quick one.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks import peers
from tests.benchmarks.cards import CARDS, WIDTHS_S
from tests.benchmarks.recordings import Finding, findings
from tests.benchmarks.runs import Results, Run, measured_all

LOADS: Final = ("31 ms", "97 ms", "230 ms", "1030 ms", "staircase")
JUDGED: Final = "samples and counter (H200)"
_FAST: Final = {0.05: 0.13, 0.2: 0.032, 1.0: 0.008, 5.0: 0.002}
_SLOW: Final = {0.05: 0.08, 0.2: 0.016, 1.0: 0.005, 5.0: 0.0012}
# load -> length of windows -> the most that the mean error may be, as a share
BARS: Final[Mapping[str, Mapping[float, float]]] = {
    "31 ms": _FAST,
    "97 ms": _FAST,
    "230 ms": _SLOW,
    "1030 ms": _SLOW,
    "staircase": _SLOW,
}
SEEDS, QUICK_SEEDS = 5, 3
_WINDOWS: Final = 200
QUICK_PEER_WINDOWS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Mean error of one card under one load in windows of one length, as a share."""

    card: str
    load: str
    width_s: float
    error: float

    @property
    def bar(self) -> float | None:
        """The most that it may be; ``None`` where nothing is judged."""
        return BARS[self.load][self.width_s] if self.card == JUDGED else None

    @property
    def is_met(self) -> bool:
        """Whether no bar is missed."""
        return self.bar is None or self.error <= self.bar


def simulated(seeds: int) -> list[Cell]:
    """All cards under all loads."""
    cases = [(card, load) for card in CARDS for load in LOADS]
    runs = [
        Run(card=card, load=load, seed=seed, count=_WINDOWS)
        for card, load in cases
        for seed in range(seeds)
    ]
    return cells(measured_all(runs))


def cells(results: Results) -> list[Cell]:
    """The median over seeds of the mean error."""
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
    """Cards and loads down, lengths of windows across, in per cent; the bar behind what has one."""
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
    """Prints and returns what recordings show; without a folder it says that nothing is shown."""
    if folder is None:
        print("recordings: not shown, no folder was given (--data FOLDER)")
        return []
    found = list(findings(folder))
    for finding in found:
        bar = "" if finding.bar is None else f", bar {finding.bar:.1%}"
        print(f"{finding.what:<86}{finding.error:>8.2%}{bar}: {finding.verdict}")
    return found


def compared(windows: int) -> tuple[list[peers.Verdict], bool]:
    """Prints the peers beside ours; their verdicts, and whether all bars are shown to be met."""
    rows = list(peers.measure_all(windows))
    found, absent = peers.verdicts(rows), peers.missing()
    print(peers.table(rows))
    for verdict in found:
        if not verdict.is_met:
            print(
                f"bar: {verdict.tool} {verdict.bar:g} x worse, {1e3 * verdict.period_s:.0f} ms "
                f"wave, {1e3 * verdict.duration_s:.0f} ms windows: MISSED"
            )
    for tool in absent:
        print(f"{tool}: not installed, its bars are not shown; pip install -e '.[benchmarks]'")
    return found, not absent and all(v.is_met for v in found)


def main() -> int:
    """Print the tables; 1 where a bar is missed, or cannot be shown for want of a peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--without-peers", action="store_true", help="leave other tools out")
    parser.add_argument("--data", type=Path, help="folder with recordings of real cards")
    arguments = parser.parse_args()
    found = simulated(QUICK_SEEDS if arguments.quick else SEEDS)
    print(table(found))
    missed = sum(not c.is_met for c in found)
    print(f"bars of {JUDGED}: {f'MISSED in {missed} cells' if missed else 'met'}\n", flush=True)
    of_recordings = recorded(arguments.data)
    beside: list[peers.Verdict] = []
    is_met = not missed and all(f.verdict != "MISSED" for f in of_recordings)
    if not arguments.without_peers:
        print(flush=True)
        beside, is_beaten = compared(QUICK_PEER_WINDOWS if arguments.quick else peers.WINDOWS)
        is_met = is_met and is_beaten
    if arguments.json:
        said = {"cells": found, "recordings": of_recordings, "peers": beside}
        rows = {name: [asdict(row) for row in part] for name, part in said.items()}
        arguments.json.write_text(json.dumps(rows))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())

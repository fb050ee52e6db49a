"""Measures the error of the energy of windows and phases on sensors of known energy.

Simulated cards (``cards``) are measured for a minute in virtual time. The first table has the mean
of |found - true| / true over random windows, as the median of five seeds. Loads are square waves
between 100 and 400 W, a sine, bursts and a staircase of 60 ms, with exactly the periods of their
names. The card like an H200 has bars; the others show what their sensors allow. For cards with a
counter, a second row shows the error of the counter alone, interpolated between all of its ticks
at their exact times; on cards whose counter costs little to read, no error may be more than 10 %
larger than that.

The second table has the mean error of the energy of a validation that is repeated in a training
(``phase_runs``): power is constant in each phase, and changes where the host reports it.

With ``--data FOLDER`` windows of recorded cards are shown as well (``recordings``: folders
``external_meter`` and ``h200_power``). ``peers`` measures other tools on such a card.

``python -m tests.benchmarks.accuracy [--quick] [--json FILE] [--data FOLDER]``
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.cards import CARDS, WIDTHS_S
from tests.benchmarks.common.recordings import Finding, findings
from tests.benchmarks.common.repeated_validations import Validation, validations
from tests.benchmarks.common.runs import Results, Run, measured_all

LOADS: Final = ("31 ms", "97 ms", "170 ms sine", "bursts", "230 ms", "1030 ms", "staircase")
JUDGED: Final = "samples and counter (H200)"
_STEPS: Final = {0.05: 0.13, 0.2: 0.032, 1.0: 0.006, 5.0: 0.0015}
_FAST: Final = {0.05: 0.13, 0.2: 0.032, 1.0: 0.008, 5.0: 0.002}
_MIDDLE: Final = {0.05: 0.07, 0.2: 0.016, 1.0: 0.005, 5.0: 0.0012}
_SLOW: Final = {0.05: 0.08, 0.2: 0.016, 1.0: 0.005, 5.0: 0.0012}
# load to length of windows to the largest mean error, as a share
BARS: Final[Mapping[str, Mapping[float, float]]] = {
    "31 ms": _STEPS,
    "97 ms": _FAST,
    "230 ms": _MIDDLE,
    "1030 ms": _SLOW,
    "staircase": _SLOW,
}
# Cards whose errors are compared with those of the interpolated counter.
COMPARED: Final = (
    "25 % duty and counter (A100)",
    "counter only (A100)",
    "50 % duty and counter (V100)",
    "samples and counter (V100)",
    "1 s average and counter",
)
_WORSE: Final = 1.1
SEEDS, QUICK_SEEDS = 5, 3
_WINDOWS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Mean error of one card under one load in windows of one length, as a share.

    Attributes:
        card: one of ``CARDS``.
        load: one of ``LOADS``.
        width_s: length of the windows.
        error: mean error of the package.
        counter_error: mean error of the interpolated counter; ``None`` without a counter.
    """

    card: str
    load: str
    width_s: float
    error: float
    counter_error: float | None = None

    @property
    def bar(self) -> float | None:
        """The largest error; ``None`` if it is not judged."""
        if self.card in COMPARED and self.counter_error is not None:
            return _WORSE * self.counter_error
        of_load = BARS.get(self.load, {})
        return of_load.get(self.width_s) if self.card == JUDGED else None

    @property
    def name(self) -> str:
        """Name of the bar."""
        compared = f"{self.card}, " if self.card in COMPARED else ""
        return f"{compared}{self.load}, {1e3 * self.width_s:g} ms windows: mean error"

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
    errors: dict[tuple[str, str, float], list[tuple[float, float]]] = {}
    for run, found in results.items():
        for width_s, windows in found.items():
            both = [windows.error_j, windows.counter_error_j]
            means = [
                np.nan if one is None else float(np.mean(np.abs(one) / windows.true_j))
                for one in both
            ]
            errors.setdefault((run.card, run.load, width_s), []).append((means[0], means[1]))
    return [_cell(*conditions, np.median(pairs, axis=0)) for conditions, pairs in errors.items()]


def _cell(card: str, load: str, width_s: float, medians: "np.ndarray") -> Cell:
    error, counter_error = map(float, medians)
    return Cell(
        card=card,
        load=load,
        width_s=width_s,
        error=error,
        counter_error=None if np.isnan(counter_error) else counter_error,
    )


def table(found: Sequence[Cell]) -> str:
    """Return the table, in per cent: a row for each card and load, a column for each length."""
    heads = "".join(f"{f'{1e3 * width_s:g} ms':>26}" for width_s in WIDTHS_S)
    lines = [f"{'mean |error|, %':<32}{heads}"]
    for card in dict.fromkeys(c.card for c in found):
        lines.append(card)
        for load in dict.fromkeys(c.load for c in found):
            row = [c for c in found if (c.card, c.load) == (card, load)]
            lines.append(f"  {load:<30}" + "".join(f"{_text(c):>26}" for c in row))
            if any(c.counter_error is not None for c in row):
                lines.append(f"  {'  interpolated counter':<30}" + "".join(map(_counter, row)))
    return "\n".join(lines)


def _text(c: Cell) -> str:
    bar = "" if c.bar is None else f" ({'' if c.is_met else 'MISSED '}{100 * c.bar:.3g})"
    return f"{100 * c.error:.3f}{bar}"


def _counter(c: Cell) -> str:
    return f"{'' if c.counter_error is None else f'{100 * c.counter_error:.3f}':>26}"


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


def judged(
    found: Sequence[Cell], of_recordings: Sequence[Finding], of_phases: Sequence[Validation] = ()
) -> list[Bar]:
    """Return the bars of simulated and recorded cards, and of repeated validations."""
    simulated_bars = [
        Bar(name=c.name, value=c.error, at_most=c.bar) for c in found if c.bar is not None
    ]
    recorded_bars = [
        Bar(name=f.what.partition(" (")[0], value=f.error, at_most=f.bar)
        for f in of_recordings
        if f.bar is not None
    ]
    return [*simulated_bars, *recorded_bars, *_bars_of_phases(of_phases)]


def _bars_of_phases(found: Sequence[Validation]) -> Iterator[Bar]:
    return (bar for one in found for bar in one.bars())


def main() -> int:
    """Print the tables and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with recordings of real cards")
    arguments = parser.parse_args()
    found = simulated(QUICK_SEEDS if arguments.quick else SEEDS)
    print(table(found), end="\n\n", flush=True)
    of_phases = validations()
    print("\n".join(map(str, of_phases)), end="\n\n", flush=True)
    of_recordings = recorded(arguments.data)
    return bars.finish(
        "accuracy",
        arguments,
        judged(found, of_recordings, of_phases),
        cells=[asdict(c) for c in found],
        validations=[asdict(one) for one in of_phases],
        recordings=[asdict(f) for f in of_recordings],
    )


if __name__ == "__main__":
    sys.exit(main())

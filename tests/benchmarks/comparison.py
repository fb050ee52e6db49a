"""How often the intervals and verdicts of a comparison are right, where the truth is known.

Each comparison is of whole reports through ``compare``, five a side: energy, time and samples of a
training whose runs differ by 2 % by chance, with a true difference of 0, 2 or 10 %. ``runs`` are
made one group after the other, ``pairs`` in turn while the room gets warmer and takes all runs with
it by up to 5 %.

Bars: the 95 % interval holds the true ratio of energy per sample in 92 to 98 % of comparisons; a
verdict where there is no difference in at most 8 %; 10 % resolved in at least 95 %. Beside ours
stand what people do else: a plain bootstrap over the same runs, and Welch's test on all samples of
the power of all runs at 1 Hz, as if neighbours were independent.

``python -m tests.benchmarks.comparison [--quick] [--json FILE]``: a thousand comparisons of each
kind take some minutes, quick a hundred and fifty.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from energy_callbacks.compare import compare
from energy_callbacks.report import EnergyReport, build
from energy_callbacks.report.model.models import Memory
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.report import journals

RUNS: Final = 5
NOISE: Final = 0.02
DRIFT: Final = 0.05
DIFFERENCES: Final = (0.0, 0.02, 0.10)
HOLDS: Final = (0.92, 0.98)
FALSE: Final = 0.08
FOUND: Final = 0.95
# Samples of power in a run, and how far neighbours resemble each other: a first-order process
# with a memory of about ten seconds, 5 % around the run's own mean.
_SAMPLES, _MEMORY, _SCATTER = 300, 0.9, 0.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to compare, many comparisons.

    Attributes:
        way: who compares, and how the runs were made.
        difference: true change, as a share.
        holds: share of comparisons whose interval holds it.
        resolved: share of comparisons with a verdict.
        detectable: median of the smallest change that is said to be found; ``None``: not said.
        is_judged: whether bars are for it.
    """

    way: str
    difference: float
    comparisons: int
    holds: float
    resolved: float
    detectable: float | None
    is_judged: bool

    def bars(self) -> Iterator[Bar]:
        """What it must keep."""
        if not self.is_judged:
            return
        name = f"{self.way}, {self.difference:.0%} of difference"
        yield Bar(name=f"{name}: held", value=self.holds, at_least=HOLDS[0], at_most=HOLDS[1])
        if self.difference == 0.0:
            yield Bar(name=f"{name}: false verdicts", value=self.resolved, at_most=FALSE)
        elif self.difference >= 0.1:
            yield Bar(name=f"{name}: resolved", value=self.resolved, at_least=FOUND)


def base() -> EnergyReport:
    """A training of a minute: all runs are copies of it with other figures."""
    with tempfile.TemporaryDirectory() as folder:
        journals.write(Path(folder), journals.Attempt(cut_off_at_s=None))
        report = build(folder)
    nothing = Memory(
        device_used_peak_bytes=None, peak_allocated_bytes=None, host_rss_peak_bytes=None,
        host_rss_mean_bytes=None,
    )  # fmt: skip
    return replace(report, memory=nothing, series=(), timeline=(), progress=None)


def run(report: EnergyReport, factor: float, started_unix_s: float) -> EnergyReport:
    """The same training at another power; its time scatters a tenth as much."""

    def energy(figure):
        return replace(
            figure, energy_j=figure.energy_j * factor, systematic_j=figure.systematic_j * factor
        )

    def ratio(found):
        return found and replace(
            found, value_j=found.value_j * factor, low_j=found.low_j * factor,
            high_j=found.high_j * factor,
        )  # fmt: skip

    whole = report.energy
    total = report.efficiency.total
    return replace(
        report,
        run=replace(
            report.run,
            started_unix_s=started_unix_s,
            duration_s=report.run.duration_s * factor**0.1,
        ),
        energy=replace(
            whole, gpu=energy(whole.gpu), host=energy(whole.host), total=energy(whole.total)
        ),
        efficiency=replace(
            report.efficiency,
            total=replace(
                total,
                j_per_step=ratio(total.j_per_step),
                j_per_sample=ratio(total.j_per_sample),
            ),
        ),
    )


def factors(dice: np.random.Generator, difference: float, *, in_turn: bool) -> np.ndarray:
    """(2, RUNS) of the two groups, in the order in which they were made."""
    found = np.exp(dice.normal(0.0, NOISE, size=(2, RUNS)))
    found[1] *= 1.0 - difference
    if in_turn:
        found *= np.exp(DRIFT * np.linspace(0.0, 1.0, RUNS))
    return found


def ours(report: EnergyReport, scales: np.ndarray, *, in_turn: bool):
    """The effect on energy per sample, and its verdict among all questions."""
    groups = {}
    for side, name in enumerate(("old", "new")):
        starts = [
            1000.0 * (2 * i + side) if in_turn else 1000.0 * (RUNS * side + i) for i in range(RUNS)
        ]
        groups[name] = [run(report, f, s) for f, s in zip(scales[side], starts, strict=True)]
    effect = compare(groups).effect("new", "j_per_sample")
    assert effect.basis == ("pairs" if in_turn else "runs")
    return effect


def plain_bootstrap(scales: np.ndarray, dice: np.random.Generator) -> tuple[float, float]:
    """Percentiles of the ratio of means of resampled runs, without any correction."""
    chosen = dice.integers(RUNS, size=(2, 2000, RUNS))
    means = [scales[side][chosen[side]].mean(axis=1) for side in (0, 1)]
    low, high = np.quantile(means[1] / means[0], (0.025, 0.975))
    return float(low), float(high)


def all_samples(scales: np.ndarray, dice: np.random.Generator) -> tuple[float, float]:
    """95 % of the ratio of mean powers, each of all samples of all runs taken as independent."""
    means, relative = [], []
    for side in (0, 1):
        noise = dice.normal(0.0, _SCATTER * (1.0 - _MEMORY**2) ** 0.5, size=(RUNS, _SAMPLES))
        for i in range(1, _SAMPLES):
            noise[:, i] += _MEMORY * noise[:, i - 1]
        power = scales[side][:, None] * (1.0 + noise)
        means.append(power.mean())
        relative.append(power.std(ddof=1) / power.mean() / power.size**0.5)
    half = 1.96 * float(np.hypot(*relative))
    ratio = means[1] / means[0]
    return ratio * (1.0 - half), ratio * (1.0 + half)


def measured(comparisons: int, difference: float) -> list[Row]:
    """All ways at one true difference."""
    report, truth = base(), 1.0 - difference
    dice = np.random.default_rng(round(1e4 * difference) + 7)
    rows = []
    for in_turn in (False, True):
        effects = [
            ours(report, factors(dice, difference, in_turn=in_turn), in_turn=in_turn)
            for _ in range(comparisons)
        ]
        rows.append(
            Row(
                way=f"energy_callbacks, {'pairs' if in_turn else 'runs'}",
                difference=difference,
                comparisons=comparisons,
                holds=float(np.mean([e.low <= truth <= e.high for e in effects])),
                resolved=float(np.mean([e.verdict != "not resolved" for e in effects])),
                detectable=float(np.median([e.detectable for e in effects])),
                is_judged=True,
            )
        )
    for way, interval in (
        ("plain bootstrap of runs", plain_bootstrap),
        ("all samples at 1 Hz", all_samples),
    ):
        ends = [
            interval(factors(dice, difference, in_turn=False), dice) for _ in range(comparisons)
        ]
        rows.append(
            Row(
                way=way,
                difference=difference,
                comparisons=comparisons,
                holds=float(np.mean([low <= truth <= high for low, high in ends])),
                resolved=float(np.mean([high < 1.0 or low > 1.0 for low, high in ends])),
                detectable=None,
                is_judged=False,
            )
        )
    return rows


def show(rows: Sequence[Row]) -> None:
    """The table."""
    print(f"{'':<26}{'truth':>8}{'holds it':>10}{'resolved':>10}{'detectable':>12}")
    for row in rows:
        told = "" if row.detectable is None else f"{100 * row.detectable:.1f} %"
        mark = "" if all(bar.is_met for bar in row.bars()) else "  misses a bar"
        print(
            f"{row.way:<26}{0.0 - 100 * row.difference:>6.0f} %{100 * row.holds:>8.1f} %"
            f"{100 * row.resolved:>8.1f} %{told:>12}{mark}"
        )


def main() -> int:
    """Print the table and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    comparisons = 150 if arguments.quick else 1000
    rows = [row for difference in DIFFERENCES for row in measured(comparisons, difference)]
    show(rows)
    return bars.finish(
        "comparison",
        arguments,
        [bar for row in rows for bar in row.bars()],
        rows=[asdict(row) for row in rows],
    )


if __name__ == "__main__":
    sys.exit(main())

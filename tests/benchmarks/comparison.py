"""Measures how often the intervals and verdicts of a comparison are right, if the truth is known.

Each comparison runs ``compare`` on whole reports, five a side: energy, time and samples of a
training whose runs vary by 2 % at random, with a true difference of 0, 2 or 10 %. In ``runs`` one
group is made after the other; in ``pairs`` they alternate while the room warms up and changes all
runs by up to 5 %.

Bars: the 95 % interval holds the true ratio of energy per sample in 92 to 98 % of comparisons; at
most 8 % have a verdict if there is no difference; at least 95 % resolve 10 %. Two common methods
are shown as well: a plain bootstrap over the same runs, and Welch's test on all samples of the
power of all runs at 1 Hz, as if neighbouring samples were independent.

``python -m tests.benchmarks.comparison [--quick] [--json FILE]``: a thousand comparisons of each
kind, which take some minutes; 150 with ``--quick``.
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
from energy_callbacks.report.model.runs import Memory
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
# Number of power samples of a run, and the correlation of neighbours: a first-order process with
# a memory of about ten seconds, 5 % around the mean of the run.
_SAMPLES, _MEMORY, _SCATTER = 300, 0.9, 0.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """The results of one method over many comparisons.

    Attributes:
        way: the method, and how the runs were made.
        difference: true change, as a share.
        holds: share of comparisons whose interval holds it.
        resolved: share of comparisons with a verdict.
        detectable: median of the stated smallest detectable change; ``None`` if none is stated.
        is_judged: whether it has bars.
    """

    way: str
    difference: float
    comparisons: int
    holds: float
    resolved: float
    detectable: float | None
    is_judged: bool

    def bars(self) -> Iterator[Bar]:
        """Return the bars of this row."""
        if not self.is_judged:
            return
        name = f"{self.way}, {self.difference:.0%} of difference"
        yield Bar(name=f"{name}: held", value=self.holds, at_least=HOLDS[0], at_most=HOLDS[1])
        if self.difference == 0.0:
            yield Bar(name=f"{name}: false verdicts", value=self.resolved, at_most=FALSE)
        elif self.difference >= 0.1:
            yield Bar(name=f"{name}: resolved", value=self.resolved, at_least=FOUND)


def base() -> EnergyReport:
    """Return a training of a minute; all runs are copies of it with other figures."""
    with tempfile.TemporaryDirectory() as folder:
        journals.write(Path(folder), journals.Attempt(cut_off_at_s=None))
        report = build(folder)
    nothing = Memory(
        device_used_peak_bytes=None, peak_allocated_bytes=None, host_rss_peak_bytes=None,
        host_rss_mean_bytes=None,
    )  # fmt: skip
    return replace(report, memory=nothing, series=(), timeline=(), progress=None)


def run(report: EnergyReport, factor: float, started_unix_s: float) -> EnergyReport:
    """Return the same training with another power; its duration varies a tenth as much."""

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
    """Return the factors of the two groups, (2, RUNS), in the order in which they were made."""
    found = np.exp(dice.normal(0.0, NOISE, size=(2, RUNS)))
    found[1] *= 1.0 - difference
    if in_turn:
        found *= np.exp(DRIFT * np.linspace(0.0, 1.0, RUNS))
    return found


def ours(report: EnergyReport, scales: np.ndarray, *, in_turn: bool):
    """Return the effect on energy per sample, and its verdict with all questions counted."""
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
    """Return percentiles of the ratio of means of resampled runs, without any correction."""
    chosen = dice.integers(RUNS, size=(2, 2000, RUNS))
    means = [scales[side][chosen[side]].mean(axis=1) for side in (0, 1)]
    low, high = np.quantile(means[1] / means[0], (0.025, 0.975))
    return float(low), float(high)


def all_samples(scales: np.ndarray, dice: np.random.Generator) -> tuple[float, float]:
    """Return the 95 % interval of the ratio of mean powers, all samples taken as independent."""
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
    """Run all methods at one true difference."""
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
    """Print the table."""
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

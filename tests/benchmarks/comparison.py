"""Measures how often the intervals and verdicts of a comparison are right, if the truth is known.

Each comparison runs ``compare`` on whole reports, five a side: energy, time and samples of a
training whose runs vary by 2 % at random, with a true difference of 0, 2 or 10 %:

* runs: a GPU and a CPU with energy counters, and normal noise
* pairs: as runs, but the groups alternate while the room warms up and changes all runs by up to 5 %
* skewed noise, heavy tails: as runs, with noise of an exponential distribution and of Student's t
  with three degrees of freedom
* in sequence: one group is made after the other while the room warms up
* estimates: models estimate the energy of all devices

Bars: the 95 % interval holds the true ratio of energy per sample in 92 to 98 % of comparisons (at
least 92 % if the noise is not normal); at most 8 % have a verdict if there is no difference; at
least 95 % of runs and pairs resolve 10 %. Groups in sequence are always flagged as not interleaved.
Estimates never have a verdict. Common methods are shown as well: Welch's t-test on the logarithms
of the same runs, a plain bootstrap over them, and Welch's test on all samples of the power of all
runs at 1 Hz, as if neighbouring samples were independent.

``python -m tests.benchmarks.comparison [--quick] [--json FILE]``: a thousand comparisons of each
kind, which take some minutes; 150 with ``--quick``, and 60 of the kinds with other noise, in
sequence and with estimates.
"""

import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from scipy import stats

from energy_callbacks.compare import compare
from energy_callbacks.core.records import Origin
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
# Number of comparisons from which the share of intervals that hold is judged.
_ENOUGH: Final = 150
# Number of power samples of a run, and the correlation of neighbours: a first-order process with
# a memory of about ten seconds, 5 % around the mean of the run.
_SAMPLES, _MEMORY, _SCATTER = 300, 0.9, 0.05


def normal(dice: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Return normal noise."""
    return dice.normal(size=size)


def skewed(dice: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Return noise of an exponential distribution: now and then, a run takes much more."""
    return dice.exponential(size=size) - 1.0


def heavy_tails(dice: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Return noise of Student's t with three degrees of freedom."""
    return dice.standard_t(3.0, size=size) / 3.0**0.5


class Answer(NamedTuple):
    """What one method says on one comparison."""

    low: float
    high: float
    is_resolved: bool
    detectable: float = math.nan
    is_flagged: bool = False


@dataclass(frozen=True, kw_only=True)
class Way:
    """A method, and how the runs that it compares were made.

    Attributes:
        name: name of method and runs.
        noise: returns random numbers of mean 0 and variance 1.
        drift: ``in turn`` or ``in sequence`` if the room warms up while the groups are made so.
        answer: returns the answer on the factors of the runs of both groups, (2, RUNS).
        differences: true differences.
        bars: names of its bars, see ``Row.bars``.
        has_few: whether a quick run makes few comparisons, from random numbers of their own.
    """

    name: str
    answer: Callable[[np.ndarray, np.random.Generator], Answer]
    noise: Callable[[np.random.Generator, tuple[int, int]], np.ndarray] = normal
    drift: str = ""
    differences: Sequence[float] = DIFFERENCES
    bars: Sequence[str] = ()
    has_few: bool = False

    def comparisons(self, *, is_quick: bool) -> int:
        """Return the number of comparisons."""
        quick = 60 if self.has_few else 150
        return quick if is_quick else 1000

    def factors(self, dice: np.random.Generator, difference: float) -> np.ndarray:
        """Return the factors of the two groups, in the order in which they were made."""
        found = np.exp(NOISE * self.noise(dice, (2, RUNS)))
        found[1] *= 1.0 - difference
        if self.drift == "in turn":
            found *= np.exp(DRIFT * np.linspace(0.0, 1.0, RUNS))
        elif self.drift == "in sequence":
            found *= np.exp(DRIFT * np.linspace(0.0, 1.0, 2 * RUNS).reshape(2, RUNS))
        return found


@dataclass(frozen=True, kw_only=True)
class Row:
    """The results of one method over many comparisons.

    Attributes:
        way: the method, and how the runs were made.
        difference: true change, as a share.
        comparisons: number of comparisons.
        holds: share of comparisons whose interval holds it.
        resolved: share of comparisons with a verdict.
        flagged: share of comparisons that are flagged as not interleaved.
        detectable: median of the stated smallest detectable change; ``None`` if none is stated.
        judged: names of its bars.
    """

    way: str
    difference: float
    comparisons: int
    holds: float
    resolved: float
    flagged: float
    detectable: float | None
    judged: Sequence[str]

    def bars(self) -> Iterator[Bar]:
        """Yield the bars of this row."""
        name = f"{self.way}, {self.difference:.0%} of difference"
        if "held" in self.judged:
            yield Bar(name=f"{name}: held", value=self.holds, at_least=HOLDS[0], at_most=HOLDS[1])
        if "held at least" in self.judged:
            is_sure = self.comparisons >= _ENOUGH
            yield Bar(name=f"{name}: held", value=self.holds, at_least=HOLDS[0], is_judged=is_sure)
        if "verdicts" in self.judged and self.difference == 0.0:
            yield Bar(name=f"{name}: false verdicts", value=self.resolved, at_most=FALSE)
        if "verdicts" in self.judged and self.difference >= 0.1:
            yield Bar(name=f"{name}: resolved", value=self.resolved, at_least=FOUND)
        if "no verdict" in self.judged:
            yield Bar(name=f"{name}: verdicts", value=self.resolved, at_most=0.0)
        if "flagged" in self.judged:
            yield Bar(name=f"{name}: flagged", value=self.flagged, at_least=1.0)


@cache
def base(origin: Origin) -> EnergyReport:
    """Return a training of a minute; all runs are copies of it with other figures."""
    devices = [replace(one, origin=origin) for one in (journals.GPU, journals.CPU)]
    with tempfile.TemporaryDirectory() as folder:
        journals.write(Path(folder), journals.Attempt(devices=(*devices, journals.PROCESS)))
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


def ours(
    scales: np.ndarray,
    _: np.random.Generator,
    *,
    origin: Origin = "measured",
    in_turn: bool = False,
) -> Answer:
    """Return the answer on energy per sample, and its verdict with all questions counted."""
    groups = {}
    for side, name in enumerate(("old", "new")):
        starts = [
            1000.0 * (2 * i + side) if in_turn else 1000.0 * (RUNS * side + i) for i in range(RUNS)
        ]
        groups[name] = [run(base(origin), *one) for one in zip(scales[side], starts, strict=True)]
    found = compare(groups)
    effect = found.effect("new", "j_per_sample")
    assert effect.basis == ("pairs" if in_turn else "runs")
    return Answer(
        low=effect.low,
        high=effect.high,
        is_resolved=effect.verdict in ("lower", "higher"),
        detectable=effect.detectable,
        is_flagged=any(one.code == "not_interleaved" for one in found.caveats),
    )


def of_interval(low: float, high: float) -> Answer:
    """Return the answer of a method that gives a verdict if 1 is outside of its interval."""
    return Answer(low, high, high < 1.0 or low > 1.0)


def welch(scales: np.ndarray, _: np.random.Generator) -> Answer:
    """Return the answer of Welch's t-test on the logarithms of the runs."""
    test = stats.ttest_ind(np.log(scales[1]), np.log(scales[0]), equal_var=False)
    return of_interval(*np.exp(test.confidence_interval(0.95)))


def plain_bootstrap(scales: np.ndarray, dice: np.random.Generator) -> Answer:
    """Return percentiles of the ratio of means of resampled runs, without any correction."""
    chosen = dice.integers(RUNS, size=(2, 2000, RUNS))
    means = [scales[side][chosen[side]].mean(axis=1) for side in (0, 1)]
    return of_interval(*np.quantile(means[1] / means[0], (0.025, 0.975)))


def all_samples(scales: np.ndarray, dice: np.random.Generator) -> Answer:
    """Return the ratio of mean powers, all samples taken as independent."""
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
    return of_interval(ratio * (1.0 - half), ratio * (1.0 + half))


OURS: Final = "energy_callbacks"
WAYS: Final = (
    Way(name=f"{OURS}, runs", answer=ours, bars=("held", "verdicts")),
    Way(
        name=f"{OURS}, pairs",
        answer=partial(ours, in_turn=True),
        drift="in turn",
        bars=("held", "verdicts"),
    ),
    Way(name="plain bootstrap of runs", answer=plain_bootstrap),
    Way(name="all samples at 1 Hz", answer=all_samples),
    *(
        Way(
            name=f"{OURS}, {name}",
            answer=ours,
            noise=noise,
            differences=(0.0, 0.1),
            bars=("held at least",),
            has_few=True,
        )
        for name, noise in (("skewed noise", skewed), ("heavy tails", heavy_tails))
    ),
    Way(
        name=f"{OURS}, in sequence",
        answer=ours,
        drift="in sequence",
        differences=(0.0,),
        bars=("flagged",),
        has_few=True,
    ),
    Way(
        name=f"{OURS}, estimates",
        answer=partial(ours, origin="estimated"),
        differences=(0.1,),
        bars=("no verdict",),
        has_few=True,
    ),
    *(
        Way(
            name=f"Welch's t of logarithms{name}",
            answer=welch,
            noise=noise,
            differences=differences,
            has_few=True,
        )
        for name, noise, differences in (
            ("", normal, DIFFERENCES),
            (", skewed noise", skewed, (0.0, 0.1)),
            (", heavy tails", heavy_tails, (0.0, 0.1)),
        )
    ),
)


def measured(way: Way, difference: float, comparisons: int, dice: np.random.Generator) -> Row:
    """Make many comparisons of one way at one true difference."""
    found = [way.answer(way.factors(dice, difference), dice) for _ in range(comparisons)]
    low, high, resolved, detectable, flagged = np.array(found, dtype=float).T
    truth = 1.0 - difference
    return Row(
        way=way.name,
        difference=difference,
        comparisons=comparisons,
        holds=float(np.mean((low <= truth) & (truth <= high))),
        resolved=float(resolved.mean()),
        flagged=float(flagged.mean()),
        detectable=None if np.isnan(detectable).any() else float(np.median(detectable)),
        judged=way.bars,
    )


def rows(*, is_quick: bool) -> Iterator[Row]:
    """Run all methods at all true differences."""
    for difference in DIFFERENCES:
        shared = np.random.default_rng(round(1e4 * difference) + 7)
        for number, way in enumerate(WAYS):
            if difference in way.differences:
                own = np.random.default_rng([round(1e4 * difference), number])
                dice = own if way.has_few else shared
                yield measured(way, difference, way.comparisons(is_quick=is_quick), dice)


def show(found: Sequence[Row]) -> None:
    """Print the table."""
    heads = f"{'truth':>8}{'holds it':>10}{'resolved':>10}{'flagged':>9}{'detectable':>12}"
    print(f"{'':<38}{heads}")
    for row in found:
        told = "" if row.detectable is None else f"{100 * row.detectable:.1f} %"
        mark = "" if all(bar.is_met for bar in row.bars()) else "  misses a bar"
        print(
            f"{row.way:<38}{0.0 - 100 * row.difference:>6.0f} %{100 * row.holds:>8.1f} %"
            f"{100 * row.resolved:>8.1f} %{100 * row.flagged:>7.0f} %{told:>12}{mark}"
        )


def main() -> int:
    """Print the table and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    found = list(rows(is_quick=arguments.quick))
    show(found)
    return bars.finish(
        "comparison",
        arguments,
        [bar for row in found for bar in row.bars()],
        rows=[asdict(row) for row in found],
    )


if __name__ == "__main__":
    sys.exit(main())

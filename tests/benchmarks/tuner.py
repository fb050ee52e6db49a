"""Measures the sizes that the tuner's search answers, on devices whose best sizes are known.

Devices are those of ``device_model.py``, with and without tiles, a decline at the end and any
overlap of launch and work. Trials of the same size differ by 3 % (standard deviation), of which
each trial states a tenth. Sizes are multiples of 8, except for ``largest``.

In a second set (*host varies*), the scatter depends on the size, as on an H100. It is 0.3 % for all
sizes, and 6 % of the time in which steps wait for the host, of which a trial states about a third.

Bars: in 19 of 20 devices, throughput or energy at the answer is within 2 % of the best of all
allowed sizes, and throughput at the knee is at most 2 % below the 97 % of the best that define it.
The knee's size is, in the median, within a factor of 1.5 of the true one. All this in 12 trials,
repeats included; ``largest`` is exact in 20. The stated 95 % intervals of throughput and energy
contain the true values in 90 % of the trials, in the second set for sizes that wait for the host
and for others apart. There, the stated errors of sizes that do not wait for it are at most 2.5
times their scatter, in the median. Rows without a bar show devices with few tiles of an odd size
(132), on which one size in 132 is good, and less variance.
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from energy_callbacks.core.records import NORMAL_95
from energy_callbacks.tuning.search.costs import with_spread
from energy_callbacks.tuning.search.search import Search
from energy_callbacks.tuning.search.settings import SearchSettings
from energy_callbacks.tuning.search.trial import Trial
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.device_model import Device, seeded

NOISE: Final = 0.03
# The scatter where the host varies: of all sizes, and of the time in which steps wait for the host.
LESS_NOISE: Final = 0.003
HOST_NOISE: Final = 0.06
TRIALS: Final = 12
_WITHIN: Final = 0.02
_WIDE: Final = 2.5
_MULTIPLE: Final = 8  # the search's default


@dataclass(frozen=True, kw_only=True)
class Interval:
    """The stated 95 % intervals of one trial, with the variance between trials.

    Attributes:
        waits: whether more than half of a change of the host's time shows in the step.
        held: share of the two intervals, of throughput and energy, that contain the true value.
        width: stated error of throughput over its true scatter.
    """

    waits: bool
    held: float
    width: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of one search.

    Attributes:
        device: the device.
        size: the size that the search answers.
        trials: number of trials.
        intervals: those of the trials that ran.
    """

    device: Device
    size: int
    trials: int
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One objective over many devices.

    Attributes:
        name: name of the row.
        cases: number of devices.
        worst: largest distance from the best.
        median: median distance.
        within: share of the devices at most ``bar`` from the best.
        trials: largest number of trials of any device.
        size_factor: median factor between the answer and the true knee; ``None`` for others.
        bar: limit of the distance.
        at_least: limit of ``within``; ``None`` if the row is not judged.
        most_trials: limit of ``trials``.
        intervals: those of all trials.
    """

    name: str
    cases: int
    worst: float
    median: float
    within: float
    trials: int
    size_factor: float | None
    bar: float
    at_least: float | None
    most_trials: int
    intervals: tuple[Interval, ...] = field(repr=False)

    @property
    def held(self) -> float:
        """Share of the intervals that contain the true value."""
        return statistics.fmean(one.held for one in self.intervals)

    def bars(self) -> Iterator[Bar]:
        """Return the bars of this row."""
        if self.at_least is None:
            return
        name = f"{self.name}: share within {self.bar:.0%}"
        yield Bar(name=name, value=self.within, at_least=self.at_least)
        yield Bar(name=f"{self.name}: trials", value=self.trials, at_most=self.most_trials)
        yield Bar(name=f"{self.name}: intervals hold", value=self.held, at_least=0.9)
        if self.size_factor is not None:
            yield Bar(name=f"{self.name}: factor in size", value=self.size_factor, at_most=1.5)


def searched(seed: int, noise: float, host_noise: float, settings: Mapping[str, Any]) -> Answer:
    """Run a search on a device."""
    device, dice = replace(seeded(seed), host_noise=host_noise), np.random.default_rng([7, seed])
    search = Search(SearchSettings(memory_bytes=device.memory_bytes, **settings))
    while (size := search.ask()) is not None:
        search.tell(device.trial(size, dice, noise))
    answer = search.answer().size
    assert answer is not None
    ran = [trial for trial in with_spread(search.trials) if trial.status == "ok"]
    return Answer(
        device=device,
        size=answer,
        trials=len(search.trials),
        intervals=tuple(interval(device, trial, noise) for trial in ran),
    )


def interval(device: Device, trial: Trial, noise: float) -> Interval:
    """Compare the intervals of time and energy with the true values."""
    assert trial.energy.energy_j is not None
    size = np.array([float(trial.size)])
    true_s = float(device.step_s(size)[0]) * trial.steps
    true_j = float(device.power_w(size)[0]) * true_s
    share = float(device.host_share(size)[0])
    holds_s = abs(trial.duration_s - true_s) <= NORMAL_95 * trial.stderr_s
    holds_j = abs(trial.energy.energy_j - true_j) <= trial.energy.error_j
    return Interval(
        waits=share > 0.5,
        held=(holds_s + holds_j) / 2.0,
        width=trial.time_error / math.hypot(noise, share * device.host_noise),
    )


def excess(answer: Answer, weight: float) -> float:
    """Return the cost at the answer above the least of all allowed sizes, as a share."""
    device = answer.device
    least = device.cost(device.sizes(multiple_of=_MULTIPLE), weight).min()
    return float(device.cost(np.array([float(answer.size)]), weight)[0] / least - 1.0)


def too_slow(answer: Answer) -> float:
    """Return how far throughput is below that of a knee, as a share of the best; 0 if it is not."""
    return max(0.97 - 1.0 / (1.0 + excess(answer, 0.0)), 0.0)


def off_largest(answer: Answer) -> float:
    """Return the distance from the largest size that fits, in samples."""
    return float(abs(answer.size - answer.device.sizes()[-1]))


def size_factor(answer: Answer) -> float:
    """Return the factor between the answer and the true knee, at least 1."""
    ratio = answer.size / answer.device.knee(multiple_of=_MULTIPLE)
    return max(ratio, 1.0 / ratio)


def row(
    name: str,
    seeds: Sequence[int],
    distance: Callable[[Answer], float],
    objective: str,
    *,
    noise: float = NOISE,
    host_noise: float = 0.0,
    bar: float = _WITHIN,
    at_least: float | None = None,
    most_trials: int = TRIALS,
) -> Row:
    """Run the search on every device, one process for each core."""
    with ProcessPoolExecutor() as pool:
        settings = {"objective": objective}
        run = partial(searched, noise=noise, host_noise=host_noise, settings=settings)
        answers = list(pool.map(run, seeds))
    away = [distance(answer) for answer in answers]
    factors = [size_factor(answer) for answer in answers]
    return Row(
        name=name,
        cases=len(seeds),
        worst=max(away),
        median=statistics.median(away),
        within=statistics.fmean(one <= bar for one in away),
        trials=max(answer.trials for answer in answers),
        size_factor=statistics.median(factors) if objective == "knee" else None,
        bar=bar,
        at_least=at_least,
        most_trials=most_trials,
        intervals=tuple(one for answer in answers for one in answer.intervals),
    )


def judged_rows(seeds: Sequence[int]) -> list[Row]:
    """Return the rows that have bars."""
    return [
        row("largest", seeds, off_largest, "largest", bar=0.0, at_least=1.0, most_trials=20),
        *(row(name, seeds, away, name, at_least=0.95) for name, away in _DISTANCES.items()),
    ]


def host_rows(seeds: Sequence[int]) -> list[Row]:
    """Return the rows of devices whose host varies."""
    varied = partial(row, noise=LESS_NOISE, host_noise=HOST_NOISE, at_least=0.95)
    return [varied(f"{name}, host varies", seeds, away, name) for name, away in _DISTANCES.items()]


def host_bars(rows: Sequence[Row]) -> Iterator[Bar]:
    """Return the bars of the intervals of sizes that wait for the host, and of the others."""
    for waits, name in ((True, "sizes that wait for the host"), (False, "other sizes")):
        found = [one for row in rows for one in row.intervals if one.waits is waits]
        held = statistics.fmean(one.held for one in found)
        width = statistics.median(one.width for one in found)
        yield Bar(name=f"host varies, {name}: intervals hold", value=held, at_least=0.9)
        yield Bar(name=f"host varies, {name}: error over scatter", value=width, at_most=_WIDE)


def other_rows(seeds: Sequence[int]) -> list[Row]:
    """Return the rows that have no bars."""
    odd = [seed for seed in seeds if seeded(seed).has_few_odd_tiles]
    found = []
    for name, away in _DISTANCES.items():
        found.append(row(f"{name}, 0.3 % variance", seeds, away, name, noise=0.003))
        if odd:
            found.append(row(f"{name}, few odd tiles", odd, away, name))
    return found


_DISTANCES: Final[Mapping[str, Callable[[Answer], float]]] = {
    "throughput": partial(excess, weight=0.0),
    "energy": partial(excess, weight=1.0),
    "knee": too_slow,
}


def show(table: Sequence[Row]) -> None:
    """Print a row for each objective."""
    print(
        f"{'objective':<27}{'cases':>6}{'worst':>9}{'median':>9}{'within':>8}{'trials':>7}"
        f"{'intervals hold':>16}  factor in size"
    )
    for one in table:
        factor = "" if one.size_factor is None else f"{one.size_factor:.2f}"
        print(
            f"{one.name:<27}{one.cases:>6}{one.worst:>9.4f}{one.median:>9.4f}{one.within:>8.1%}"
            f"{one.trials:>7}{one.held:>16.1%}  {factor}"
        )


def main() -> int:
    """Print the tables and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    judged, host = judged_rows(range(20)), host_rows(range(100, 120))
    show([*judged, *host])
    more = [] if arguments.quick else [*judged_rows(range(20, 60)), *other_rows(range(60))]
    if more:
        print("\n40 more devices, and other rows over all devices, not judged")
        show(more)
    return bars.finish(
        "tuner",
        arguments,
        [*(bar for one in (*judged, *host) for bar in one.bars()), *host_bars(host)],
        judged=[figures(one) for one in (*judged, *host)],
        more=[figures(one) for one in more],
    )


def figures(one: Row) -> dict[str, Any]:
    """Return a row for JSON, without its single intervals."""
    return {**asdict(replace(one, intervals=())), "held": one.held}


if __name__ == "__main__":
    sys.exit(main())

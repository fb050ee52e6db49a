"""Measures the sizes that the tuner's search answers, on devices whose best sizes are known.

Devices are those of ``device_model.py``. ``affine`` ones belong to the family that the search fits;
the others have tiles, a decline at the end and any overlap of launch and work. A few of these hold
less than five whole tiles of an odd size (132): there one size in 132 is good, the search cannot
know which, and separate rows show what that costs.

Bars, with 3 % of noise on every trial: throughput and energy at the answer within 2 % of the best
of all sizes in 14 trials, ``largest`` exact in 20, and the size of the knee to 3 % (or one step) in
14 if the curve is affine.

The last bar is hard, as the curve is flat at a knee. ``ideal`` says in how many affine cases the
best possible unbiased estimator would find it, on average, if it knew all but two of the curve's
parameters, and if it also had to find how sharp the corner is and whether throughput falls at the
end (Cramér and Rao). Rows without a bar show what a missed knee costs in throughput (3 % are the
knee's own), and the results with other curves and less noise.
"""

import math
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from energy_callbacks.tuning.search.search import Search, SearchSettings
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.device_model import Array, Device, affine, seeded

NOISE = 0.03
TRIALS = 14


@dataclass(frozen=True, kw_only=True)
class Row:
    """One objective over many devices.

    Attributes:
        name: name of the row.
        cases: number of devices.
        worst: largest distance from the best.
        median: median distance.
        within: number of cases within ``bar``.
        trials: largest number of trials of any case.
        bar: limit of ``worst``; ``None`` if it is not judged.
        most_trials: limit of ``trials``.
        note: remark in the table.
    """

    name: str
    cases: int
    worst: float
    median: float
    within: int
    trials: int
    bar: float | None
    most_trials: int | None
    note: str = ""

    def bars(self) -> Iterator[Bar]:
        """Return the bars of this row."""
        if self.bar is not None:
            yield Bar(name=f"{self.name}: worst", value=self.worst, at_most=self.bar)
        if self.most_trials is not None:
            yield Bar(name=f"{self.name}: trials", value=self.trials, at_most=self.most_trials)


def searched(
    case: tuple[int, Device], noise: float, settings: Mapping[str, Any]
) -> tuple[int, int]:
    """Return the size that a search answers, and the number of trials."""
    seed, device = case
    dice = np.random.default_rng([7, seed])
    search = Search(SearchSettings(memory_bytes=device.memory_bytes, **settings))
    while (size := search.ask()) is not None:
        search.tell(device.trial(size, dice, noise))
    return search.answer().size, len(search.trials)


def excess(device: Device, size: int, weight: float) -> float:
    """Return the cost of a size above the least of all sizes, as a share."""
    least = device.cost(device.sizes(), weight).min()
    return float(device.cost(np.array([float(size)]), weight)[0] / least - 1.0)


def off_knee(device: Device, size: int) -> float:
    """Return the distance from the true knee, as a share of it; one step counts as none."""
    knee = device.knee()
    return abs(size / knee - 1.0) if abs(size - knee) > 1 else 0.0


def ideal_error(device: Device, noise: float, unknown: int) -> float:
    """Return the least standard error of the logarithm of an affine device's knee in ``TRIALS``.

    By Cramér and Rao, for the best shares of trials among sizes (c-optimal, by the multiplicative
    algorithm: Silvey, Titterington, Torsney, Communications in Statistics A 7, 1978). Of
    k (1 + (b / r)^p)^(1/p) (1 + b / q) the first ``unknown`` of k, r, p, 1 / q are not known.
    """
    limit = device.sizes()[-1]
    sizes = np.geomspace(device.sizes()[0], limit, 60)

    def steps(at: Array, corner: float, power: float, decline: float) -> Array:
        overlap = np.logaddexp(0.0, power * (np.log(at) - corner)) / power
        return np.asarray(overlap + np.log1p(decline * at / limit))

    def knee(*shape: float) -> float:
        at = np.geomspace(sizes[0], limit, 20_000)
        costs = steps(at, *shape) - np.log(at)
        return float(np.interp(0.0, *_falling(costs - costs.min() + math.log(0.97), np.log(at))))

    truth, change = np.array([math.log(device.corner), 1.0, 0.0]), 1e-3
    moved = [truth + change * axis for axis in np.eye(3)]
    slopes = [(steps(sizes, *there) - steps(sizes, *truth)) / change for there in moved]
    features = np.column_stack([np.ones(len(sizes)), *slopes])[:, :unknown]
    goal = np.array([0.0, *((knee(*there) - knee(*truth)) / change for there in moved)])[:unknown]
    shares = np.full(len(sizes), 1.0 / len(sizes))
    for _ in range(500):
        information = features.T @ (shares[:, None] * features)
        worth = shares * np.abs(features @ np.linalg.solve(information, goal))
        shares = worth / worth.sum()
    return noise * math.sqrt(goal @ np.linalg.solve(information, goal) / TRIALS)


def _falling(over: Array, logs: Array) -> tuple[Array, Array]:
    """Return the values up to the first one that is not above 0, reversed for ``interp``."""
    first = int((over <= 0.0).argmax()) + 1
    return over[:first][::-1], logs[:first][::-1]


def row(
    name: str,
    devices: Sequence[tuple[int, Device]],
    distance: Callable[[Device, int], float],
    *,
    noise: float = NOISE,
    bar: float | None = None,
    most_trials: int | None = None,
    in_size: bool = False,
    **settings: object,
) -> Row:
    """Run the search on every device, one process for each core."""
    with ProcessPoolExecutor() as pool:
        answers = list(pool.map(partial(searched, noise=noise, settings=settings), devices))
    sizes = [(device, size) for (_, device), (size, _) in zip(devices, answers, strict=True)]
    away = [distance(device, size) for device, size in sizes]
    note = ""
    if in_size:
        note = f"{sum(off_knee(*pair) <= 0.03 for pair in sizes)} within 3 % in size"
    if in_size and name.startswith("knee, affine"):
        for unknown in (2, 4):
            errors = [ideal_error(device, noise, unknown) for _, device in devices]
            ideal = sum(math.erf(0.03 / e / math.sqrt(2.0)) for e in errors)
            note += f", ideal {ideal:.1f} ({unknown} unknown)"
    return Row(
        name=name,
        cases=len(devices),
        worst=float(max(away)),
        median=float(statistics.median(away)),
        within=sum(bool(one <= (math.inf if bar is None else bar)) for one in away),
        trials=max(trials for _, trials in answers),
        bar=bar,
        most_trials=most_trials,
        note=note,
    )


def rows(seeds: range, *, only_judged: bool = False) -> list[Row]:
    """Return all rows, or those that have a bar; ``finders`` has real trainings."""
    every = [(seed, seeded(seed)) for seed in seeds]
    odd = [(seed, device) for seed, device in every if device.has_few_odd_tiles]
    even = [(seed, device) for seed, device in every if not device.has_few_odd_tiles]
    plain = [(seed, affine(seed)) for seed in seeds]
    found = [
        row("largest", every, lambda d, s: abs(s - d.sizes()[-1]), objective="largest",
            bar=0.0, most_trials=20),
    ]  # fmt: skip
    for name, weight in (("throughput", 0.0), ("energy", 1.0)):

        def away(device: Device, size: int, weight: float = weight) -> float:
            return excess(device, size, weight)

        few = {"objective": name, "max_trials": TRIALS}
        found.append(row(name, every, away, bar=0.02, most_trials=TRIALS, **few))
        if odd and not only_judged:
            found.append(row(f"{name}, few odd tiles alone", odd, away, **few))
    knee = {"objective": "knee", "max_trials": TRIALS, "in_size": True}

    def slower(device: Device, size: int) -> float:
        return 1.0 - 1.0 / (1.0 + excess(device, size, 0.0))

    found.append(
        row("knee, affine, in size", plain, off_knee, bar=0.03, most_trials=TRIALS, **knee)
    )
    if only_judged:
        return found
    found += [
        row("knee, affine, in throughput", plain, slower, **knee),
        row("knee, affine, 0.3 % noise, in size", plain, off_knee, noise=0.003, **knee),
        row("knee, in size", even, off_knee, **knee),
        row("knee, in throughput", even, slower, **knee),
    ]
    if odd:
        found.append(row("knee, few odd tiles, in throughput", odd, slower, **knee))
    return found


def show(table: Sequence[Row]) -> None:
    """Print a row for each objective."""
    print(f"{'objective':<37}{'cases':>6}{'worst':>9}{'median':>9}{'trials':>7}  bar")
    for one in table:
        bar = "no bar" if one.bar is None else f"{one.bar:g} met in {one.within}"
        note = f", {one.note}" if one.note else ""
        print(
            f"{one.name:<37}{one.cases:>6}{one.worst:>9.4f}{one.median:>9.4f}"
            f"{one.trials:>7}  {bar}{note}"
        )


def main() -> int:
    """Print the tables and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    judged = rows(range(20), only_judged=arguments.quick)
    show(judged)
    more = [] if arguments.quick else rows(range(20, 60))
    if more:
        print("\n40 more devices, not judged")
        show(more)
    return bars.finish(
        "tuner",
        arguments,
        [bar for one in judged for bar in one.bars()],
        judged=[asdict(one) for one in judged],
        more=[asdict(one) for one in more],
    )


if __name__ == "__main__":
    sys.exit(main())

"""Estimates the best size from the trials, and finds the most informative next trial.

Both are computed from curves of the cost per sample over the size, which are drawn from the
posterior distribution (``curve.py``). The spread of the curves is the uncertainty of the estimates.
The knee is the smallest size whose throughput is nearly the highest.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from energy_callbacks.tuning.search.curve import Array, drawn_curves
from energy_callbacks.tuning.search.trial import Trial

# The search accepts a size whose expected cost exceeds the least cost by at most this fraction.
ENOUGH: Final = 0.005
# Accepted standard error of the logarithm of the knee.
_KNOWN: Final = 0.01
# Minimum relative error of the cost of a trial; smaller errors are replaced with it.
_LEAST_ERROR: Final = 0.003
# Maximum number of sizes at which curves are evaluated, in addition to the candidates for a trial.
_POINTS: Final = 64
# Errors are enlarged if the scatter of trials of the same size, divided by their errors, exceeds
# this ratio (see ``_scatter``). Two trials with correct errors exceed it in about 5 % of cases.
_CHANCE: Final = 2.0


class Choice:
    """Estimates the cost per sample of all sizes that fit.

    Args:
        trials: all trials with a known cost, including those that left too little memory free.
        energy_weight: weight of energy against time in the cost, 0 to 1.
        sizes: all sizes that fit, in ascending order.
        probe: size to try next in a search for the largest size that fits; see ``limits.Limits``.
        multiple: all sizes are multiples of this number.
    """

    def __init__(
        self,
        trials: Iterable[Trial],
        energy_weight: float,
        sizes: Sequence[int],
        probe: int,
        multiple: int,
    ) -> None:
        costs_of: Mapping[int, list[tuple[float, float]]] = defaultdict(list)
        for trial in trials:
            costs_of[trial.size].append(_cost(trial, energy_weight))
        scatter = _scatter(costs_of.values())
        costs_of = {s: [(c, scatter * error) for c, error in costs_of[s]] for s in costs_of}
        self._tries = {size: len(results) for size, results in costs_of.items()}
        self._error = float(np.median([e for results in costs_of.values() for _, e in results]))
        self._sizes = sizes
        self._tried = sorted(size for size in costs_of if size in sizes)
        self._candidates = sorted({*_round(sizes, multiple), *self._tried, sizes[-1]})
        marks = np.geomspace(sizes[0], sizes[-1], _POINTS)
        places = np.clip(np.searchsorted(sizes, marks), 0, len(sizes) - 1)
        self._at = sorted({*self._candidates, *(sizes[i] for i in places)})
        tried = sorted(costs_of)
        self._means = {size: _mean(costs_of[size]) for size in tried}
        means = np.array(list(self._means.values()))
        steps = drawn_curves(tried, means[:, 0] * tried, means[:, 1], [*self._at, probe])
        costs = steps - np.log([*self._at, probe])
        self._costs, self._probe_cost = costs[:, :-1], costs[:, -1]
        self._least = self._costs.min(axis=1)

    @property
    def gain(self) -> float:
        """The expected relative saving of cost at ``probe`` against the best size that fits."""
        return float(np.maximum(self._least - self._probe_cost, 0.0).mean())

    @property
    def best(self) -> int:
        """The size with the least expected cost among the sizes that ran and fit."""
        return min(self._tried, key=lambda size: float(self._of(size).mean()))

    @property
    def loss(self) -> float:
        """The expected relative excess of the cost at ``best`` over the least cost at any size."""
        return float((self._of(self.best) - self._least).mean())

    def next_for_best(self) -> int | None:
        """Return the next size to try for the least cost; ``None`` if no trial is needed.

        It is the size with the largest expected saving against ``best``, or ``best`` itself if
        ``best`` has fewer trials than that size. If ``best`` is known well enough, a smaller and a
        larger size near ``best`` are tried once, because the curves do not model tiles (the blocks
        of data that a kernel processes).
        """
        best = self.best
        if self.loss <= ENOUGH:
            neighbours = {_nearest(self._candidates, best * way) for way in (0.75, 1.5)}
            return max(neighbours - set(self._tried), default=None)
        savings = {
            size: float(np.maximum(self._of(best) - self._of(size), 0.0).mean())
            for size in self._candidates
        }
        rival = max(self._candidates, key=lambda size: savings[size])
        return best if self._tries.get(rival, 0) > self._tries[best] else rival

    def knees(self, share: float) -> Array:
        """Return the logarithm of each curve's knee, (draws,).

        The knee is the smallest size whose throughput is at most the fraction ``share`` below the
        highest throughput.
        """
        logs = np.log(self._at)
        limits = self._least - math.log1p(-share)
        over = self._costs - limits[:, None]
        first = (over <= 0.0).argmax(axis=1)
        row, before = np.arange(len(first)), np.maximum(first - 1, 0)
        fall = over[row, before] - over[row, first]
        way = np.divide(over[row, before], fall, out=np.ones(len(first)), where=first > 0)
        return np.asarray(logs[before] + way * (logs[first] - logs[before]))

    def knee(self, share: float) -> tuple[int, float]:
        """Return the size nearest to the median knee, and the standard error of log(knee)."""
        low, middle, high = np.quantile(self.knees(share), [0.16, 0.5, 0.84])
        place = int(np.searchsorted(self._sizes, math.exp(middle)))
        near = self._sizes[max(place - 1, 0) : place + 1]
        return _nearest(near, math.exp(middle)), float(high - low) / 2.0

    def nearest(self, knee: int, share: float) -> int:
        """Return the size nearest to ``knee`` among those that ran, fit and are fast enough.

        A size is fast enough if its measured throughput, increased by two standard errors, is at
        most the fraction ``share`` below the highest throughput. If no size is fast enough, all
        sizes that ran and fit count.
        """
        most = float(self._least.mean()) - math.log1p(-share)
        fast = [
            size
            for size in self._tried
            if math.log(self._means[size][0]) <= most + 2.0 * self._means[size][1]
        ]
        return _nearest(fast or self._tried, knee)

    def next_for_knee(self, share: float, left: int) -> int | None:
        """Return the size whose trial reduces the error of the knee most; ``None`` at the end.

        The last trial is at the knee itself, unless a size very near to the knee has run.

        Args:
            share: allowed relative loss of throughput at the knee.
            left: number of trials that are left.
        """
        knee, error = self.knee(share)
        if error <= _KNOWN or left == 1:
            is_near = abs(math.log(_nearest(self._tried, knee) / knee)) <= max(error / 4.0, 0.002)
            return None if is_near else knee
        knees = self.knees(share)
        knees = np.clip(knees, *np.quantile(knees, [0.05, 0.95]))
        knees = knees - knees.mean()
        reductions = {size: self._reduction(knees, self._of(size)) for size in self._candidates}
        return max(self._candidates, key=lambda size: reductions[size])

    def _reduction(self, knees: Array, costs: Array) -> float:
        """Return a number proportional to the reduction of the knee's variance by a trial.

        The costs and the knees are assumed to depend on each other linearly.

        Args:
            knees: (draws,) logarithms of the knees, minus their mean.
            costs: (draws,) logarithms of the cost at the size of the trial.
        """
        costs = costs - costs.mean()
        error = max(self._error, _LEAST_ERROR)
        return float((knees @ costs) ** 2 / (costs @ costs + len(costs) * error**2))

    def _of(self, size: int) -> Array:
        return np.asarray(self._costs[:, self._at.index(size)])


def is_known(trial: Trial, energy_weight: float) -> bool:
    """Return whether a trial ran and, if ``energy_weight`` is not 0, its energy is known."""
    return trial.status == "ok" and (not energy_weight or (trial.j_per_sample or 0.0) > 0.0)


def _cost(trial: Trial, energy_weight: float) -> tuple[float, float]:
    """Return (J per sample)^weight (s per sample)^(1 - weight), and its relative standard error."""
    assert trial.samples_per_s
    cost = trial.samples_per_s ** (energy_weight - 1.0)
    error = (1.0 - energy_weight) * trial.time_error
    if energy_weight:
        assert trial.j_per_sample
        cost *= trial.j_per_sample**energy_weight
        error += energy_weight * trial.energy_error
    return cost, error


def _scatter(sizes: Iterable[Sequence[tuple[float, float]]]) -> float:
    """Return the ratio of the scatter of repeats to their errors; 1 if at most ``_CHANCE``.

    The errors do not include changes between trials, such as the load of a shared machine, so the
    repeats may differ by more than their errors. ``Choice`` multiplies all errors by the result.
    The ratio is that of Birge (Physical Review 40, 1932).

    Args:
        sizes: for each size the (cost, relative standard error) of its trials.
    """
    square, spare = 0.0, 0
    for results in sizes:
        mean, _ = _mean(results)
        square += sum(
            (math.log(cost / mean) / max(error, _LEAST_ERROR)) ** 2 for cost, error in results
        )
        spare += len(results) - 1
    ratio = math.sqrt(square / spare) if spare else 1.0
    return ratio if ratio > _CHANCE else 1.0


def _mean(results: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the mean of repeats, weighted by 1 / error^2, and its relative standard error."""
    weights = np.array([1.0 / max(error, _LEAST_ERROR) ** 2 for _, error in results])
    mean = float(np.average([cost for cost, _ in results], weights=weights))
    return mean, 1.0 / math.sqrt(weights.sum())


def _nearest(sizes: Sequence[int], size: float) -> int:
    return min(sizes, key=lambda one: abs(math.log(one / size)))


def _round(sizes: Sequence[int], multiple: int) -> list[int]:
    """Return sizes that suit devices: ``multiple`` times 1, 3, 5 or 7 times a power of two.

    The largest size is added, rounded down to multiples of ``multiple`` times 1, 2, 4 and so on. At
    these sizes the tiles (the blocks of data that a kernel processes) are usually full. If the user
    has restricted the sizes to powers of two or to divisors, all sizes are returned.
    """
    if not isinstance(sizes, range):
        return list(sizes)
    count = sizes[-1] // multiple
    found = [k << i for i in range(count.bit_length()) for k in (1, 3, 4, 5, 6, 7)]
    found += [count >> i << i for i in range(count.bit_length())]
    return [k * multiple for k in sorted(set(found)) if k * multiple in sizes]

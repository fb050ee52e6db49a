"""Which size the trials favour, and which trial would be most informative.

All of it is read from curves that the trials allow: their spread is what is not known yet.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from energy_callbacks.tuning.search.curve import Array, drawn_curves
from energy_callbacks.tuning.search.trial import Trial

# The answer may be expected to cost this share more than the best.
ENOUGH: Final = 0.005
# Standard error of the logarithm of a knee that is known well enough.
_KNOWN: Final = 0.01
# Of an error that a trial does not state, in the choice of the next one.
_LEAST_ERROR: Final = 0.003
_POINTS: Final = 64
# Two repeats whose errors are true differ by more than this times their error in one of 20 pairs.
_CHANCE: Final = 2.0


class Choice:
    """The known cost per sample of sizes that fit.

    Args:
        trials: all that ran and whose cost is known; of sizes that are too tight as well.
        energy_weight: of energy against time in the cost.
        sizes: all that fit, in rising order.
        probe: a size beyond these that may fit.
        multiple: of which all sizes are multiples.
    """

    def __init__(
        self,
        trials: Iterable[Trial],
        energy_weight: float,
        sizes: Sequence[int],
        probe: int,
        multiple: int,
    ) -> None:
        told: Mapping[int, list[tuple[float, float]]] = defaultdict(list)
        for trial in trials:
            told[trial.size].append(_cost(trial, energy_weight))
        scatter = _scatter(told.values())
        told = {s: [(cost, scatter * error) for cost, error in told[s]] for s in told}
        self._tries = {size: len(results) for size, results in told.items()}
        self._error = float(np.median([e for results in told.values() for _, e in results]))
        self._sizes = sizes
        self._tried = sorted(size for size in told if size in sizes)
        self._asked = sorted({*_round(sizes, multiple), *self._tried, sizes[-1]})
        marks = np.geomspace(sizes[0], sizes[-1], _POINTS)
        places = np.clip(np.searchsorted(sizes, marks), 0, len(sizes) - 1)
        self._at = sorted({*self._asked, *(sizes[i] for i in places)})
        tried = sorted(told)
        self._means = {size: _mean(told[size]) for size in tried}
        means = np.array(list(self._means.values()))
        steps = drawn_curves(tried, means[:, 0] * tried, means[:, 1], [*self._at, probe])
        costs = steps - np.log([*self._at, probe])
        self._costs, self._probe_cost = costs[:, :-1], costs[:, -1]
        self._least = self._costs.min(axis=1)

    @property
    def gain(self) -> float:
        """The expected saving of the next larger size, as a share of the best cost."""
        return float(np.maximum(self._least - self._probe_cost, 0.0).mean())

    @property
    def best(self) -> int:
        """Of the sizes that ran, the one that is expected to cost least."""
        return min(self._tried, key=lambda size: float(self._of(size).mean()))

    @property
    def loss(self) -> float:
        """The expected excess cost of ``best`` over the best of all sizes, as a share."""
        return float((self._of(self.best) - self._least).mean())

    def next_for_best(self) -> int | None:
        """The size that may save most against ``best``, or ``best`` if that was tried less.

        At the end a neighbour on each side is tried: the curves know nothing of tiles.
        """
        best = self.best
        if self.loss <= ENOUGH:
            neighbours = {_nearest(self._asked, best * way) for way in (0.75, 1.5)}
            return max(neighbours - set(self._tried), default=None)
        savings = {
            size: float(np.maximum(self._of(best) - self._of(size), 0.0).mean())
            for size in self._asked
        }
        rival = max(self._asked, key=lambda size: savings[size])
        return best if self._tries.get(rival, 0) > self._tries[best] else rival

    def knees(self, share: float) -> Array:
        """(draws,) logarithms of the smallest size whose cost is within ``share`` of the least."""
        logs = np.log(self._at)
        limits = self._least - math.log1p(-share)
        over = self._costs - limits[:, None]
        first = (over <= 0.0).argmax(axis=1)
        row, before = np.arange(len(first)), np.maximum(first - 1, 0)
        fall = over[row, before] - over[row, first]
        way = np.divide(over[row, before], fall, out=np.ones(len(first)), where=first > 0)
        return np.asarray(logs[before] + way * (logs[first] - logs[before]))

    def knee(self, share: float) -> tuple[int, float]:
        """The size where the knee is expected, and the standard error of its logarithm."""
        low, middle, high = np.quantile(self.knees(share), [0.16, 0.5, 0.84])
        place = int(np.searchsorted(self._sizes, math.exp(middle)))
        near = self._sizes[max(place - 1, 0) : place + 1]
        return _nearest(near, math.exp(middle)), float(high - low) / 2.0

    def nearest(self, knee: int, share: float) -> int:
        """Of the sizes that ran, without those seen to be too slow: a tile may begin just there."""
        most = float(self._least.mean()) - math.log1p(-share)
        fast = [
            size
            for size in self._tried
            if math.log(self._means[size][0]) <= most + 2.0 * self._means[size][1]
        ]
        return _nearest(fast or self._tried, knee)

    def next_for_knee(self, share: float, left: int) -> int | None:
        """The trial that narrows the knee down most; at the end a run of the knee itself."""
        knee, error = self.knee(share)
        if error <= _KNOWN or left == 1:
            is_near = abs(math.log(_nearest(self._tried, knee) / knee)) <= max(error / 4.0, 0.002)
            return None if is_near else knee
        away = self.knees(share)
        away = np.clip(away, *np.quantile(away, [0.05, 0.95]))
        away = away - away.mean()
        told = {size: self._told(away, self._of(size)) for size in self._asked}
        return max(self._asked, key=lambda size: told[size])

    def _told(self, away: Array, costs: Array) -> float:
        """By how much a trial lowers the variance of the knee, were all of it linear."""
        apart = costs - costs.mean()
        error = max(self._error, _LEAST_ERROR)
        return float((away @ apart) ** 2 / (apart @ apart + len(apart) * error**2))

    def _of(self, size: int) -> Array:
        return np.asarray(self._costs[:, self._at.index(size)])


def is_known(trial: Trial, energy_weight: float) -> bool:
    """Whether the trial ran, and energy was measured if it counts."""
    return trial.status == "ok" and (not energy_weight or (trial.j_per_sample or 0.0) > 0.0)


def _cost(trial: Trial, energy_weight: float) -> tuple[float, float]:
    """(J a sample)^weight (s a sample)^(1 - weight), and its standard error as a share."""
    assert trial.samples_per_s
    cost = trial.samples_per_s ** (energy_weight - 1.0)
    error = (1.0 - energy_weight) * trial.time_error
    if energy_weight:
        assert trial.j_per_sample
        cost *= trial.j_per_sample**energy_weight
        error += energy_weight * trial.energy_error
    return cost, error


def _scatter(sizes: Iterable[Sequence[tuple[float, float]]]) -> float:
    """By how much repeats of a size differ more than their stated errors allow; 1 if not.

    What changes between trials, such as the load of a machine that is shared, no trial knows of
    (the ratio of Birge, Physical Review 40, 1932).
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
    """Of repeats, weighted by their errors, and its standard error as a share."""
    weights = np.array([1.0 / max(error, _LEAST_ERROR) ** 2 for _, error in results])
    mean = float(np.average([cost for cost, _ in results], weights=weights))
    return mean, 1.0 / math.sqrt(weights.sum())


def _nearest(sizes: Sequence[int], size: float) -> int:
    return min(sizes, key=lambda one: abs(math.log(one / size)))


def _round(sizes: Sequence[int], multiple: int) -> list[int]:
    """Sizes that devices like: the multiple times 4 to 7 times a power of two, and to the last.

    The last size cut to its leading binary digits is where tiles are full, close to the limit.
    If the user has narrowed them to some, all are.
    """
    if not isinstance(sizes, range):
        return list(sizes)
    count = sizes[-1] // multiple
    found = [k << i for i in range(count.bit_length()) for k in (1, 3, 4, 5, 6, 7)]
    found += [count >> i << i for i in range(count.bit_length())]
    return [k * multiple for k in sorted(set(found)) if k * multiple in sizes]

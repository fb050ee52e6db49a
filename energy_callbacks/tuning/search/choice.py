"""Estimates the best size from the trials, and finds the most informative next trial.

Both are computed from curves of the cost per sample over the size, which are drawn from the
posterior distribution (``curve.py``). The spread of the curves is the uncertainty of the estimates.
The knee is the smallest size whose throughput is nearly the highest.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from energy_callbacks.tuning.search.costs import fitted_curves, rms
from energy_callbacks.tuning.search.curve import Array
from energy_callbacks.tuning.search.trial import Trial

# The search accepts a size whose expected cost exceeds the least cost by at most this fraction.
ENOUGH: Final = 0.003
# Maximum number of sizes at which curves are evaluated, in addition to the candidates for a trial.
_POINTS: Final = 64


class Choice:
    """Estimates the cost per sample of all sizes that fit.

    Args:
        trials: all trials with a known cost, including those that left too little memory free.
        energy_weight: weight of energy against time in the cost, 0 to 1.
        sizes: all sizes that fit, in ascending order.
        probe: size to try next in a search for the largest size that fits; see ``limits.Limits``.
    """

    def __init__(
        self,
        trials: Iterable[Trial],
        energy_weight: float,
        sizes: Sequence[int],
        probe: int,
    ) -> None:
        trials = list(trials)
        self._tries = Counter(trial.size for trial in trials)
        self._sizes = sizes
        self._tried = sorted(size for size in self._tries if size in sizes)
        self._candidates = sorted({*_round(sizes), *self._tried, sizes[-1]})
        marks = np.geomspace(sizes[0], sizes[-1], _POINTS)
        places = np.clip(np.searchsorted(sizes, marks), 0, len(sizes) - 1)
        self._at = sorted({*self._candidates, *(sizes[i] for i in places)})
        curves = fitted_curves(trials, energy_weight, [*self._at, probe])
        costs = curves.costs - np.log([*self._at, probe])
        self._costs, self._probe_cost = costs[:, :-1], costs[:, -1]
        self._spread = rms(curves.spreads)
        self._least = self._costs.min(axis=1)

    @property
    def gain(self) -> float:
        """The expected relative saving of cost at ``probe`` against the best size that fits."""
        return float(np.maximum(self._least - self._probe_cost, 0.0).mean())

    @property
    def best(self) -> int:
        """The size with the least expected cost among the sizes that ran and fit."""
        return _roundest({size: float(self._of(size).mean()) for size in self._tried})

    @property
    def loss(self) -> float:
        """The expected relative excess of the cost at ``best`` over the least cost at any size."""
        return float((self._of(self.best) - self._least).mean())

    def next_for_best(self) -> int | None:
        """Return the next size to try for the least cost; ``None`` if no trial is needed.

        It is the size with the largest expected saving against ``best``. It is ``best`` itself if
        ``best`` has run once, or at most as often as that size. If ``best`` is known well enough, a
        smaller and a larger size near ``best`` are tried once, because the curves do not model
        tiles (the blocks of data that a kernel processes).
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
        return best if self._tries[best] <= max(self._tries.get(rival, 0), 1) else rival

    def knee(self, share: float, sizes: Sequence[int] = ()) -> int:
        """Return the size whose throughput is the fraction ``share`` below the highest throughput.

        It is the size for which the expected distance from this throughput is least; sizes above
        the fastest one are left out.

        Args:
            share: allowed relative loss of throughput at the knee.
            sizes: sizes to choose from; empty for all sizes at which the curves are evaluated.
        """
        fastest = self._at[int(self._costs.mean(axis=0).argmin())]
        below = [size for size in sizes or self._at if size <= fastest]
        return _roundest({size: self._miss(size, share) for size in below or sizes})

    def knee_that_ran(self, share: float) -> tuple[int, float, float]:
        """Return the ``knee`` of the sizes that ran and fit, and its loss of throughput.

        Returns:
            The size; how much lower its throughput is than the highest, as a fraction; and the
                standard error of this fraction.
        """
        size = self.knee(share, self._tried)
        losses = -np.expm1(self._least - self._of(size))
        return size, float(losses.mean()), float(losses.std())

    def next_for_knee(self, share: float, left: int) -> int | None:
        """Return the size whose trial is expected to show best where the knee is.

        The last trial is at the knee itself. The result is ``None`` if no trial is needed.

        Args:
            share: allowed relative loss of throughput at the knee.
            left: number of trials that are left.
        """
        knee = self.knee(share)
        gaps = self._gaps(knee, share)
        if left == 1 or gaps.std() <= ENOUGH:
            ran = self.knee(share, self._tried)
            is_near = self._miss(ran, share) <= self._miss(knee, share) + ENOUGH
            return None if is_near else knee
        # How much a trial lowers the variance of the gap, if both depend on each other linearly.
        costs = self._costs[:, [self._at.index(size) for size in self._candidates]]
        shared = (gaps - gaps.mean()) @ (costs - costs.mean(axis=0)) / len(gaps)
        reductions = shared**2 / (costs.var(axis=0) + self._spread**2)
        return self._candidates[int(reductions.argmax())]

    def _gaps(self, size: int, share: float) -> Array:
        """Return log(cost at ``size`` / allowed cost), (draws,)."""
        return np.asarray(self._of(size) - self._least + math.log1p(-share))

    def _miss(self, size: int, share: float) -> float:
        return float(np.abs(self._gaps(size, share)).mean())

    def _of(self, size: int) -> Array:
        return np.asarray(self._costs[:, self._at.index(size)])


def _roundest(costs: Mapping[int, float]) -> int:
    """Return the size that is a multiple of the highest power of two, of those with low costs.

    A cost is low if it exceeds the least cost by at most ``ENOUGH``. Tiles are usually full at such
    sizes.
    """
    least = min(costs.values())
    low = [size for size, cost in costs.items() if cost <= least + ENOUGH]
    return max(low, key=lambda size: (size & -size, -costs[size]))


def _nearest(sizes: Sequence[int], size: float) -> int:
    return min(sizes, key=lambda one: abs(math.log(one / size)))


def _round(sizes: Sequence[int]) -> list[int]:
    """Return sizes that suit devices.

    They are the step of ``sizes`` times 1, 3, 5 or 7 times a power of two, and the largest size,
    rounded down to multiples of the step times 1, 2, 4 and so on. At these sizes the tiles (the
    blocks of data that a kernel processes) are usually full. If the user has restricted the sizes
    to powers of two or to divisors, all sizes are returned.
    """
    if not isinstance(sizes, range):
        return list(sizes)
    count = sizes[-1] // sizes.step
    found = [k << i for i in range(count.bit_length()) for k in (1, 3, 4, 5, 6, 7)]
    found += [count >> i << i for i in range(count.bit_length())]
    return [k * sizes.step for k in sorted(set(found)) if k * sizes.step in sizes]

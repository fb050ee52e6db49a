"""Computes the ratio of two groups of few runs, with an interval and a p-value.

Ratios are computed as differences of logarithms, so that a ratio and its inverse are treated alike.
Intervals come from a bootstrap over runs, pairs or blocks (Efron and Tibshirani, An Introduction to
the Bootstrap, 1993, ch. 8 and 14). A resample is n values drawn with replacement from n values. A
result that is computed from resamples is a replicate. Two corrections are made for small n:

1. Means of resamples deviate too little: their variance is only (n - 1) / n of the right value.
   Their deviations are therefore multiplied by sqrt(n / (n - 1)).
2. Deviations of replicates are multiplied by sqrt(df / chi-square), where chi-square is a random
   number from the chi-square distribution with df degrees of freedom. This turns normal deviations
   into Student's t. The degrees of freedom are Welch's; for pairs, the number of pairs minus 1.

``tests/benchmarks/comparison.py`` measures how often these intervals, and those of a plain
bootstrap, contain the true ratio.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

REPLICATES: Final = 20_000
"""Number of bootstrap replicates.

With another random seed, the ends of an interval change by about 1 % of its half-width (3 % if both
groups have only two runs).
"""
CONFIDENCE: Final = 0.95
ALPHA: Final = 1.0 - CONFIDENCE
POWER: Final = 0.8
"""Probability of detecting the smallest detectable effect."""
# With a fixed seed, the same runs always give the same result.
_SEED: Final = 20_261_122
# Differences of logarithms below this value count as rounding errors.
_ROUNDING: Final = 1e-12
# Quantiles at the ends of the interval: 0.025 and 0.975.
_ENDS: Final = ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """The ratio of two groups, new divided by old, with its 95 % interval.

    Attributes:
        value: the ratio of the geometric means; for blocks, the ratio of amount per work.
        low: lower end of the interval.
        high: upper end of the interval.
        p: two-sided p-value: the probability of a difference at least this large if the true
            ratio is 1.
        detectable: smallest change, as a share (0.03 is 3 %), that this number of runs or blocks
            detects with probability 0.8.
    """

    value: float
    low: float
    high: float
    p: float
    detectable: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of time of one run, which must be so long that they are nearly independent.

    Attributes:
        amount: (n,) energy of each block, J.
        work: (n,) work in each block: samples, steps or seconds. The compared quantity is
            ``amount`` divided by ``work``.
    """

    amount: Array
    work: Array


class _Difference(NamedTuple):
    """A difference of means.

    Attributes:
        value: the difference, new minus old.
        deviations: (REPLICATES,) deviations of the replicates from ``value``, after the first
            correction in the docstring of the module.
        variance: variance of ``value``.
        freedom: degrees of freedom of ``variance``.
    """

    value: float
    deviations: Array
    variance: float
    freedom: float


def ratio_of_runs(
    old: Sequence[float], new: Sequence[float], *, in_pairs: bool = False
) -> RatioInterval | None:
    """Return the ratio new / old of two groups of runs.

    Args:
        old: (n,) positive value of each run of the first group.
        new: (m,) positive value of each run of the other group.
        in_pairs: whether the runs were made in pairs (then m = n), in each of which slow changes,
            such as of the machine's temperature, mostly cancel; otherwise all runs are independent
            of each other.

    Returns:
        The ratio of the geometric means. ``None`` if a group has fewer than two runs, because the
        spread of runs is then unknown.
    """
    if min(len(old), len(new)) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    before, after = _logarithms(old), _logarithms(new)
    return _interval(_difference(before, after, rng, in_pairs=in_pairs), rng)


def ratio_of_blocks(old: Blocks, new: Blocks) -> RatioInterval | None:
    """Return the ratio new / old of two single runs, computed from blocks of each run.

    The interval does not include the differences between repeated runs. Blocks are used because
    neighbouring steps are correlated, but blocks of many seconds are nearly independent (Kuensch,
    Annals of Statistics 17, 1989). The result is ``None`` if a run has fewer than two blocks.
    """
    if min(len(old.amount), len(new.amount)) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    values, drawn, variances = [], [], []
    for blocks in (old, new):
        value = math.log(blocks.amount.sum() / blocks.work.sum())
        n = len(blocks.amount)
        chosen = rng.integers(n, size=(REPLICATES, n))
        replicates = _logarithms(
            blocks.amount[chosen].sum(axis=1) / blocks.work[chosen].sum(axis=1)
        )
        deviations = (replicates - value) * math.sqrt(n / (n - 1.0))
        values.append(value)
        drawn.append(deviations)
        variances.append(float(deviations.var()))
    freedom = _welch(variances, [len(old.amount), len(new.amount)])
    difference = values[1] - values[0], drawn[1] - drawn[0], sum(variances), freedom
    return _interval(_Difference(*difference), rng)


def difference(
    old: Sequence[float], new: Sequence[float], *, in_pairs: bool
) -> tuple[float, float] | None:
    """Return the 95 % interval of the difference of two means, new minus old.

    Args:
        old: (n,) value of each run of the first group.
        new: (m,) value of each run of the other group; m = n for pairs.
        in_pairs: whether runs at the same position in ``old`` and ``new`` form a pair.

    Returns:
        Lower and upper end of the interval; ``None`` if a group has fewer than two runs.
    """
    if min(len(old), len(new)) < 2:
        return None
    # One value is subtracted from all, because means of equal values may differ in their last bit.
    before, after = (np.asarray(values, dtype=float) - old[0] for values in (old, new))
    rng = np.random.default_rng(_SEED)
    change = _difference(before, after, rng, in_pairs=in_pairs)
    low, high = np.quantile(_scaled(change.deviations, change.freedom, rng), _ENDS)
    value = float(after.mean() - before.mean())
    return value - float(high), value - float(low)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple comparisons, which limits the family-wise error rate.

    The smallest of n p-values is multiplied by n, the second smallest by n - 1, and so on. In this
    order, an adjusted value that is below the previous one is set to the previous one. Values are
    at most 1 (Holm, Scandinavian Journal of Statistics 6, 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    scaled = np.arange(len(order), 0, -1) * np.asarray(p_values, dtype=float)[order]
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(p) for p in adjusted]


def _difference(
    before: Array, after: Array, rng: np.random.Generator, *, in_pairs: bool
) -> _Difference:
    if in_pairs:
        changes = after - before
        value, variance = float(changes.mean()), float(changes.var(ddof=1)) / len(changes)
        return _Difference(value, _means(changes, rng), variance, len(changes) - 1.0)
    drawn = _means(after, rng) - _means(before, rng)
    variances = [float(values.var(ddof=1)) / len(values) for values in (before, after)]
    freedom = _welch(variances, [len(before), len(after)])
    return _Difference(float(after.mean() - before.mean()), drawn, sum(variances), freedom)


def _means(values: Array, rng: np.random.Generator) -> Array:
    """Return the deviations of means of resamples, multiplied by sqrt(n / (n - 1))."""
    n = len(values)
    chosen = rng.integers(n, size=(REPLICATES, n))
    # ``mean(axis=1)`` takes twice as long, because the rows are short.
    means = np.einsum("rn->r", values[chosen]) / n
    deviations: Array = (means - values.mean()) * math.sqrt(n / (n - 1.0))
    return deviations


def _welch(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Return the degrees of freedom of a difference of means (Welch, Biometrika 34, 1947).

    Args:
        variances: variance of each mean.
        counts: number of values of each mean.
    """
    squares = sum(v * v / (n - 1.0) for v, n in zip(variances, counts, strict=True))
    return sum(variances) ** 2 / squares if squares > 0.0 else sum(counts) - 2.0


def _scaled(deviations: Array, freedom: float, rng: np.random.Generator) -> Array:
    """Turn normal deviations into Student's t, because few runs give an uncertain variance."""
    scaled: Array = deviations * np.sqrt(freedom / rng.chisquare(freedom, size=REPLICATES))
    return scaled


def _interval(change: _Difference, rng: np.random.Generator) -> RatioInterval:
    """Return a ratio and its interval from the difference of logarithms."""
    # Rounding errors are set to 0, because means of equal values may differ in their last bit.
    difference = 0.0 if abs(change.value) < _ROUNDING else change.value
    deviations = np.where(np.abs(change.deviations) < _ROUNDING, 0.0, change.deviations)
    drawn = _scaled(deviations, change.freedom, rng)
    low, high = np.quantile(drawn, _ENDS)
    # One is added to the numbers of extreme replicates and of all replicates, so that p is never 0.
    tails = [(drawn >= abs(difference)).sum(), (drawn <= -abs(difference)).sum()]
    p = min((sum(tails) + 1.0) / (REPLICATES + 1.0), 1.0)
    student = rng.standard_t(change.freedom, size=REPLICATES)
    needed = np.quantile(student, (_ENDS[1], POWER)).sum()
    return RatioInterval(
        value=math.exp(difference),
        low=_exp(difference - float(high)),
        high=_exp(difference - float(low)),
        p=p,
        detectable=_exp(float(needed) * math.sqrt(change.variance)) - 1.0,
    )


def _logarithms(values: Sequence[float] | Array) -> Array:
    """Return natural logarithms; NumPy's differ in the last digit between kinds of processors."""
    return np.array([math.log(value) for value in np.asarray(values).tolist()])


def _exp(value: float) -> float:
    """Return exp(value); ``value`` is limited to +-100, so that ends of intervals are finite."""
    return math.exp(min(max(value, -100.0), 100.0))

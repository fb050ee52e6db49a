"""Computes the ratio of two groups of few runs, with an interval and a p-value.

All computations use logarithms, so that a ratio and its inverse are treated alike. Intervals come
from a bootstrap over runs (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 8 and
14) with two corrections for few runs. First, deviations are stretched by sqrt(n / (n - 1)), because
a resample of n values has only (n - 1) / n of their variance. Second, each replicate is scaled by
sqrt(df / chi-square), which turns normal replicates into Student's t with Welch's degrees of
freedom. ``tests/benchmarks/comparison.py`` measures how often these intervals, and those of a plain
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
"""Number of bootstrap replicates, which makes interval ends stable in their third digit."""
CONFIDENCE: Final = 0.95
ALPHA: Final = 1.0 - CONFIDENCE
POWER: Final = 0.8
"""Probability of detecting the smallest detectable effect."""
# With a fixed seed, the same runs always give the same result.
_SEED: Final = 20_261_122
# Differences of logarithms below this value are rounding errors.
_ROUNDING: Final = 1e-12
_ENDS: Final = ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """The ratio of two means, new over old, with its 95 % interval.

    Attributes:
        p: two-sided p-value: the probability of a difference at least this large if the true
            ratio is 1.
        detectable: smallest change that this number of runs detects with probability 0.8, as a
            share: 0.03 is 3 %.
    """

    value: float
    low: float
    high: float
    p: float
    detectable: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of one run, each long enough to be nearly independent of the previous block.

    Attributes:
        amount: (n,) the compared quantity of each block, such as joules.
        work: (n,) the work done in each block, such as samples.
    """

    amount: Array
    work: Array


class _Difference(NamedTuple):
    """A difference of means: its value, deviations of resamples, variance, degrees of freedom."""

    value: float
    deviations: Array
    variance: float
    freedom: float


def ratio_of_runs(old: Sequence[float], new: Sequence[float]) -> RatioInterval | None:
    """Return the ratio new / old of two groups of runs that are independent of each other.

    Args:
        old: (n,) positive value of each run of the first group.
        new: (m,) positive value of each run of the other group.

    Returns:
        ``None`` if a group has fewer than two runs, because the spread of runs is then unknown.
    """
    return _ratio(old, new, in_pairs=False)


def ratio_of_pairs(old: Sequence[float], new: Sequence[float]) -> RatioInterval | None:
    """Return the ratio new / old of runs that were made in pairs, so that drift cancels.

    Args:
        old: (n,) positive value of the first group in each pair.
        new: (n,) positive value of the other group in each pair.

    Returns:
        ``None`` if there are fewer than two pairs.
    """
    return _ratio(old, new, in_pairs=True)


def _ratio(old: Sequence[float], new: Sequence[float], *, in_pairs: bool) -> RatioInterval | None:
    if min(len(old), len(new)) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    before, after = (np.log(np.asarray(values, dtype=float)) for values in (old, new))
    return _interval(_difference(before, after, rng, in_pairs=in_pairs), rng)


def ratio_of_blocks(old: Blocks, new: Blocks) -> RatioInterval | None:
    """Return the ratio new / old of two runs; its interval excludes the spread between runs.

    Neighbouring steps are correlated; blocks of many seconds are nearly independent
    (Kuensch, Annals of Statistics 17, 1989). The result is ``None`` if a run has fewer than two
    blocks.
    """
    if min(len(old.amount), len(new.amount)) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    values, drawn, variances = [], [], []
    for blocks in (old, new):
        value = math.log(blocks.amount.sum() / blocks.work.sum())
        n = len(blocks.amount)
        chosen = rng.integers(n, size=(REPLICATES, n))
        replicates = np.log(blocks.amount[chosen].sum(axis=1) / blocks.work[chosen].sum(axis=1))
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
        new: (m,) value of each run of the other group.
        in_pairs: whether the n-th runs of both groups form a pair.

    Returns:
        ``None`` if a group has fewer than two runs.
    """
    if min(len(old), len(new)) < 2:
        return None
    before, after = (np.asarray(values, dtype=float) for values in (old, new))
    rng = np.random.default_rng(_SEED)
    change = _difference(before, after, rng, in_pairs=in_pairs)
    low, high = np.quantile(_scaled(change.deviations, change.freedom, rng), _ENDS)
    value = float(after.mean() - before.mean())
    return value - float(high), value - float(low)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple comparisons, which limits the family-wise error rate.

    The smallest p-value is multiplied by n, the next by n - 1, and so on; the adjusted values never
    decrease (Holm, Scandinavian Journal of Statistics 6, 1979).

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
    """Return deviations of the means of resamples, corrected by sqrt(n / (n - 1))."""
    n = len(values)
    chosen = rng.integers(n, size=(REPLICATES, n))
    deviations: Array = (values[chosen].mean(axis=1) - values.mean()) * math.sqrt(n / (n - 1.0))
    return deviations


def _welch(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Return the degrees of freedom of a difference of means (Welch, Biometrika 34, 1947)."""
    squares = sum(v * v / (n - 1.0) for v, n in zip(variances, counts, strict=True))
    return sum(variances) ** 2 / squares if squares > 0.0 else sum(counts) - 2.0


def _scaled(deviations: Array, freedom: float, rng: np.random.Generator) -> Array:
    """Turn normal deviations into Student's t, because few runs give an uncertain variance."""
    scaled: Array = deviations * np.sqrt(freedom / rng.chisquare(freedom, size=REPLICATES))
    return scaled


def _interval(change: _Difference, rng: np.random.Generator) -> RatioInterval:
    """Return the interval of a ratio from the difference of logarithms."""
    # Rounding errors are set to 0, because means of equal values may differ in their last bit.
    difference = 0.0 if abs(change.value) < _ROUNDING else change.value
    deviations = np.where(np.abs(change.deviations) < _ROUNDING, 0.0, change.deviations)
    drawn = _scaled(deviations, change.freedom, rng)
    low, high = np.quantile(drawn, _ENDS)
    # One is added to both counts, so that p is never 0.
    tails = [(drawn >= abs(difference)).sum(), (drawn <= -abs(difference)).sum()]
    p = min((sum(tails) + 1.0) / (REPLICATES + 1.0), 1.0)
    student = rng.standard_t(change.freedom, size=REPLICATES)
    needed = np.quantile(student, _ENDS[1]) + np.quantile(student, POWER)
    return RatioInterval(
        value=math.exp(difference),
        low=_exp(difference - float(high)),
        high=_exp(difference - float(low)),
        p=p,
        detectable=_exp(float(needed) * math.sqrt(change.variance)) - 1.0,
    )


def _exp(value: float) -> float:
    """Return the exponential, limited so that an interval without information has finite ends."""
    return math.exp(min(max(value, -100.0), 100.0))

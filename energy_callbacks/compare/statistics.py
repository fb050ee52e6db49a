"""Whether two sets of runs differ, and by how much: ratios with intervals, from few repeats.

All is done on logarithms, so that a ratio and its inverse are treated alike. The interval is that
of a bootstrap over runs (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, ch. 8 and
14) with the two corrections that few runs need: deviations are stretched by sqrt(n / (n - 1)),
since a resample of n values has only (n - 1) / n of their variance; and each replicate is scaled by
sqrt(df / chi-square), which turns normal replicates into Student's t with Welch's degrees of
freedom. ``tests/benchmarks/comparison.py`` shows how often such intervals hold the truth, and how
seldom those of a plain bootstrap do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

REPLICATES: Final = 20_000
"""Enough for ends of intervals that hold still in their third digit."""
CONFIDENCE: Final = 0.95
ALPHA: Final = 1.0 - CONFIDENCE
POWER: Final = 0.8
"""How often the smallest detectable effect would be found."""
# The same runs give the same answer; each question draws from a stream of its own all the same.
_SEED: Final = 20_261_122
_ROUNDING: Final = 1e-12
_ENDS: Final = ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """The ratio of two means, new over old.

    Attributes:
        value: best value.
        low: lower end of the 95 % interval.
        high: upper end.
        p: two-sided; how likely so large a difference is if there is none.
        detectable: smallest change that as many such runs would find in four of five cases, as a
            share: 0.03 is 3 %.
    """

    value: float
    low: float
    high: float
    p: float
    detectable: float


def ratio_of_runs(old: Sequence[float], new: Sequence[float]) -> RatioInterval | None:
    """The ratio of two groups of runs that were made independently of each other.

    Args:
        old: a positive value for each run, n values.
        new: of the other group, m values.

    Returns:
        ``None`` if a group has less than two runs: how much runs differ is not known then.
    """
    logs = [np.log(np.asarray(values, dtype=float)) for values in (old, new)]
    if min(len(one) for one in logs) < 2:
        return None
    variances = [float(one.var(ddof=1)) / len(one) for one in logs]
    rng = np.random.default_rng(_SEED)
    drawn = _means(logs[1], rng) - _means(logs[0], rng)
    freedom = _welch(variances, [len(one) for one in logs])
    return _interval(float(logs[1].mean() - logs[0].mean()), drawn, sum(variances), freedom, rng)


def ratio_of_pairs(old: Sequence[float], new: Sequence[float]) -> RatioInterval | None:
    """The same of runs that were made in pairs, one after the other: drifts cancel.

    Args:
        old: a positive value for each pair, n values.
        new: of the other group, n values in the same order.
    """
    logs = np.log(np.asarray(new, dtype=float)) - np.log(np.asarray(old, dtype=float))
    if len(logs) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    variance = float(logs.var(ddof=1)) / len(logs)
    return _interval(float(logs.mean()), _means(logs, rng), variance, len(logs) - 1.0, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Stretches of one run, each long enough to know little of the one before it.

    Attributes:
        amount: of what is asked for in each, such as joules, (n,).
        work: what it was for, such as samples, (n,).
    """

    amount: Array
    work: Array


def ratio_of_blocks(old: Blocks, new: Blocks) -> RatioInterval | None:
    """The ratio of two runs, from their blocks: how two *runs* of the same differ is not in it.

    Steps that are neighbours resemble each other, blocks of many seconds hardly do
    (Kuensch, Annals of Statistics 17, 1989).
    """
    if min(len(old.amount), len(new.amount)) < 2:
        return None
    rng = np.random.default_rng(_SEED)
    values, drawn, variances = [], [], []
    for one in (old, new):
        value = math.log(one.amount.sum() / one.work.sum())
        n = len(one.amount)
        chosen = rng.integers(n, size=(REPLICATES, n))
        replicates = np.log(one.amount[chosen].sum(axis=1) / one.work[chosen].sum(axis=1))
        deviations = (replicates - value) * math.sqrt(n / (n - 1.0))
        values.append(value)
        drawn.append(deviations)
        variances.append(float(deviations.var()))
    freedom = _welch(variances, [len(old.amount), len(new.amount)])
    return _interval(values[1] - values[0], drawn[1] - drawn[0], sum(variances), freedom, rng)


def difference(
    old: Sequence[float], new: Sequence[float], *, in_pairs: bool
) -> tuple[float, float] | None:
    """The 95 % interval of the difference of two means, new minus old; see ``ratio_of_runs``."""
    if min(len(old), len(new)) < 2:
        return None
    before, after = (np.asarray(values, dtype=float) for values in (old, new))
    rng = np.random.default_rng(_SEED)
    if in_pairs:
        drawn, freedom = _means(after - before, rng), len(before) - 1.0
    else:
        drawn = _means(after, rng) - _means(before, rng)
        variances = [float(one.var(ddof=1)) / len(one) for one in (before, after)]
        freedom = _welch(variances, [len(before), len(after)])
    low, high = np.quantile(_scaled(drawn, freedom, rng), _ENDS)
    value = float(after.mean() - before.mean())
    return value - float(high), value - float(low)


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values of several questions at once, such that one in twenty families errs, not questions.

    Holm, Scandinavian Journal of Statistics 6 (1979): the smallest times n, the next times n - 1,
    and so on, never falling.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for place, index in enumerate(np.argsort(p_values).tolist()):
        highest = max(highest, min((len(p_values) - place) * p_values[index], 1.0))
        adjusted[index] = highest
    return adjusted


def _means(values: Array, rng: np.random.Generator) -> Array:
    """Deviations of the means of resamples, scaled to those of the mean of runs."""
    n = len(values)
    chosen = rng.integers(n, size=(REPLICATES, n))
    deviations: Array = (values[chosen].mean(axis=1) - values.mean()) * math.sqrt(n / (n - 1.0))
    return deviations


def _welch(variances: Sequence[float], counts: Sequence[int]) -> float:
    """Degrees of freedom of a difference; Welch, Biometrika 34 (1947)."""
    squares = sum(v * v / (n - 1.0) for v, n in zip(variances, counts, strict=True))
    return sum(variances) ** 2 / squares if squares > 0.0 else sum(counts) - 2.0


def _scaled(deviations: Array, freedom: float, rng: np.random.Generator) -> Array:
    """Few runs do not know their own spread: normal deviations become Student's t."""
    scaled: Array = deviations * np.sqrt(freedom / rng.chisquare(freedom, size=REPLICATES))
    return scaled


def _interval(
    difference: float, deviations: Array, variance: float, freedom: float, rng: np.random.Generator
) -> RatioInterval:
    """An interval from what the difference of the logarithms deviates by."""
    # Means of equal values differ in their last bit.
    difference = 0.0 if abs(difference) < _ROUNDING else difference
    deviations = np.where(np.abs(deviations) < _ROUNDING, 0.0, deviations)
    drawn = _scaled(deviations, freedom, rng)
    low, high = np.quantile(drawn, _ENDS)
    # One replicate more, so that chance is never said to be impossible.
    tails = [(drawn >= abs(difference)).sum(), (drawn <= -abs(difference)).sum()]
    p = min((sum(tails) + 1.0) / (REPLICATES + 1.0), 1.0)
    student = rng.standard_t(freedom, size=REPLICATES)
    needed = np.quantile(student, _ENDS[1]) + np.quantile(student, POWER)
    return RatioInterval(
        value=math.exp(difference),
        low=_exp(difference - float(high)),
        high=_exp(difference - float(low)),
        p=p,
        detectable=_exp(float(needed) * math.sqrt(variance)) - 1.0,
    )


def _exp(value: float) -> float:
    """For runs with hardly any information: an end so far away that it is clearly not a result."""
    return math.exp(min(max(value, -100.0), 100.0))

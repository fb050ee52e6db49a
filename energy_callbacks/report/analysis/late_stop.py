"""Detects trainings that continued after their best validation and got worse beyond noise."""

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.report.collect.rows import Array
from energy_callbacks.report.model.metrics import Metric

# Minimum number of validations to estimate the noise, and number of last validations that must all
# be worse than the best one.
_FEWEST, _FEWEST_AFTER = 6, 3
# Changes of a metric that are smaller than this share of its best value are negligible.
_SMALL: Final = 0.01


class LateStop(NamedTuple):
    """The best validation of a metric, and the training after it.

    Attributes:
        metric: the metric of the validations.
        best: index of the best value in ``metric.value``.
        after_j: energy between the best validation and the last one, in J.
        after_s: time between the best validation and the last one, in s.
    """

    metric: Metric
    best: int
    after_j: float
    after_s: float


def late_stop(metrics: Sequence[Metric]) -> LateStop | None:
    """Return the late stop of a validation metric that got worse at the end; ``None`` if none did.

    A metric is ignored if another validation metric still improved after the best value of the
    first. Of several metrics, the one with the least energy after its best value is returned.
    """
    judged = [
        metric
        for metric in metrics
        if metric.is_validation and metric.direction and len(metric.value) >= _FEWEST
    ]
    found = [
        late
        for late in map(_past_best, judged)
        if late and not any(_improves_after(one, late.metric.t_s[late.best]) for one in judged)
    ]
    return min(found, key=attrgetter("after_j"), default=None)


def _past_best(metric: Metric) -> LateStop | None:
    """Return the late stop of a metric; ``None`` if its last values are not worse beyond noise."""
    costs = _costs(metric)
    best = int(np.argmin(costs))
    is_worse = costs[-_FEWEST_AFTER:].min() - costs[best] > _noise(costs)
    start_j, end_j = metric.energy_j[best], metric.energy_j[-1]
    if not is_worse or start_j is None or end_j is None:
        return None
    return LateStop(metric, best, end_j - start_j, metric.t_s[-1] - metric.t_s[best])


def _improves_after(metric: Metric, t_s: float) -> bool:
    costs, is_before = _costs(metric), np.asarray(metric.t_s) <= t_s
    before, after = costs[is_before], costs[~is_before]
    return bool(len(before) and len(after) and before.min() - after.min() > _noise(costs))


def _costs(metric: Metric) -> Array:
    """Return the values with a sign such that lower is better."""
    return np.asarray(metric.value) * (1.0 if metric.direction == "lower" else -1.0)


def _noise(costs: Array) -> float:
    """Return the largest difference between best and later values that noise can explain.

    The standard deviation of the noise is estimated from the median of third differences, which are
    nearly zero for a smooth curve; a margin is added if there are few values. The lowest of n
    normal values lies about sqrt(2 ln n) standard deviations below their mean.
    """
    differences = np.diff(costs, n=3)
    deviation = 1.4826 * float(np.median(np.abs(differences))) / math.sqrt(20.0)
    deviation *= 1.0 + 2.0 / len(differences)
    by_chance = (math.sqrt(2.0 * math.log(len(costs))) + 2.0) * deviation
    return max(by_chance, _SMALL * abs(float(costs.min())))

"""Detects trainings that continued after their best validation although a metric got worse."""

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.report.collect.rows import Array
from energy_callbacks.report.model.metrics import Metric

# Minimum number of validations from which the noise can be estimated, and number of last
# validations that must all be worse than the best one by more than the noise.
_FEWEST, _FEWEST_AFTER = 6, 3
# Changes of a metric up to this share of its best value count as noise.
_SMALL: Final = 0.01


class LateStop(NamedTuple):
    """The best validation of a metric, and energy and time of the training after it.

    Attributes:
        metric: the metric of the validations.
        best: index of the best value in ``metric.value``.
        after_j: energy between the best validation and the last one, in J; ``None`` if not known.
        after_s: time between the best validation and the last one, in s.
    """

    metric: Metric
    best: int
    after_j: float | None
    after_s: float


def late_stop(metrics: Sequence[Metric]) -> LateStop | None:
    """Return the late stop of a validation metric that got worse at the end; ``None`` if none did.

    A metric is ignored if, after its best value, any other validation metric improved by more than
    noise. If several metrics remain, the late stop with the least time after the best value is
    returned. Only metrics with a known direction and at least six values are considered.
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
    return min(found, key=attrgetter("after_s"), default=None)


def _past_best(metric: Metric) -> LateStop | None:
    """Return the late stop of a metric.

    The result is ``None`` if the last values are not worse than the best value by more than noise.
    """
    costs = _costs(metric)
    best = int(np.argmin(costs))
    is_worse = costs[-_FEWEST_AFTER:].min() - costs[best] > _noise(costs)
    if not is_worse:
        return None
    start_j, end_j = metric.energy_j[best], metric.energy_j[-1]
    after_j = None if start_j is None or end_j is None else end_j - start_j
    return LateStop(metric, best, after_j, metric.t_s[-1] - metric.t_s[best])


def _improves_after(metric: Metric, t_s: float) -> bool:
    costs, is_before = _costs(metric), np.asarray(metric.t_s) <= t_s
    before, after = costs[is_before], costs[~is_before]
    return bool(len(before) and len(after) and before.min() - after.min() > _noise(costs))


def _costs(metric: Metric) -> Array:
    """Return the values, negated if higher values are better, so that lower is always better."""
    return np.asarray(metric.value) * (1.0 if metric.direction == "lower" else -1.0)


def _noise(costs: Array) -> float:
    """Return by how much the best value and later values may differ because of noise.

    The standard deviation of the noise is estimated from third differences of the values. Those of
    a smooth curve are nearly zero, so the differences contain almost only noise. For normal noise,
    the standard deviation of third differences is 1.4826 times the median of their absolute values,
    and sqrt(20) times the standard deviation of the noise. The fewer values there are, the more the
    estimate is increased.

    The lowest of n normal values lies about sqrt(2 ln n) standard deviations below their mean. The
    result is sqrt(2 ln n) + 2 standard deviations, where 2 is a margin, but at least ``_SMALL``
    times the best value.
    """
    differences = np.diff(costs, n=3)
    deviation = 1.4826 * float(np.median(np.abs(differences))) / math.sqrt(20.0)
    deviation *= 1.0 + 2.0 / len(differences)
    by_chance = (math.sqrt(2.0 * math.log(len(costs))) + 2.0) * deviation
    return max(by_chance, _SMALL * abs(float(costs.min())))

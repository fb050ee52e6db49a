"""Whether a training went on long after its best validation, beyond what noise explains."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.report.collect.rows import Array
from energy_callbacks.report.model.metrics import Metric

# Fewer validations say nothing of their noise, and fewer after the best nothing of a turn.
_FEWEST, _FEWEST_AFTER = 6, 3
# A negligible change of the metric, as a share of its best value.
_SMALL: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class LateStop:
    """The best validation of a metric, and what came after it.

    Attributes:
        best: its place among the metric's points.
        after_j: used from the best validation to the last.
        after_s: time between them.
    """

    metric: Metric
    best: int
    after_j: float
    after_s: float


def late_stop(metrics: Sequence[Metric]) -> LateStop | None:
    """The metric that got worse at last, unless another one still got better meanwhile.

    Of several the one whose best came last: after it, none has gained anything.
    """
    known = [one for one in metrics if one.is_validation and one.direction]
    judged = [one for one in known if len(one.value) >= _FEWEST]
    found = []
    for metric in judged:
        late = _past_best(metric)
        if late and not any(_improves_after(other, metric.t_s[late.best]) for other in judged):
            found.append(late)
    return min(found, key=lambda late: late.after_j, default=None)


def _past_best(metric: Metric) -> LateStop | None:
    """The best of all, if the best of the last ones is worse beyond noise."""
    costs = _costs(metric)
    best = int(np.argmin(costs))
    is_worse = costs[-_FEWEST_AFTER:].min() - costs[best] > _noise(costs)
    start_j, end_j = metric.energy_j[best], metric.energy_j[-1]
    if not is_worse or start_j is None or end_j is None:
        return None
    after_s = metric.t_s[-1] - metric.t_s[best]
    return LateStop(metric=metric, best=best, after_j=end_j - start_j, after_s=after_s)


def _improves_after(metric: Metric, t_s: float) -> bool:
    costs, is_before = _costs(metric), np.asarray(metric.t_s) <= t_s
    before, after = costs[is_before], costs[~is_before]
    return bool(len(before) and len(after) and before.min() - after.min() > _noise(costs))


def _costs(metric: Metric) -> Array:
    """The values, turned so that lower is better."""
    return np.asarray(metric.value) * (1.0 if metric.direction == "lower" else -1.0)


def _noise(costs: Array) -> float:
    """How far the best of this many may lie below their level by chance, and a value above it.

    The standard deviation is that of third differences, which hardly see a smooth curve, by their
    median, and more if these are few; the lowest of n normal values lies some sqrt(2 ln n) of it
    below their mean.
    """
    differences = np.diff(costs, n=3)
    deviation = 1.4826 * float(np.median(np.abs(differences))) / math.sqrt(20.0)
    deviation *= 1.0 + 2.0 / len(differences)
    by_chance = (math.sqrt(2.0 * math.log(len(costs))) + 2.0) * deviation
    return max(by_chance, _SMALL * abs(float(costs.min())))

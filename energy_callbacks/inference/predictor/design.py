"""Chooses configurations to measure before anything is known: far from each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from energy_callbacks.inference.records import Configuration


def maximin(
    candidates: Sequence[Configuration], count: int, *, seed: int = 0
) -> list[Configuration]:
    """Return configurations whose smallest distance from each other is large.

    Each next one is the farthest from those already chosen; the best of several random starts is
    returned. Batches, shares and numbers of tenants are compared as logarithms.

    Args:
        candidates: configurations to choose from.
        count: number to choose; all, if there are fewer.
        seed: seed of the random starts.
    """
    if count >= len(candidates):
        return list(candidates)
    points = np.array([_point(one) for one in candidates])
    spread = np.ptp(points, axis=0)
    points = points[:, spread > 0] / spread[spread > 0]
    random = np.random.default_rng(seed)
    chosen = [_spread_out(points, count, int(random.integers(len(points)))) for _ in range(20)]
    return [candidates[at] for at in max(chosen)[1]]


def _spread_out(points: Any, count: int, first: int) -> tuple[float, list[int]]:
    """Return the smallest distance between the chosen points, and their indices."""
    chosen, smallest = [first], np.inf
    distance = np.linalg.norm(points - points[first], axis=1)
    while len(chosen) < count:
        at = int(np.argmax(distance))
        smallest = min(smallest, distance[at])
        chosen.append(at)
        distance = np.minimum(distance, np.linalg.norm(points - points[at], axis=1))
    return float(smallest), chosen


def _point(one: Configuration) -> list[float]:
    batches = [np.log(tenant.batch) for tenant in one.tenants] or [0.0]
    shares = [np.log(tenant.share_pct) for tenant in one.tenants] or [0.0]
    return [
        float(np.mean(batches)),
        float(np.mean(shares)),
        float(np.log1p(len(one.tenants))),
        one.power_limit_w or 0.0,
        one.sm_mhz or 0.0,
    ]

"""All packings of a GPU by tenants of one or two kinds, evaluated at once."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.inference.planner.additive import Array, System
from energy_callbacks.inference.planner.problem import GpuSetting, Objective, Problem
from energy_callbacks.inference.records import Configuration, most_tenants

_Counts = NDArray[np.int64]


def best(system: System, objective: Objective, count: int = 1) -> list[tuple[Array, float]]:
    """Return the best packings at one setting with their scores, the best one first.

    Packings with one kind of tenant have every number of tenants. Those with two kinds are
    maximal: after some tenants of the first kind, as many of the second kind as the shares allow.

    Args:
        system: the limits for several tenants.
        objective: what to optimise.
        count: how many packings to return.
    """
    kinds = system.without_dominated()
    if not kinds.tenants:
        return []
    first, second, firsts, seconds = _packings(kinds)
    used = kinds.matrix[:, first] * firsts + kinds.matrix[:, second] * seconds
    allowed = (used <= kinds.bounds[:, None]).all(axis=0) & (firsts + seconds >= 2)
    values = kinds.values[first] * firsts + kinds.values[second] * seconds
    powers_w = kinds.static_w + kinds.powers_w[first] * firsts + kinds.powers_w[second] * seconds
    scores = values if objective == "throughput" else -powers_w / values
    scores = np.where(allowed, scores, -np.inf)
    found = []
    for index in np.argsort(-scores, kind="stable")[:count]:
        if not np.isfinite(scores[index]):
            break
        counts = np.zeros(len(system.tenants))
        for kind, number in ((first, firsts), (second, seconds)):
            counts[system.tenants.index(kinds.tenants[kind[index]])] += number[index]
        found.append((counts, float(scores[index])))
    return found


def homogeneous(problem: Problem, settings: Iterable[GpuSetting]) -> list[Configuration]:
    """Return all configurations at some settings in which all tenants are equal."""
    return [
        setting.configuration([tenant] * count)
        for setting in settings
        for tenant in problem.tenants()
        for count in range(1, most_tenants(tenant.share_pct) + 1)
    ]


def _packings(kinds: System) -> tuple[_Counts, _Counts, _Counts, _Counts]:
    """Return both kinds of each packing, and their numbers."""
    shares = np.array([one.share_pct for one in kinds.tenants])
    most = [most_tenants(share) for share in shares]
    first = np.repeat(np.arange(len(shares)), most)
    firsts = np.concatenate([np.arange(1, number + 1) for number in most])
    left = 100.0 - firsts * shares[first]
    seconds = np.floor(left[:, None] / shares + 1e-9).astype(int)  # of each other kind
    rows, second = np.nonzero(seconds)
    return (
        np.concatenate([first, first[rows]]),
        np.concatenate([first, second]),
        np.concatenate([firsts, firsts[rows]]),
        np.concatenate([np.zeros_like(firsts), seconds[rows, second]]),
    )

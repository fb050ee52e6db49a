"""The best plan of an additive model: one mixed-integer linear program per setting (HiGHS).

Maximal throughput is linear in the numbers of tenants. Minimal energy per sample is a ratio, which
Dinkelbach's method finds by a few linear problems: with the best ratio so far, ``c``, a plan is
better if ``c * throughput - power`` is positive. A setting is left out if the linear relaxation,
in which numbers of tenants may be fractions, shows that no plan there is better than the best
plan so far. This rule includes the bounds by shares alone and by power alone.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.core import extras
from energy_callbacks.inference.planner.additive import Array, System
from energy_callbacks.inference.planner.judge import TOLERANCE
from energy_callbacks.inference.planner.problem import GpuSetting, Objective
from energy_callbacks.inference.records import Configuration

# HiGHS accepts plans that exceed a limit by 1e-6. Such plans are searched again with limits that
# are reduced by these amounts, relative to the largest entry of a row.
_REDUCTIONS: Final = (0.0, 2e-6, 2e-5)
_BISECTIONS: Final = 30
_INFEASIBLE: Final = 2  # status of ``scipy.optimize.milp``
# A plan must be better than the best one by this relative difference.
_BETTER: Final = 1e-9


class Effort(NamedTuple):
    """When the solver stops: at a relative gap, or after a time in s for each program."""

    gap: float
    longest_s: float


# Many batches of nearly the same efficiency can take a minute. After two seconds the gap that is
# left is below 1e-5; it is reported.
EXACT: Final = Effort(0.0, 2.0)
ROUGH: Final = Effort(0.01, 0.2)  # for approximations


class Found(NamedTuple):
    """The best plan of an additive model.

    Attributes:
        configuration: the plan.
        value: the objective.
        bound: no plan of the model is better.
    """

    configuration: Configuration
    value: float
    bound: float


class _Best(NamedTuple):
    setting: GpuSetting
    system: System
    counts: Array
    throughput: float
    power_w: float

    def score(self, objective: Objective) -> float:
        return self.throughput if objective == "throughput" else -self.power_w / self.throughput


def solve(
    pairs: Sequence[tuple[System, System]], objective: Objective, effort: Effort = EXACT
) -> Found | None:
    """Return the best plan over all settings; ``None`` if no plan is allowed.

    Args:
        pairs: for each setting, the systems for a single tenant and for several tenants.
        objective: what to optimise.
        effort: when the solver stops.
    """
    best: _Best | None = None
    for alone, _ in pairs:
        best = _better(best, single(alone, objective), objective)
    several = [shared.without_dominated() for _, shared in pairs]
    reach = [_relaxation(one, one.values) for one in several]
    unproven = -np.inf
    for index in sorted(range(len(several)), key=lambda place: -reach[place]):
        if objective == "throughput":
            found, bound = _most_throughput(several[index], reach[index], best, effort)
        else:
            found, bound = _least_energy(several[index], best, effort)
        unproven = max(unproven, bound)
        best = _better(best, found, objective)
    if best is None:
        return None
    score = best.score(objective)
    sign = 1.0 if objective == "throughput" else -1.0
    return Found(_configuration(best), sign * score, sign * max(score, unproven))


def relaxed(pairs: Sequence[tuple[System, System]], objective: Objective) -> float | None:
    """Return a bound of the objective: numbers of tenants may be fractions; ``None`` if unknown."""
    singles = [single(alone, objective) for alone, _ in pairs]
    scores = [one.score(objective) for one in singles if one is not None]
    several = [shared.without_dominated() for _, shared in pairs]
    if objective == "throughput":
        scores += [_relaxation(one, one.values) for one in several]
    else:
        scores += [_relaxed_energy(one) for one in several]
    best = max(scores, default=-np.inf)
    return abs(best) if np.isfinite(best) else None


def _relaxed_energy(system: System) -> float:
    """Return the negative of a bound of the energy per sample, by bisection."""
    if not np.isfinite(_relaxation(system, system.values)):
        return -np.inf
    low_j, high_j = 0.0, float(((system.static_w + system.powers_w) / system.values).max())
    for _ in range(_BISECTIONS):
        ratio_j = (low_j + high_j) / 2.0
        gain = _relaxation(system, ratio_j * system.values - system.powers_w)
        low_j, high_j = (low_j, ratio_j) if gain >= system.static_w else (ratio_j, high_j)
    return -low_j


def single(alone: System, objective: Objective) -> _Best | None:
    """Return the best single tenant at a setting."""
    allowed = (alone.matrix <= alone.bounds[:, None]).all(axis=0)
    powers_w = alone.static_w + alone.powers_w
    scores = alone.values if objective == "throughput" else -powers_w / alone.values
    if not allowed.any():
        return None
    index = int(np.argmax(np.where(allowed, scores, -np.inf)))
    counts = np.zeros(len(alone.tenants))
    counts[index] = 1.0
    return _Best(alone.setting, alone, counts, alone.values[index], powers_w[index])


def counts_of(
    system: System,
    gains: Array,
    least_gain: float | None = None,
    limits: tuple[Array, Array] | None = None,
    effort: Effort = EXACT,
) -> tuple[Array | None, float]:
    """Return numbers of tenants, at least two in all, with the largest gain, and its upper bound.

    Args:
        system: the limits.
        gains: gain of each tenant.
        least_gain: plans with less are not searched.
        limits: matrix and bounds to use instead of those of ``system``.
        effort: when the solver stops.
    """
    nothing = -np.inf if least_gain is None else least_gain
    if not system.tenants:
        return None, nothing
    matrix, bounds = _scaled(*(limits or (system.matrix, system.bounds)))
    size = float(np.abs(gains).max()) or 1.0
    if least_gain is not None:
        matrix = np.vstack([matrix, -gains / size])
        bounds = np.append(bounds, -least_gain / size)
    most = nothing
    for reduction in _REDUCTIONS:
        counts, bound = _milp(gains / size, matrix, bounds - reduction, _most(system), effort)
        most = max(most, bound * size)
        if counts is None or (matrix @ counts <= bounds + TOLERANCE).all():
            return counts, most
    return None, most


def _milp(
    gains: Array, matrix: Array, bounds: Array, most: Array, effort: Effort
) -> tuple[Array | None, float]:
    """Return the counts with the largest gain, and its bound.

    The bound is ``-inf`` if no counts are allowed, and ``inf`` if the solver has stopped without a
    bound.
    """
    with extras.requires("scipy", extra="powercap"):
        from scipy.optimize import Bounds, LinearConstraint, milp
    result = milp(
        -gains,
        constraints=[
            LinearConstraint(matrix, ub=bounds),
            LinearConstraint(np.ones((1, len(gains))), lb=2.0),
        ],
        bounds=Bounds(0.0, most),
        integrality=np.ones(len(gains)),
        options={"mip_rel_gap": effort.gap, "time_limit": effort.longest_s},
    )
    if result.status == _INFEASIBLE:
        return None, -np.inf
    bound = result.mip_dual_bound
    counts = None if result.x is None else np.round(result.x)
    return counts, np.inf if bound is None else -float(bound)


def _scaled(matrix: Array, bounds: Array) -> tuple[Array, Array]:
    """Divide each row by its largest entry, because HiGHS' tolerances are absolute."""
    sizes = np.abs(matrix).max(axis=1)
    sizes[sizes == 0.0] = 1.0
    return matrix / sizes[:, None], bounds / sizes


def _most(system: System) -> Array:
    shares = np.array([one.share_pct for one in system.tenants])
    return np.floor(100.0 / shares + _BETTER)


def _relaxation(system: System, gains: Array) -> float:
    """Return the largest gain if numbers of tenants may be fractions; ``-inf`` if none exist."""
    with extras.requires("scipy", extra="powercap"):
        from scipy.optimize import linprog
    if not system.tenants:
        return -np.inf
    matrix, bounds = _scaled(system.matrix, system.bounds)
    matrix = np.vstack([matrix, -np.ones(len(gains))])
    size = float(np.abs(gains).max()) or 1.0
    upper = list(zip(np.zeros(len(gains)), _most(system), strict=True))
    found = linprog(-gains / size, A_ub=matrix, b_ub=np.append(bounds, -2.0), bounds=upper)
    return -float(found.fun) * size if found.status == 0 else -np.inf


def _most_throughput(
    system: System, reach: float, best: _Best | None, effort: Effort
) -> tuple[_Best | None, float]:
    """Return the best plan at a setting and a bound; none if none is better than ``best``."""
    least = None if best is None else best.throughput * (1.0 + _BETTER)
    if not np.isfinite(reach) or (least is not None and reach <= least):
        return None, -np.inf
    counts, bound = counts_of(system, system.values, least, effort=effort)
    return _made(system, counts), min(bound, reach)


def _least_energy(system: System, best: _Best | None, effort: Effort) -> tuple[_Best | None, float]:
    """Return a plan with less energy per sample than ``best``, and a bound of the score.

    The bound is ``-inf`` if it is proven that no plan at this setting is better.
    """
    found = None
    if best is None:
        found = best = _made(system, counts_of(system, system.values, effort=effort)[0])
    while best is not None:
        ratio_j = best.power_w / best.throughput
        gains = ratio_j * system.values - system.powers_w
        least = system.static_w + _BETTER * best.power_w
        if _relaxation(system, gains) <= least:
            break
        counts, bound = counts_of(system, gains, least, effort=effort)
        better = _made(system, counts)
        if better is None or better.score("energy") <= best.score("energy"):
            is_proven = bound <= least + _BETTER * best.power_w
            return found, -np.inf if is_proven else _relaxed_energy(system)
        found = best = better
    return found, -np.inf


def _made(system: System, counts: Array | None) -> _Best | None:
    if counts is None:
        return None
    power_w = system.static_w + float(system.powers_w @ counts)
    return _Best(system.setting, system, counts, float(system.values @ counts), power_w)


def _better(first: _Best | None, second: _Best | None, objective: Objective) -> _Best | None:
    found = [one for one in (first, second) if one is not None]
    return max(found, key=lambda one: one.score(objective)) if found else None


def _configuration(best: _Best) -> Configuration:
    return configuration(best.system, best.counts)


def configuration(system: System, counts: Array) -> Configuration:
    """Return the configuration with these numbers of tenants."""
    tenants = [
        tenant
        for tenant, count in zip(system.tenants, counts, strict=True)
        for _ in range(int(count))
    ]
    tenants.sort(key=lambda one: (one.model, -one.share_pct, -one.batch))
    return system.setting.configuration(tenants)

"""Improves a plan by small changes, each judged by the predictor itself."""

import random
from collections.abc import Iterator
from itertools import permutations
from typing import Final

from energy_callbacks.inference.planner.judge import Judged, judge
from energy_callbacks.inference.planner.problem import STEP_PCT, GpuSetting, Problem
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Tenant

# Predictions of one search. A prediction takes half a millisecond if there are many.
_BUDGET: Final = 3000
_Tenants = tuple[Tenant, ...]


def improve(problem: Problem, model: PredictionModel, start: Judged) -> Judged:
    """Return the best plan that small changes of ``start`` reach, one after another.

    Each step takes the change that reduces the excess over the limits most or, within them,
    improves the objective most. The search ends if no change does, or after ``_BUDGET``
    predictions.

    Args:
        problem: limits and objective.
        model: the predictor.
        start: where to begin.
    """
    best, seen = start, {start.configuration}
    while len(seen) < _BUDGET:
        fresh = [one for one in _neighbours(problem, best.configuration) if one not in seen]
        fresh = list(dict.fromkeys(fresh))[: _BUDGET - len(seen)]
        seen.update(fresh)
        found = max(judge(problem, model, fresh), key=lambda one: one.rank, default=best)
        if found.rank <= best.rank:
            break
        best = found
    return best


def random_packings(problem: Problem, count: int) -> list[Configuration]:
    """Return configurations with random tenants, where a search can begin."""
    chance = random.Random(0)  # noqa: S311 - no secret
    found = []
    for _ in range(count):
        tenants: list[Tenant] = []
        free = 100.0
        while shares := [one for one in problem.shares_pct if one <= free]:
            one = Tenant(
                model=chance.choice(problem.models),
                share_pct=chance.choice(shares),
                batch=chance.choice(problem.batches),
            )
            tenants.append(one)
            free -= one.share_pct
        found.append(chance.choice(problem.settings).configuration(tenants))
    return found


def _neighbours(problem: Problem, configuration: Configuration) -> Iterator[Configuration]:
    """Yield the configurations with one change of a tenant or of the setting."""
    setting = GpuSetting(configuration.sm_mhz, configuration.mem_mhz, configuration.power_limit_w)
    place = problem.settings.index(setting)
    for other in problem.settings[max(0, place - 1) : place + 2]:
        yield other.configuration(configuration.tenants)
    for tenants in _changed(problem, configuration.tenants):
        if tenants and sum(one.share_pct for one in tenants) <= 100.0:
            ordered = sorted(tenants, key=lambda one: (one.model, -one.share_pct, -one.batch))
            yield setting.configuration(ordered)


def _changed(problem: Problem, tenants: _Tenants) -> Iterator[_Tenants]:
    """Yield tenants of which one or two were changed; their shares may be too large together."""
    free = 100.0 - sum(one.share_pct for one in tenants)
    for one in dict.fromkeys(tenants):
        others = _without(tenants, one)
        for new in _variants(problem, one):
            yield (*others, new)
        yield (*tenants, one)  # a second one
        yield others
        half = STEP_PCT * (one.share_pct // (2 * STEP_PCT))
        if {half, one.share_pct - half} <= set(problem.shares_pct):  # split
            yield (*others, _with_share(one, half), _with_share(one, one.share_pct - half))
    yield from _moved(problem, tenants)
    for model in problem.models:
        for batch in problem.batches:
            if free in problem.shares_pct:
                yield (*tenants, Tenant(model=model, share_pct=int(free), batch=batch))


def _variants(problem: Problem, tenant: Tenant) -> Iterator[Tenant]:
    """Yield a tenant with the next batches, the next shares and the other models."""
    place = problem.batches.index(tenant.batch)
    for batch in problem.batches[max(0, place - 1) : place + 2]:
        yield Tenant(model=tenant.model, share_pct=tenant.share_pct, batch=batch)
    for step in (STEP_PCT, -STEP_PCT):
        if tenant.share_pct + step in problem.shares_pct:
            yield _with_share(tenant, tenant.share_pct + step)
    for model in problem.models:
        yield Tenant(model=model, share_pct=tenant.share_pct, batch=tenant.batch)


def _moved(problem: Problem, tenants: _Tenants) -> Iterator[_Tenants]:
    """Yield tenants of which one has given 5 % to another, or two of a model became one."""
    for giver, taker in dict.fromkeys(permutations(tenants, 2)):
        others = _without(_without(tenants, giver), taker)
        given, taken = giver.share_pct - STEP_PCT, taker.share_pct + STEP_PCT
        if given in problem.shares_pct and taken in problem.shares_pct:
            yield (*others, _with_share(giver, given), _with_share(taker, taken))
        whole = giver.share_pct + taker.share_pct
        if giver.model == taker.model and whole in problem.shares_pct:
            yield (*others, _with_share(giver, whole))


def _without(tenants: _Tenants, one: Tenant) -> _Tenants:
    index = tenants.index(one)
    return (*tenants[:index], *tenants[index + 1 :])


def _with_share(tenant: Tenant, share_pct: float) -> Tenant:
    return Tenant(model=tenant.model, share_pct=share_pct, batch=tenant.batch)

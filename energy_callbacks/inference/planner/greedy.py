"""The published greedy algorithm (PctoDL: Master Partition, FindBestNext), written from its text.

It adds one tenant after another, always the one that gains most samples per second and percent of
share, at the highest clock at which the power stays below the cap. The clock is only reduced,
unless the memory clock is reduced too. Three defects of the published code are mended: tenants
whose gain is not positive are refused, shares that are left over are given out only if the result
is allowed, and clocks are those of the ladder, so that the power is never above the cap.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.inference.planner.additive import Array, System
from energy_callbacks.inference.planner.problem import STEP_PCT
from energy_callbacks.inference.records import Configuration, Tenant

_RATE = "minimum rate"  # rows that can only be met by later tenants


class _State(NamedTuple):
    """A partial plan: its tenants, its setting (an index), and its weighted throughput."""

    tenants: tuple[Tenant, ...]
    place: int
    value: float


class _Table(NamedTuple):
    """Columns of all settings.

    Attributes:
        systems: the limits at each setting.
        places: of each setting, the column of each tenant.
        tenants: the tenants of all settings.
        columns: of each setting, the index in ``tenants`` of each column.
    """

    systems: Sequence[System]
    places: Sequence[dict[Tenant, int]]
    tenants: Sequence[Tenant]
    columns: Sequence[NDArray[np.int_]]

    def sums(self, place: int, tenants: Sequence[Tenant]) -> tuple[Array, float] | None:
        """Return what tenants use at a setting and their value; ``None`` if one is not allowed."""
        system, columns = self.systems[place], self.places[place]
        if any(one not in columns for one in tenants):
            return None
        chosen = [columns[one] for one in tenants]
        return system.matrix[:, chosen].sum(axis=1), float(system.values[chosen].sum())


def solve(pairs: Sequence[tuple[System, System]]) -> Configuration | None:
    """Return the plan of the greedy algorithm; ``None`` if it finds no allowed plan.

    Args:
        pairs: for each setting, the systems for a single tenant and for several tenants.
    """
    ordered = sorted(pairs, key=_clock, reverse=True)
    alone, shared = (_table([pair[which] for pair in ordered]) for which in (0, 1))
    plan = _State((), 0, 0.0)
    while (added := _best_next(alone if not plan.tenants else shared, plan)) is not None:
        plan = added
    plan = _give_out_left_shares(alone, shared, plan)
    table = alone if len(plan.tenants) == 1 else shared
    used = table.sums(plan.place, plan.tenants) if plan.tenants else None
    if used is None or (used[0] > table.systems[plan.place].bounds).any():
        return None
    return table.systems[plan.place].setting.configuration(plan.tenants)


def _clock(pair: tuple[System, System]) -> tuple[float, float]:
    setting = pair[0].setting
    limit_w = setting.power_limit_w or np.inf
    return setting.mem_mhz or np.inf, min(setting.sm_mhz or np.inf, 1e6) + min(limit_w, 1e6)


def _table(systems: Sequence[System]) -> _Table:
    places = [{t: i for i, t in enumerate(one.tenants)} for one in systems]
    tenants = {tenant: None for one in systems for tenant in one.tenants}
    index = {tenant: place for place, tenant in enumerate(tenants)}
    columns = [np.array([index[t] for t in one.tenants], dtype=int) for one in systems]
    return _Table(systems, places, list(tenants), columns)


def _best_next(table: _Table, plan: _State) -> _State | None:
    """Return the plan with the tenant that gains most per share; ``None`` if none gains."""
    count = len(table.tenants)
    if not count:
        return None
    # Value and setting of the plan with each tenant. The highest clock of each memory clock counts,
    # and the best memory clock.
    values, places = np.full(count, -np.inf), np.zeros(count, dtype=int)
    known, memory_mhz = np.zeros(count, dtype=bool), None
    # From the present setting downwards; lower memory clocks come later.
    for place in range(plan.place, len(table.systems)):
        system, columns = table.systems[place], table.columns[place]
        base = table.sums(place, plan.tenants)
        if base is None:
            continue
        if system.setting.mem_mhz != memory_mhz:
            known[:], memory_mhz = False, system.setting.mem_mhz
        rows = np.array([not name.startswith(_RATE) for name in system.names])
        used = base[0][:, None] + system.matrix
        fits = (used <= system.bounds[:, None])[rows].all(axis=0)
        with_each = base[1] + system.values
        better = fits & ~known[columns] & (with_each > values[columns])
        values[columns[better]], places[columns[better]] = with_each[better], place
        known[columns[fits]] = True
    densities = (values - plan.value) / np.array([one.share_pct for one in table.tenants])
    best = int(np.argmax(densities))
    if densities[best] <= 0.0:
        return None
    return _State((*plan.tenants, table.tenants[best]), int(places[best]), float(values[best]))


def _give_out_left_shares(alone: _Table, shared: _Table, plan: _State) -> _State:
    """Enlarge tenants by 5 % in turn, as long as this is allowed and gains."""
    index, refused = 0, 0
    while plan.tenants and refused < len(plan.tenants):
        index %= len(plan.tenants)
        larger = _enlarged(alone if len(plan.tenants) == 1 else shared, plan, index)
        refused = refused + 1 if larger is None else 0
        plan = larger or plan
        index += 1
    return plan


def _enlarged(table: _Table, plan: _State, index: int) -> _State | None:
    """Return the plan with a larger share of one tenant, at the best clock; ``None`` if worse."""
    old = plan.tenants[index]
    new = Tenant(model=old.model, share_pct=old.share_pct + STEP_PCT, batch=old.batch)
    tenants = (*plan.tenants[:index], new, *plan.tenants[index + 1 :])
    best = None
    for place, system in enumerate(table.systems):
        found = table.sums(place, tenants)
        if found is None:
            continue
        rows = np.array([not name.startswith(_RATE) for name in system.names])
        is_allowed = (found[0] <= system.bounds)[rows].all()
        if is_allowed and found[1] > (best or plan).value:
            best = _State(tenants, place, found[1])
    return best

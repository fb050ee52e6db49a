"""What the published controllers have in common: their tenants, plans and ladders of clocks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from energy_callbacks.inference.control.levels import values
from energy_callbacks.inference.control.protocols import Abilities, Need, OperatingPoint, Tenants
from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.planner.problem import STEP_PCT, GpuSetting, Problem
from energy_callbacks.inference.planner.search import plan
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Tenant

# Lowest clock of the published plans, and step between the clocks of their profiles, MHz.
_FLOOR_MHZ: Final = 500.0
_STEP_MHZ: Final = 150.0
_LADDER_MHZ: Final = 15.0
_STEP_W: Final = 1.0


def clocks(abilities: Abilities) -> list[float]:
    """Return the clocks of the multiprocessors in ascending order; none if they cannot change."""
    return values(abilities, "clock", _LADDER_MHZ) if "clock" in abilities.can else []


def limit(abilities: Abilities, cap_w: float) -> float | None:
    """Return the accepted power limit closest to a cap, W; ``None`` if it cannot be changed."""
    if "limit" not in abilities.can:
        return None
    known = values(abilities, "limit", _STEP_W)
    return min(max(cap_w, known[0]), known[-1])


def nearest(items: Sequence[float], value: float) -> int:
    """Return the place of the item that is closest to a value.

    >>> nearest([210.0, 300.0, 390.0], 330.0)
    1
    """
    return min(range(len(items)), key=lambda at: math.fabs(items[at] - value))


def equal_tenants(problem: Problem, shares_pct: Sequence[float], batch: int) -> Tenants:
    """Return tenants with these shares, which have the models in turn."""
    return tuple(
        Tenant(
            model=problem.models[at % len(problem.models)],
            share_pct=STEP_PCT * (share // STEP_PCT),
            batch=batch,
        )
        for at, share in enumerate(shares_pct)
    )


def whole_gpu(problem: Problem, batch: int) -> Tenants:
    """Return one tenant for each model, with equal shares of the whole GPU."""
    count = len(problem.models)
    return equal_tenants(problem, [100.0 / count] * count, batch)


def with_batch(tenants: Tenants, batch: int) -> Tenants:
    """Return tenants with another batch."""
    return tuple(replace(one, batch=batch) for one in tenants)


def fits(problem: Problem, tenants: Tenants) -> bool:
    """Return whether the memory suffices for tenants, if it is limited."""
    used = math.fsum(map(problem.memory_of, tenants))
    return problem.memory_gib is None or used <= problem.memory_gib


def fitting(problem: Problem, tenants: Tenants, batches: Sequence[int]) -> list[int]:
    """Return the batches for which the memory suffices.

    Raises:
        ValueError: if it does not suffice for the smallest one.
    """
    found = [one for one in batches if fits(problem, with_batch(tenants, one))]
    if not found:
        raise ValueError(
            f"the memory of {problem.memory_gib} GiB does not suffice for {len(tenants)} tenants "
            f"with batch {min(batches)}; allow fewer tenants"
        )
    return found


def point(tenants: Tenants, sm_mhz: float | None = None) -> OperatingPoint:
    """Return the operating point of tenants at a clock."""
    return OperatingPoint(configuration=Configuration(tenants=tenants, sm_mhz=sm_mhz))


def planned(
    problem: Problem, model: PredictionModel, cap_w: float, ladder: Sequence[float]
) -> Configuration:
    """Return the plan of the published greedy algorithm.

    Args:
        problem: models and limits.
        model: the predictor.
        cap_w: the cap, W.
        ladder: clocks in ascending order; empty if they cannot be changed.

    Raises:
        ValueError: if it finds no plan.
    """
    settings: tuple[GpuSetting, ...] = (GpuSetting(),)
    if ladder:
        wanted = np.arange(ladder[-1], _FLOOR_MHZ, -_STEP_MHZ)
        # The highest clock is always one of them, also if it is below the floor.
        places = sorted({len(ladder) - 1, *(nearest(ladder, one) for one in wanted)}, reverse=True)
        settings = tuple(GpuSetting(sm_mhz=ladder[at]) for at in places)
    found = plan(replace(problem, cap_w=cap_w, settings=settings), model, method="greedy")
    if not isinstance(found, Plan):
        raise ValueError(
            f"PctoDL's greedy algorithm finds no plan for {cap_w:g} W: {found.message}; give the "
            "tenants, or use the controller 'model'"
        )
    return found.configuration


def degraded(abilities: Abilities, texts: Mapping[Need, str]) -> str:
    """Return the texts of what cannot be changed; empty if all of it can.

    Args:
        abilities: what can be changed.
        texts: how a controller works without each of its needs.
    """
    return "; ".join(
        f"{need.replace('_', ' ')} cannot be changed: {text}"
        for need, text in texts.items()
        if need not in abilities.can
    )

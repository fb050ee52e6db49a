"""Finds which limit makes a plan impossible, and the value that it would need to have."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.inference.planner import milp
from energy_callbacks.inference.planner.additive import AdditiveModel, Array, System, systems
from energy_callbacks.inference.planner.plan import Infeasible
from energy_callbacks.inference.planner.problem import Problem

Pairs = Sequence[tuple[System, System]]


class _Limit(NamedTuple):
    """A limit that would need another value, as words and numbers."""

    name: str
    allowed: float
    needed: float
    message: str


def refuse(
    problem: Problem, model: AdditiveModel, pairs: Pairs, *, is_proven: bool = True
) -> Infeasible:
    """Return the refusal of a problem for which no plan is allowed.

    Each limit in turn is left out; if a plan exists then, the limit is named with the value that
    it would need to have.

    Args:
        problem: the problem.
        model: the additive model.
        pairs: for each setting, the systems for a single tenant and for several tenants.
        is_proven: whether the model is the predictor itself, and not its approximation.
    """
    names = _names(problem)
    rates = [name for name in names if name.startswith("minimum rate")]
    found = [
        *_rows(problem, pairs, [name for name in names if name not in rates], is_proven=is_proven),
        *_latencies(problem, model),
        *_rows(problem, pairs, rates, is_proven=is_proven),
    ]
    if not found:
        names += [f"maximum latency of {one}" for one in problem.max_latencies_ms]
        message = f"more than one limit is too strict, of: {', '.join(names)}"
        return Infeasible(
            problem=problem,
            limit="",
            allowed=None,
            needed=None,
            message=message,
            is_proven=is_proven,
        )
    first, *others = found
    return Infeasible(
        problem=problem,
        limit=first.name,
        allowed=first.allowed,
        needed=first.needed,
        message="; or ".join([first.message, *(one.message for one in others)]),
        is_proven=is_proven,
    )


def _names(problem: Problem) -> list[str]:
    """Return the names of the rows that are limits of the problem."""
    given = {"power cap": problem.cap_w, "memory": problem.memory_gib}
    names = [name for name, value in given.items() if value is not None]
    return [*names, *(f"minimum rate of {name}" for name in problem.min_rates_per_s)]


def _rows(
    problem: Problem, pairs: Pairs, names: Sequence[str], *, is_proven: bool
) -> Iterable[_Limit]:
    """Yield the limits that are rows of the systems."""
    for name in names:
        found = _least_of(name, pairs, is_proven=is_proven)
        if found is None:
            continue
        used_least, system, counts = found
        if name == "power cap":
            yield _power_cap(problem, system, counts, used_least + system.high_static_w)
        elif name == "memory":
            allowed = problem.memory_gib or 0.0
            yield _Limit(
                name, allowed, used_least,
                f"the memory limit is {allowed:g} GiB, but at least {used_least:.4g} GiB "
                "are needed",
            )  # fmt: skip
        else:
            model = name.removeprefix("minimum rate of ")
            least, most = problem.min_rates_per_s[model], 0.0 - used_least  # not -0.0
            yield _Limit(
                name, least, most,
                f"the {name} is {least:g} samples/s, but at most {most:.5g} samples/s are possible",
            )  # fmt: skip


def _power_cap(problem: Problem, system: System, counts: Array, high_w: float) -> _Limit:
    allowed_w = problem.cap_w or 0.0
    needed_w = high_w / (1.0 - problem.sensor_error_pct / 100.0)
    power_w = system.static_w + float(system.powers_w @ counts)
    tenants = milp.configuration(system, counts).tenants
    plan = ", ".join(f"{one.model} {one.share_pct:g} % batch {one.batch}" for one in tenants)
    clock = system.setting.sm_mhz
    at = "" if clock is None else f" at {clock:g} MHz"
    return _Limit(
        "power cap", allowed_w, needed_w,
        f"the power cap is {allowed_w:g} W, but the least power possible is {needed_w:.1f} W "
        f"({power_w:.1f} W predicted, {needed_w - power_w:.1f} W margin), with {plan}{at}",
    )  # fmt: skip


def _least_of(name: str, pairs: Pairs, *, is_proven: bool) -> tuple[float, System, Array] | None:
    """Return the least use of one limit over all settings.

    An approximation is exact for single tenants, which therefore come first if it is one.
    """
    alone = [_least(single, name, 1) for single, _ in pairs]
    used = [one for one in alone if one is not None]
    if is_proven or not used or name != "power cap":
        several = [_least(shared, name, 2) for _, shared in pairs]
        used += [one for one in several if one is not None]
    is_power = name == "power cap"
    return min(used, key=lambda one: one[0] + one[1].high_static_w * is_power, default=None)


def _least(system: System, name: str, least_count: int) -> tuple[float, System, Array] | None:
    """Return the least use of one limit by a plan within the others; ``None`` if none exists."""
    row = system.names.index(name)
    others = np.arange(len(system.names)) != row
    matrix, bounds = system.matrix[others], system.bounds[others]
    if least_count > 1:
        counts, _ = milp.counts_of(system, -system.matrix[row], limits=(matrix, bounds))
    else:
        counts = _single(system, row, np.asarray((matrix <= bounds[:, None]).all(axis=0)))
    return None if counts is None else (float(system.matrix[row] @ counts), system, counts)


def _single(system: System, row: int, allowed: NDArray[np.bool_]) -> Array | None:
    if not allowed.any():
        return None
    counts = np.zeros(len(system.tenants))
    counts[np.argmin(np.where(allowed, system.matrix[row], np.inf))] = 1.0
    return counts


def _latencies(problem: Problem, model: AdditiveModel) -> Iterable[_Limit]:
    """Yield the latencies that would need to be longer."""
    for name, allowed_ms in problem.max_latencies_ms.items():
        others = {of: ms for of, ms in problem.max_latencies_ms.items() if of != name}
        free = _pairs(replace(problem, max_latencies_ms=others), model)
        longer = sorted(
            {
                float(ms)
                for pair in free
                for one in pair
                for tenant, ms in zip(one.tenants, one.latencies_ms, strict=True)
                if tenant.model == name and ms > allowed_ms
            }
        )
        needed_ms = _first(
            longer,
            lambda ms: _is_possible(
                _pairs(replace(problem, max_latencies_ms=others | {name: ms}), model)  # noqa: B023
            ),
        )
        if needed_ms is not None:
            yield _Limit(
                f"maximum latency of {name}", allowed_ms, needed_ms,
                f"the maximum latency of {name} is {allowed_ms:g} ms, but at least "
                f"{needed_ms:.4g} ms are needed",
            )  # fmt: skip


def _pairs(problem: Problem, model: AdditiveModel) -> Pairs:
    return [systems(problem, model, setting) for setting in problem.settings]


def _is_possible(pairs: Pairs) -> bool:
    return milp.solve(pairs, "throughput") is not None


def _first(values: Sequence[float], is_enough: Callable[[float], bool]) -> float | None:
    """Return the smallest value that is enough, by bisection; ``None`` if none is."""
    if not values or not is_enough(values[-1]):
        return None
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(values[middle]) else (middle + 1, high)
    return values[low]

"""Models in which tenants add up: throughput and power are sums over the tenants.

``P = static + sum h_i`` and ``T = sum t_i``, where ``h_i`` and ``t_i`` depend on the tenant, the
clocks, and whether the tenant is alone. Such a model makes planning a linear problem in integers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.inference.planner.problem import GpuSetting, Problem
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Tenant

Array = NDArray[np.float64]


class Rates(NamedTuple):
    """What each of several tenants does; all arrays have one entry per tenant.

    Attributes:
        throughputs_per_s: samples per second.
        powers_w: power above the static power, W.
        high_powers_w: the same at the upper end of the 90 % interval, W.
        latencies_ms: time of a batch, ms.
    """

    throughputs_per_s: Array
    powers_w: Array
    high_powers_w: Array
    latencies_ms: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """An additive model at one setting of the GPU.

    Attributes:
        static_w: power of the GPU when its processes wait, W.
        high_static_w: the same at the upper end of the 90 % interval, W.
        alone: rates of tenants that have the GPU for themselves.
        shared: rates of tenants beside others.
    """

    static_w: float
    high_static_w: float
    alone: Rates
    shared: Rates


class AdditiveModel(PredictionModel, Protocol):
    """A predictor that is additive."""

    def state(self, setting: GpuSetting, tenants: Sequence[Tenant]) -> State:
        """Return the model at one setting, for the given tenants."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Linear limits at a setting: counts ``n`` of tenants are allowed if ``matrix @ n <= bounds``.

    Attributes:
        setting: the setting.
        tenants: the tenants, in the order of the columns.
        names: names of the rows.
        matrix: what one tenant of each kind uses of each limit.
        bounds: the limits.
        values: weighted samples per second of each tenant.
        powers_w: power of each tenant, W.
        static_w: static power, W.
        latencies_ms: time of a batch of each tenant, ms.
        high_static_w: static power at the upper end of its interval, W.
    """

    setting: GpuSetting
    tenants: tuple[Tenant, ...]
    names: tuple[str, ...]
    matrix: Array
    bounds: Array
    values: Array
    powers_w: Array
    static_w: float
    latencies_ms: Array
    high_static_w: float

    def with_row(self, name: str, row: Array, bound: float) -> "System":
        """Return the system with one more limit."""
        return replace(
            self,
            names=(*self.names, name),
            matrix=np.vstack([self.matrix, row]),
            bounds=np.append(self.bounds, bound),
        )

    def columns(self, kept: NDArray[np.bool_]) -> "System":
        """Return the system of some of its tenants."""
        return replace(
            self,
            tenants=tuple(one for one, keep in zip(self.tenants, kept, strict=True) if keep),
            matrix=self.matrix[:, kept],
            values=self.values[kept],
            powers_w=self.powers_w[kept],
            latencies_ms=self.latencies_ms[kept],
        )

    def without_dominated(self) -> "System":
        """Leave out tenants that another one can replace in every plan without a loss."""
        # One row per quantity of which less is better.
        costs = np.vstack([self.matrix, -self.values, self.powers_w])
        # Of two columns, the one that replaces the other comes first; of equal ones, the first.
        order = np.lexsort(costs[::-1])
        replaces = np.ones((len(order), len(order)), dtype=bool)
        for row in costs[:, order]:
            replaces &= row[:, None] <= row
        kept = np.empty(len(order), dtype=bool)
        kept[order] = ~np.triu(replaces, 1).any(axis=0)
        return self.columns(kept)


def systems(problem: Problem, model: AdditiveModel, setting: GpuSetting) -> tuple[System, System]:
    """Return the limits for a single tenant and for several tenants.

    Tenants whose latency is too long are left out.
    """
    return systems_of(problem, setting, model.state(setting, problem.tenants()))


def systems_of(problem: Problem, setting: GpuSetting, state: State) -> tuple[System, System]:
    """Return the limits as ``systems`` does, for a model at one setting."""
    tenants = problem.tenants()
    return (
        _system(problem, setting, tenants, state, state.alone),
        _system(problem, setting, tenants, state, state.shared),
    )


def _system(
    problem: Problem, setting: GpuSetting, tenants: Sequence[Tenant], state: State, rates: Rates
) -> System:
    rows = [("share", np.array([one.share_pct for one in tenants], dtype=float), 100.0)]
    if problem.cap_w is not None:
        room_w = problem.cap_w - problem.sensor_error_w - state.high_static_w
        rows.append(("power cap", rates.high_powers_w, room_w))
    if problem.memory_gib is not None:
        used = np.array([problem.memory_of(one) for one in tenants])
        rows.append(("memory", used, problem.memory_gib))
    for name, least in problem.min_rates_per_s.items():
        is_of = np.array([one.model == name for one in tenants])
        rows.append((f"minimum rate of {name}", -rates.throughputs_per_s * is_of, -least))
    limits = [problem.max_latencies_ms.get(one.model, np.inf) for one in tenants]
    weights = np.array([problem.weight(one.model) for one in tenants])
    whole = System(
        setting=setting,
        tenants=tuple(tenants),
        names=tuple(name for name, _, _ in rows),
        matrix=np.vstack([row for _, row, _ in rows]),
        bounds=np.array([bound for _, _, bound in rows]),
        values=rates.throughputs_per_s * weights,
        powers_w=rates.powers_w,
        static_w=state.static_w,
        latencies_ms=rates.latencies_ms,
        high_static_w=state.high_static_w,
    )
    # A tenant that does nothing or is unknown is no choice.
    works = np.isfinite(whole.matrix).all(axis=0) & (rates.throughputs_per_s > 0.0)
    return whole.columns(works & (rates.latencies_ms <= np.array(limits)))

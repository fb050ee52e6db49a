"""An additive model that approximates any predictor, and a check of how well it does."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

import numpy as np

from energy_callbacks.inference.planner.additive import (
    AdditiveModel,
    Array,
    Rates,
    State,
    System,
    systems_of,
)
from energy_callbacks.inference.planner.problem import GpuSetting, Problem
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Prediction, Tenant, most_tenants

# Number of plans with random tenants in which the approximation is compared.
_CHECKS: Final = 12


class Approximation:
    """An additive model of a predictor.

    What a tenant does alone is predicted directly. What it does beside others is a part of the
    prediction for as many equal tenants as fit. The static power is where the power of one and of
    many tenants, as a line over the throughput, reaches throughput zero.

    Args:
        model: the predictor.
    """

    def __init__(self, model: PredictionModel) -> None:
        self._model = model
        self._states: dict[tuple[GpuSetting, tuple[Tenant, ...]], State] = {}

    def predict(self, configuration: Configuration) -> Prediction:
        """Return the predictor's own prediction."""
        return self._model.predict(configuration)

    def predict_many(self, configurations: Sequence[Configuration]) -> Sequence[Prediction]:
        """Return the predictor's own predictions."""
        return self._model.predict_many(configurations)

    def state(self, setting: GpuSetting, tenants: Sequence[Tenant]) -> State:
        """Return the model at one setting, for the given tenants."""
        key = setting, tuple(tenants)
        if key not in self._states:
            self._states[key] = self._state(setting, tenants)
        return self._states[key]

    def deviation(self, problem: Problem) -> float:
        """Return the largest relative error of throughput and power in plans of random tenants."""
        chance = random.Random(0)  # noqa: S311 - no secret
        tenants = problem.tenants()
        errors = [0.0]
        for setting in {problem.settings[0], problem.settings[-1]}:
            state = self.state(setting, tenants)
            plans = [_mixed(chance, tenants) for _ in range(_CHECKS)]
            plans = [plan for plan in plans if len(plan) > 1]
            found = self.predict_many(
                [setting.configuration([tenants[one] for one in plan]) for plan in plans]
            )
            for plan, prediction in zip(plans, found, strict=True):
                throughput = state.shared.throughputs_per_s[plan].sum()
                power_w = state.static_w + state.shared.powers_w[plan].sum()
                errors.append(abs(float(throughput) / prediction.throughput_per_s.value - 1.0))
                errors.append(abs(float(power_w) / prediction.power_w.value - 1.0))
        return max(errors)

    def _state(self, setting: GpuSetting, tenants: Sequence[Tenant]) -> State:
        counts = np.array([max(1, most_tenants(one.share_pct)) for one in tenants])
        alone = self._totals(setting, tenants, np.ones_like(counts))
        full = self._totals(setting, tenants, counts)
        static_w = _static_w(alone, full)
        single, packed = (
            Rates(
                throughputs_per_s=rates.throughputs_per_s / numbers,
                powers_w=(rates.powers_w - static_w) / numbers,
                high_powers_w=(rates.high_powers_w - static_w) / numbers,
                latencies_ms=rates.latencies_ms,
            )
            for rates, numbers in ((alone, np.ones_like(counts)), (full, counts))
        )
        shared = _with_estimates(tenants, counts, single, packed)
        return State(static_w=static_w, high_static_w=static_w, alone=single, shared=shared)

    def _totals(self, setting: GpuSetting, tenants: Sequence[Tenant], counts: Array) -> Rates:
        """Return what numbers of equal tenants do together; the latency is that of one."""
        found = self.predict_many(
            [
                setting.configuration([one] * int(count))
                for one, count in zip(tenants, counts, strict=True)
            ]
        )
        return Rates(
            throughputs_per_s=np.array([one.throughput_per_s.value for one in found]),
            powers_w=np.array([one.power_w.value for one in found]),
            high_powers_w=np.array([one.power_w.high for one in found]),
            latencies_ms=np.array(
                [max([each.value for each in one.tenant_latencies_ms] or [0.0]) for one in found]
            ),
        )


def _static_w(alone: Rates, full: Rates) -> float:
    """Return where the lines of power over throughput reach throughput zero, in W."""
    grows = full.throughputs_per_s > 1.05 * alone.throughputs_per_s
    least_w = float(min(alone.powers_w.min(), full.powers_w.min()))
    if not grows.any():
        return 0.0
    slopes = (full.powers_w - alone.powers_w)[grows] / (
        full.throughputs_per_s - alone.throughputs_per_s
    )[grows]
    starts = alone.powers_w[grows] - slopes * alone.throughputs_per_s[grows]
    return float(np.clip(np.median(starts), 0.0, least_w))


def _with_estimates(tenants: Sequence[Tenant], counts: Array, alone: Rates, packed: Rates) -> Rates:
    """Replace the rates of tenants that do not fit twice: by their model's median change."""
    fields = [values.copy() for values in packed]
    for model in {one.model for one in tenants}:
        is_of = np.array([one.model == model for one in tenants])
        twice, once = is_of & (counts > 1), is_of & (counts == 1)
        for values, before in zip(fields, alone, strict=True):
            is_known = twice & (before > 0.0)
            if is_known.any():
                values[once] *= median((values[is_known] / before[is_known]).tolist())
    return Rates(*fields)


def _mixed(chance: random.Random, tenants: Sequence[Tenant]) -> list[int]:
    """Return the places of a random number of random tenants whose shares fit together."""
    chosen: list[int] = []
    free = 100.0
    for place in chance.choices(range(len(tenants)), k=40):
        if tenants[place].share_pct <= free:
            chosen.append(place)
            free -= tenants[place].share_pct
    return chosen[: chance.randint(2, max(2, len(chosen)))]


@dataclass(frozen=True, slots=True)
class Slowed:
    """An additive model whose tenants are slower beside others by a factor for each model.

    Args:
        model: the additive model, whose rates of tenants alone are used.
        factors: throughput beside others, relative to that alone, by name of the model.
    """

    model: AdditiveModel
    factors: Mapping[str, float]

    def predict(self, configuration: Configuration) -> Prediction:
        """Return the model's own prediction."""
        return self.model.predict(configuration)

    def predict_many(self, configurations: Sequence[Configuration]) -> Sequence[Prediction]:
        """Return the model's own predictions."""
        return self.model.predict_many(configurations)

    def state(self, setting: GpuSetting, tenants: Sequence[Tenant]) -> State:
        """Return the model with the rates of tenants beside others."""
        found = self.model.state(setting, tenants)
        factors = np.array([self.factors.get(one.model, 1.0) for one in tenants])
        rates = found.alone
        slow = Rates(
            throughputs_per_s=rates.throughputs_per_s * factors,
            powers_w=rates.powers_w * factors,
            high_powers_w=rates.high_powers_w * factors,
            latencies_ms=rates.latencies_ms / factors,
        )
        return replace(found, shared=slow)


def optimistic(
    problem: Problem, model: AdditiveModel, pairs: Sequence[tuple[System, System]]
) -> list[tuple[System, System]]:
    """Return systems for a bound: tenants do their best, up to the highest throughput.

    For each setting, the parts of the highest throughput of each model, among all numbers of equal
    tenants, add up to at most 1.
    """
    found = []
    for alone, _ in pairs:
        setting, tenants = alone.setting, problem.tenants()
        state = model.state(setting, tenants)
        shared = systems_of(problem, setting, replace(state, shared=_best(state)))[1]
        counts = np.array([max(1, most_tenants(one.share_pct)) for one in tenants])
        totals = np.maximum(state.alone[0], state.shared[0] * counts)
        most: dict[str, float] = {}
        for tenant, total in zip(tenants, totals, strict=True):
            most[tenant.model] = max(most.get(tenant.model, 0.0), float(total))
        per_sample = [1.0 / problem.weight(t.model) / most[t.model] for t in shared.tenants]
        found.append((alone, shared.with_row("capacity", shared.values * per_sample, 1.0)))
    return found


def _best(state: State) -> Rates:
    """Return the highest throughput of each tenant, with its least energy per sample."""
    both = state.alone, state.shared
    most = np.maximum(*(one.throughputs_per_s for one in both))
    sample_j = np.minimum(*(one.powers_w / one.throughputs_per_s for one in both))
    high_j = np.minimum(*(one.high_powers_w / one.throughputs_per_s for one in both))
    latencies_ms = np.minimum(*(one.latencies_ms for one in both))
    return Rates(most, most * sample_j, most * high_j, latencies_ms)

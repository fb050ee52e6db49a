"""An additive model that approximates any predictor, and a check of how well it does."""

import random
from collections.abc import Sequence
from statistics import median
from typing import Final

import numpy as np

from energy_callbacks.inference.planner.additive import Array, Rates, State
from energy_callbacks.inference.planner.problem import GpuSetting, Problem
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Prediction, Tenant

# Number of plans with different tenants in which the approximation is compared.
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

    def state(self, setting: GpuSetting, tenants: Sequence[Tenant]) -> State:
        """Return the model at one setting, for the given tenants."""
        key = setting, tuple(tenants)
        if key not in self._states:
            self._states[key] = self._state(setting, tenants)
        return self._states[key]

    def deviation(self, problem: Problem) -> float:
        """Return the largest relative error of throughput and power in plans of mixed tenants."""
        chance = random.Random(0)  # noqa: S311 - no secret
        tenants = problem.tenants()
        errors = [0.0]
        for setting in {problem.settings[0], problem.settings[-1]}:
            state = self.state(setting, tenants)
            for _ in range(_CHECKS):
                chosen = _mixed(chance, tenants)
                if len(chosen) > 1:
                    errors += self._errors(setting, state, tenants, chosen)
        return max(errors)

    def _errors(
        self, setting: GpuSetting, state: State, tenants: list[Tenant], chosen: list[int]
    ) -> list[float]:
        found = self.predict(setting.configuration([tenants[one] for one in chosen]))
        throughput = state.shared.throughputs_per_s[chosen].sum()
        power_w = state.static_w + state.shared.powers_w[chosen].sum()
        return [
            abs(float(throughput) / found.throughput_per_s.value - 1.0),
            abs(float(power_w) / found.power_w.value - 1.0),
        ]

    def _state(self, setting: GpuSetting, tenants: Sequence[Tenant]) -> State:
        counts = np.array([max(1, int(100.0 / one.share_pct + 1e-9)) for one in tenants])
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
        found = [
            self.predict(setting.configuration([one] * int(count)))
            for one, count in zip(tenants, counts, strict=True)
        ]
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
    """Return the places of random tenants whose shares fit together."""
    chosen: list[int] = []
    free = 100.0
    for place in chance.sample(range(len(tenants)), min(40, len(tenants))):
        if tenants[place].share_pct <= free:
            chosen.append(place)
            free -= tenants[place].share_pct
    return chosen

"""Computes the best operating point of a simulated GPU under a cap, from its exact physics.

Every configuration is evaluated at all clocks of the card, without noise and at the steady
temperature. Candidates are all configurations of equal tenants, and what a local search reaches
from the best of them and from random ones. Such an optimum is not known for a real GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np

from energy_callbacks.inference.planner import enumeration, local_search
from energy_callbacks.inference.planner.judge import judge
from energy_callbacks.inference.planner.problem import Footprint, Problem
from energy_callbacks.inference.records import Configuration, Interval, Mode, Prediction, Tenant
from energy_callbacks.inference.simulated import presets
from energy_callbacks.inference.simulated.physics import (
    Array,
    Card,
    Workload,
    memory_gib,
    running,
)

# Local searches begin with this many configurations of equal tenants, and with random ones.
_STARTS, _RANDOM_STARTS = 3, 2
_BATCH: Final = 256  # any batch: memory is linear in it
# Temperature, in degrees Celsius, at which the static power of a card is stated (physics.py).
_REFERENCE_C: Final = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The best operating point that is known for a simulated GPU under a cap.

    Attributes:
        configuration: tenants and clocks.
        throughput_per_s: its samples per second.
        power_w: its mean power, W.
    """

    configuration: Configuration
    throughput_per_s: float
    power_w: float


@cache
def optimum(gpu: str, model: str, mode: Mode, cap_w: float) -> Optimum | None:
    """Return the best known operating point of a simulated GPU; ``None`` if all exceed the cap.

    Args:
        gpu: name of a preset, such as ``sim:v100``.
        model: name of the model that all tenants run.
        mode: inference or training.
        cap_w: largest mean power, W.

    Raises:
        ValueError: if the GPU does not have the model.
    """
    card, workloads = _preset(gpu, model)
    problem = replace(task_problem(gpu, model, mode), cap_w=cap_w, sensor_error_pct=0.0)
    exact = ExactModel(card, workloads, mode, cap_w)
    every = enumeration.homogeneous(problem, problem.settings)
    equal = sorted(judge(problem, exact, every), key=lambda one: one.rank, reverse=True)
    others = judge(problem, exact, local_search.random_packings(problem, _RANDOM_STARTS))
    starts = (*equal[:_STARTS], *others)
    found = (local_search.improve(problem, exact, one) for one in starts)
    best = max(found, key=lambda one: one.rank)
    if best.excess > 0.0:
        return None
    return Optimum(
        configuration=exact.at_best_clock(best.configuration),
        throughput_per_s=best.prediction.throughput_per_s.value,
        power_w=best.prediction.power_w.value,
    )


def task_problem(gpu: str, model: str, mode: Mode) -> Problem:
    """Return what can be chosen for a model on a simulated GPU, without a cap.

    Args:
        gpu: name of a preset, such as ``sim:v100``.
        model: name of the model.
        mode: inference or training.

    Raises:
        ValueError: if the GPU does not have the model.
    """
    card, workloads = _preset(gpu, model)
    one = workloads[model]
    fixed_gib, largest_gib = (
        memory_gib(Tenant(model=model, share_pct=100, batch=batch), one, mode)
        for batch in (0, _BATCH)
    )
    per_sample_gib = (largest_gib - fixed_gib) / _BATCH
    return Problem(
        models=(model,),
        memory_gib=card.memory_gib,
        footprints={model: Footprint(fixed_gib, per_sample_gib)},
    )


def _preset(gpu: str, model: str) -> tuple[Card, Mapping[str, Workload]]:
    key = gpu.removeprefix(presets.PREFIX)
    workloads = presets.workloads(key)
    if model not in workloads:
        raise ValueError(f"{gpu} has no model {model!r}; it has {', '.join(sorted(workloads))}")
    return presets.card(key), workloads


class ExactModel:
    """Predicts configurations of a simulated GPU at the best clocks under a cap, without error.

    Clocks of a configuration that are ``None`` are chosen: those with the highest throughput whose
    power is at most the cap, or those with the least power if there are none.

    Args:
        card: the GPU.
        workloads: its models.
        mode: inference or training.
        cap_w: largest mean power, W.
    """

    def __init__(
        self, card: Card, workloads: Mapping[str, Workload], mode: Mode, cap_w: float
    ) -> None:
        self._card, self._workloads, self._cap_w = card, workloads, cap_w
        self._mode: Mode = mode
        self._best = cache(self._search)

    def predict(self, configuration: Configuration) -> Prediction:
        """See ``PredictionModel``."""
        rates, power_w, _, _ = self._best(configuration)
        return Prediction(
            throughput_per_s=_exactly(sum(rates)),
            power_w=_exactly(power_w),
            tenant_throughputs_per_s=tuple(map(_exactly, rates)),
            source="simulated",
        )

    def predict_many(self, configurations: Sequence[Configuration]) -> list[Prediction]:
        """See ``PredictionModel``."""
        return [self.predict(one) for one in configurations]

    def at_best_clock(self, configuration: Configuration) -> Configuration:
        """Return the configuration with the clocks that were chosen for it."""
        _, _, sm_mhz, mem_mhz = self._best(configuration)
        return replace(configuration, sm_mhz=sm_mhz, mem_mhz=mem_mhz)

    def _search(
        self, configuration: Configuration
    ) -> tuple[tuple[float, ...], float, float, float]:
        """Return rates, power and both clocks of the best operating point."""
        found = []
        memory_mhz = configuration.mem_mhz
        for mem_mhz in self._card.memory_clocks_mhz if memory_mhz is None else (memory_mhz,):
            rates, powers_w = self._at_all_clocks(configuration.tenants, mem_mhz)
            at = self._chosen(configuration.sm_mhz, rates.sum(axis=0), powers_w)
            power_w = float(powers_w[at])
            is_above = power_w > self._cap_w
            rank = (is_above, power_w if is_above else -float(rates[:, at].sum()))
            clocks = float(self._card.ladder_mhz[at]), mem_mhz
            found.append((rank, (tuple(rates[:, at].tolist()), power_w, *clocks)))
        return min(found, key=lambda pair: pair[0])[1]

    def _chosen(self, sm_mhz: float | None, rates: Array, powers_w: Array) -> int:
        if sm_mhz is not None:
            return int(np.abs(self._card.ladder_mhz - sm_mhz).argmin())
        allowed = powers_w <= self._cap_w
        if not allowed.any():
            return int(powers_w.argmin())
        return int(np.where(allowed, rates, -np.inf).argmax())

    def _at_all_clocks(self, tenants: Sequence[Tenant], memory_mhz: float) -> tuple[Array, Array]:
        """Return samples per second of each tenant, and the mean power, at each clock."""
        pairs = [(one, self._workloads[one.model]) for one in tenants]
        now = running(self._card, pairs, mode=self._mode, memory_mhz=memory_mhz)
        dynamic_w = now.dynamic_w * (1.0 - now.pause)
        return now.rates_per_s * (1.0 - now.pause), self._steady_w(now.static_w, dynamic_w)

    def _steady_w(self, static_w: Array, dynamic_w: Array) -> Array:
        """Return the power at the temperature that it causes.

        ``P = static (1 + leakage (T - 50)) + dynamic`` and ``T = ambient + resistance P``, solved
        for ``P``. Clocks at which the GPU becomes too hot are not available; their power is
        infinite.
        """
        card = self._card
        cold = static_w * (1.0 + card.leakage_per_k * (card.ambient_c - _REFERENCE_C)) + dynamic_w
        power_w = cold / (1.0 - static_w * card.leakage_per_k * card.kelvin_per_w)
        is_hot = card.ambient_c + card.kelvin_per_w * power_w > card.throttle_c
        return np.where(is_hot, np.inf, power_w)


def _exactly(value: float) -> Interval:
    return Interval(value, value, value)

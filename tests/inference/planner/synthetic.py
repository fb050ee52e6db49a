"""Additive models of GPUs for tests: their plans can be checked by trying all of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from random import Random

import numpy as np

from energy_callbacks.inference.planner.additive import Rates, State
from energy_callbacks.inference.planner.problem import Footprint, GpuSetting, Problem
from energy_callbacks.inference.records import Configuration, Interval, Prediction, Tenant


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Parameters of a model: iGniter's law of latency, and the energy of a sample.

    Attributes:
        fixed_ms: time of a batch that depends on nothing.
        per_sample: time per sample and share, ms.
        offset: share that is added to the tenant's share.
        sample_j: energy of a sample at the highest clock.
        waste_w: power of a process besides that of its samples, W.
    """

    fixed_ms: float
    per_sample: float
    offset: float
    sample_j: float
    waste_w: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SyntheticGpu:
    """An additive GPU: each tenant's samples and watts, less by a factor beside others.

    Attributes:
        workloads: the models.
        static_w: static power by SM clock; the key ``None`` is the clock as it is.
        highest_mhz: highest SM clock.
        contention: factor on the throughput of tenants beside others.
        sigma_share: standard deviation of a predicted power, relative to the dynamic power.
        bend: how much the throughput falls with the number of tenants; 0 is additive.
        source: source of the predictions.
    """

    workloads: dict[str, Workload]
    static_w: dict[float | None, float]
    highest_mhz: float = 1410.0
    contention: float = 0.9
    sigma_share: float = 0.0
    bend: float = 0.0
    source: str = "simulated"
    asked: list[Configuration] = field(default_factory=list)

    def one(self, tenant: Tenant, sm_mhz: float | None, factor: float) -> tuple[float, ...]:
        """Return throughput, power and latency of a tenant."""
        load = self.workloads[tenant.model]
        x = 1.0 if sm_mhz is None else sm_mhz / self.highest_mhz
        share_ms = load.per_sample * tenant.batch / (tenant.share_pct + load.offset)
        latency_ms = (load.fixed_ms + share_ms / math.sqrt(x)) / factor
        throughput = 1e3 * tenant.batch / latency_ms
        power_w = (throughput * load.sample_j + load.waste_w) * x
        return throughput, power_w, latency_ms

    def full_throughput(self, model: str) -> float:
        """Return the samples per second of one tenant with the whole GPU, at batch 32."""
        return self.one(Tenant(model=model, share_pct=100, batch=32), self.highest_mhz, 1.0)[0]

    def state(self, setting: GpuSetting, tenants: Sequence[Tenant]) -> State:
        def rates(factor: float) -> Rates:
            found = [self.one(tenant, setting.sm_mhz, factor) for tenant in tenants]
            throughput, power_w, latency_ms = (np.array(one) for one in zip(*found, strict=True))
            high_w = power_w * (1.0 + 1.645 * self.sigma_share)
            return Rates(throughput, power_w, high_w, latency_ms)

        static_w = self.static_w[setting.sm_mhz]
        return State(
            static_w=static_w,
            high_static_w=static_w,
            alone=rates(1.0),
            shared=rates(self.contention),
        )

    def predict(self, configuration: Configuration) -> Prediction:
        self.asked.append(configuration)
        count = len(configuration.tenants)
        factor = 1.0 if count == 1 else self.contention / (1.0 + self.bend * (count - 2))
        found = [self.one(one, configuration.sm_mhz, factor) for one in configuration.tenants]
        dynamic_w = sum(one[1] for one in found)
        power_w = self.static_w[configuration.sm_mhz] + dynamic_w
        spread_w = 1.645 * self.sigma_share * dynamic_w
        total = sum(one[0] for one in found)
        return Prediction(
            throughput_per_s=Interval(total, 0.95 * total, 1.05 * total),
            power_w=Interval(power_w, power_w - spread_w, power_w + spread_w),
            tenant_throughputs_per_s=tuple(Interval(one[0], one[0], one[0]) for one in found),
            tenant_latencies_ms=tuple(Interval(one[2], one[2], one[2]) for one in found),
            source=self.source,  # type: ignore[arg-type]
        )

    def predict_many(self, configurations: Sequence[Configuration]) -> list[Prediction]:
        return [self.predict(one) for one in configurations]


def random_gpu(
    chance: Random, models: int, clocks: Sequence[float], **options: float
) -> SyntheticGpu:
    """Return a GPU with random models, named ``a``, ``b``, and so on."""
    workloads = {
        chr(ord("a") + index): Workload(
            fixed_ms=chance.uniform(0.5, 6.0),
            per_sample=math.exp(chance.uniform(math.log(2.0), math.log(40.0))),
            offset=chance.uniform(0.0, 10.0),
            sample_j=math.exp(chance.uniform(math.log(0.005), math.log(0.08))),
            waste_w=chance.uniform(0.0, 4.0),
        )
        for index in range(models)
    }
    static_w: dict[float | None, float] = {
        clock: chance.uniform(25.0, 35.0) + 25.0 * (clock / max(clocks)) ** 3 for clock in clocks
    }
    return SyntheticGpu(
        workloads=workloads,
        static_w=static_w,
        highest_mhz=max(clocks),
        contention=chance.uniform(0.8, 1.0),
        sigma_share=chance.uniform(0.0, 0.03),
        **options,
    )


def small_problem(chance: Random, gpu: SyntheticGpu) -> Problem:
    """Return a random problem that is small enough to try every plan."""
    shares = tuple(sorted(chance.sample((20, 25, 30, 35, 40, 50, 60, 75, 100), 3)))
    models = tuple(gpu.workloads)
    some = [one for one in models if chance.random() < 0.4]
    return Problem(
        models=models,
        cap_w=chance.uniform(40.0, 250.0),
        settings=tuple(GpuSetting(sm_mhz=clock) for clock in gpu.static_w),
        shares_pct=shares,
        batches=tuple(sorted(chance.sample((1, 4, 16, 32, 64), 2))),
        objective=chance.choice(("throughput", "energy")),
        weights={one: chance.uniform(0.5, 2.0) for one in models if chance.random() < 0.5},
        min_rates_per_s={one: chance.uniform(10.0, 600.0) for one in some},
        max_latencies_ms={
            one: chance.uniform(2.0, 60.0) for one in models if not chance.randrange(3)
        },
        memory_gib=chance.choice((None, 8.0)),
        footprints={one: Footprint(chance.uniform(0.5, 3.0), 0.02) for one in models},
    )


def every_plan(problem: Problem) -> Iterator[Configuration]:
    """Yield every configuration of a problem whose shares fit."""
    tenants = problem.tenants()
    for count in range(1, 100 // min(problem.shares_pct) + 1):
        for chosen in combinations_with_replacement(tenants, count):
            if sum(one.share_pct for one in chosen) <= 100.0:
                for setting in problem.settings:
                    yield setting.configuration(chosen)


def best_by_trying(problem: Problem, gpu: SyntheticGpu) -> float | None:
    """Return the best objective of all plans; ``None`` if none is allowed.

    Limits and objective are computed here and not by the planner.
    """
    found: list[float] = []
    for configuration in every_plan(problem):
        value = _value(problem, gpu, configuration)
        if value is not None:
            found.append(value)
    pick = max if problem.objective == "throughput" else min
    return pick(found, default=None)


def _value(problem: Problem, gpu: SyntheticGpu, configuration: Configuration) -> float | None:
    """Return the objective of a plan; ``None`` if a limit is exceeded."""
    tenants = configuration.tenants
    prediction = gpu.predict(configuration)
    assert problem.cap_w is not None
    if prediction.power_w.high + problem.cap_w * problem.sensor_error_pct / 100 > problem.cap_w:
        return None
    rates: dict[str, float] = dict.fromkeys(problem.models, 0.0)
    memory_gib = 0.0
    for tenant, rate, latency in zip(
        tenants,
        prediction.tenant_throughputs_per_s,
        prediction.tenant_latencies_ms,
        strict=True,
    ):
        if latency.value > problem.max_latencies_ms.get(tenant.model, math.inf):
            return None
        rates[tenant.model] += rate.value
        fixed_gib, per_sample_gib = problem.footprints[tenant.model]
        memory_gib += fixed_gib + per_sample_gib * tenant.batch
    if problem.memory_gib is not None and memory_gib > problem.memory_gib:
        return None
    if any(rates[model] < least for model, least in problem.min_rates_per_s.items()):
        return None
    weighted = sum(problem.weights.get(model, 1.0) * rate for model, rate in rates.items())
    return weighted if problem.objective == "throughput" else prediction.power_w.value / weighted

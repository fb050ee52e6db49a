"""Compares the prediction of a configuration with the limits and the objective of a problem."""

from collections.abc import Sequence
from dataclasses import dataclass

from energy_callbacks.inference.planner.plan import Margin, Z
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Interval, Prediction

# Differences this small, relative to a limit, are rounding errors.
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A configuration with its prediction.

    Attributes:
        configuration: the configuration.
        prediction: its prediction.
        margin: distance that it must keep from the power cap.
        value: the objective.
        score: the objective, larger is better.
        excess: sum of how far limits are exceeded, relative to each limit; 0 if it is allowed.
        excess_w: power above the cap less the margin, W; negative below it.
    """

    configuration: Configuration
    prediction: Prediction
    margin: Margin
    value: float
    score: float
    excess: float
    excess_w: float

    @property
    def rank(self) -> tuple[float, float]:
        """Allowed configurations come first, then the better score; larger is better."""
        return -self.excess, self.score


def judge(
    problem: Problem, model: PredictionModel, configurations: Sequence[Configuration]
) -> list[Judged]:
    """Predict configurations and compare them with the limits.

    Raises:
        ValueError: if the model cannot predict one of them.
    """
    found = model.predict_many(configurations) if configurations else []
    return [_judged(problem, *pair) for pair in zip(configurations, found, strict=True)]


def _judged(problem: Problem, configuration: Configuration, found: Prediction) -> Judged:
    margin = Margin(
        sigma_w=(found.power_w.high - found.power_w.value) / Z,
        sensor_error_w=problem.sensor_error_w,
    )
    rates = _rates(configuration, found)
    weighted = sum(
        problem.weight(tenant.model) * float(rate.value)
        for tenant, rate in zip(configuration.tenants, rates, strict=True)
    )
    energy_j = float(found.power_w.value) / weighted if weighted > 0.0 else float("inf")
    is_throughput = problem.objective == "throughput"
    excess_w = found.power_w.value + margin.total_w - (problem.cap_w or float("inf"))
    return Judged(
        configuration=configuration,
        prediction=found,
        margin=margin,
        value=weighted if is_throughput else energy_j,
        score=weighted if is_throughput else -energy_j,
        excess=sum(
            max(0.0, used / allowed - 1.0 - TOLERANCE)
            for used, allowed in _used(problem, configuration, found, margin, rates)
        ),
        excess_w=excess_w,
    )


def _rates(configuration: Configuration, found: Prediction) -> tuple[Interval, ...]:
    """Return the samples per second of each tenant; equal ones share the total."""
    tenants = configuration.tenants
    if found.tenant_throughputs_per_s:
        return found.tenant_throughputs_per_s
    if len(set(tenants)) > 1:
        raise ValueError("the predictor does not predict the throughput of each tenant")
    return (Interval(*(one / len(tenants) for one in found.throughput_per_s)),) * len(tenants)


def _used(
    problem: Problem,
    configuration: Configuration,
    found: Prediction,
    margin: Margin,
    rates: tuple[Interval, ...],
) -> list[tuple[float, float]]:
    """Return for each limit what a configuration uses, and what is allowed."""
    tenants = configuration.tenants
    limits = [(sum(one.share_pct for one in tenants), 100.0)]
    if problem.cap_w is not None:
        limits.append((found.power_w.value + margin.total_w, problem.cap_w))
    if problem.memory_gib is not None:
        limits.append((sum(map(problem.memory_of, tenants)), problem.memory_gib))
    for model, least in problem.min_rates_per_s.items():
        rate = sum(one.value for of, one in zip(tenants, rates, strict=True) if of.model == model)
        limits.append((least, max(rate, 1e-9 * least)) if least > 0.0 else (0.0, 1.0))
    if problem.max_latencies_ms:
        if len(found.tenant_latencies_ms) != len(tenants):
            raise ValueError("the predictor does not predict latencies; plan without a limit")
        limits += [
            (latency.value, problem.max_latencies_ms[tenant.model])
            for tenant, latency in zip(tenants, found.tenant_latencies_ms, strict=True)
            if tenant.model in problem.max_latencies_ms
        ]
    return limits

"""The simulated GPUs on which the published tasks are planned: their physics, without noise."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.inference.planner.problem import GpuSetting, Problem
from energy_callbacks.inference.records import Configuration, Interval, Prediction, Tenant
from energy_callbacks.inference.simulated import presets
from energy_callbacks.inference.simulated.physics import Running, running

# Relative half width of an interval: about that of a predictor fitted to 12 points.
_HALF = 0.03
# Steps between clocks, MHz, and lowest clock, as in the published profiles and plans.
_STEP_MHZ, _FLOOR_MHZ = 150.0, 500.0
_BATCHES = (4, 8, 16, 32, 64, 96, 128, 192, 256)


class PhysicsModel:
    """Predicts with the physics of a simulated GPU; it is not additive, for tenants share memory.

    Args:
        key: name of the preset without ``sim:``.
    """

    def __init__(self, key: str) -> None:
        self.card = presets.card(key)
        self._workloads = presets.workloads(key)
        self._running = cache(self._run)
        self._place = cache(self._place_of)

    def _run(self, tenants: tuple[Tenant, ...]) -> Running:
        return running(self.card, [(one, self._workloads[one.model]) for one in tenants])

    def _place_of(self, sm_mhz: float | None) -> int:
        clocks = self.card.ladder_mhz
        return int(np.abs(clocks - (sm_mhz or clocks[-1])).argmin())

    def predict(self, configuration: Configuration) -> Prediction:
        found = self._running(configuration.tenants)
        at = self._place(configuration.sm_mhz)
        rates = found.rates_per_s[:, at].tolist()
        return Prediction(
            throughput_per_s=_interval(sum(rates)),
            power_w=_interval(float(found.static_w[at] + found.dynamic_w[at])),
            tenant_throughputs_per_s=tuple(map(_interval, rates)),
            tenant_latencies_ms=tuple(
                _interval(1e3 * tenant.batch / rate)
                for tenant, rate in zip(configuration.tenants, rates, strict=True)
            ),
            source="simulated",
        )

    def predict_many(self, configurations: Sequence[Configuration]) -> list[Prediction]:
        return [self.predict(one) for one in configurations]


def _interval(value: float) -> Interval:
    return Interval(value, value * (1.0 - _HALF), value * (1.0 + _HALF))


def problem(task: Task, model: PhysicsModel) -> Problem:
    """Return the problem of a task with a fixed cap."""
    clocks = model.card.ladder_mhz
    steps = np.arange(clocks[-1], _FLOOR_MHZ, -_STEP_MHZ)
    return Problem(
        models=(task.model,),
        cap_w=task.cap_w,
        settings=tuple(GpuSetting(sm_mhz=float(clock)) for clock in steps),
        batches=_BATCHES,
    )

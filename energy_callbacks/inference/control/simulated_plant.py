"""A simulated GPU as a plant: time is virtual, and processes need time to start."""

import math
from collections import Counter
from typing import Final, Literal

from energy_callbacks.inference.control.protocols import Abilities, Need, OperatingPoint, Window
from energy_callbacks.inference.records import Configuration, Tenant, needed
from energy_callbacks.inference.simulated.gpu import Passed, SimulatedGpu
from energy_callbacks.powercap.settings import GPU_KNOBS, Knob, KnobRange, Setting

ALL: Final[frozenset[Need]] = frozenset(
    {"partition", "batch", "clock", "memory_clock", "limit", "duty"}
)
# Tenants work and pause once in this time, which is shorter than a window and longer than a batch.
_PERIOD_S: Final = 0.2
# A process imports its framework and loads its model: some seconds, during which it does nothing.
LOAD_S: Final = 3.0
# 95 % quantile of the time of a batch relative to its mean: that of a GPU-bound workload on an
# H200, whose quantiles of 95 % and 50 % differ by 2 %.
_P95: Final = 1.02
_SENSOR_S: Final = 1.0  # a boxcar sensor shows the mean of the last second


class SimulatedPlant:
    """A simulated GPU with its tenants. Time passes only in ``window``.

    A process keeps its model and share; a batch changes at once. If other processes are needed,
    the old ones end, and the new ones work after ``LOAD_S``.

    Args:
        gpu: the GPU; it must not be used by others.
        can: what a controller may change.
        meter: where the mean power of a window comes from: the energy counter, or the power sensor,
            whose noise it then has.

    Attributes:
        gpu: the GPU.
    """

    def __init__(
        self,
        gpu: SimulatedGpu,
        *,
        can: frozenset[Need] = ALL,
        meter: Literal["counter", "sensor"] = "counter",
    ) -> None:
        self.gpu = gpu
        self._can = can
        self._meter = meter
        self._point = OperatingPoint(configuration=Configuration(tenants=()))
        self._loading_s = 0.0
        self._phase_s = 0.0

    @property
    def abilities(self) -> Abilities:
        """See ``Plant``."""
        ranges: dict[Knob, KnobRange] = {}
        for knob in GPU_KNOBS:
            if knob in self._can:
                ranges[knob] = self.gpu.range(knob)
        return Abilities(can=self._can, ranges=ranges)

    def apply(self, point: OperatingPoint) -> None:
        """See ``Plant``.

        Raises:
            ValueError: if the point changes what cannot be changed, or has an impossible duty.
            OutOfMemory: if the memory does not suffice.
        """
        old, new = self._point.configuration, point.configuration
        self._check(point)
        before, after = needed(old), needed(new)
        for knob in GPU_KNOBS:
            if before.get(knob) != after.get(knob):
                self._change(knob, after.get(knob))
        if old.tenants != new.tenants:
            self.gpu.run(new.tenants)
            if _processes(new.tenants) - _processes(old.tenants):
                self._loading_s = LOAD_S
        self._point = point

    def window(self, duration_s: float) -> Window:
        """See ``Plant``."""
        gpu, start_s = self.gpu, self.gpu.t_s
        start_j = gpu.energy_j
        is_steady = self._loading_s == 0.0
        parts = self._pass(duration_s)
        lasted_s = gpu.t_s - start_s
        tenants = self._point.configuration.tenants
        counts = [one.samples for one in parts if len(one.samples) == len(tenants)]
        rates = tuple(math.fsum(column) / lasted_s for column in zip(*counts, strict=True))
        readings_w = [reading for one in parts for reading in one.readings_w] or [gpu.sensor_w]
        mean_w = (gpu.energy_j - start_j) / lasted_s
        return Window(
            start_s=start_s,
            end_s=gpu.t_s,
            point=self._point,
            is_steady=is_steady,
            power_mean_w=mean_w if self._meter == "counter" else self._sensed_w(readings_w),
            power_max_w=max(readings_w),
            throughput_per_s=math.fsum(rates),
            tenant_throughputs_per_s=rates or (0.0,) * len(tenants),
            latency_p95_ms=_latency_ms(tenants, rates),
            sm_mhz_measured=_mean_mhz(parts),
            temperature_c=gpu.temperature_c,
            sm_util_pct=gpu.sm_util_pct * _working_share(parts),
            mem_util_pct=gpu.mem_util_pct * _working_share(parts),
        )

    def _check(self, point: OperatingPoint) -> None:
        if not 0.0 < point.duty <= 1.0:
            raise ValueError(f"the duty must be above 0 and at most 1, got {point.duty:g}")
        chosen = point.configuration
        asked: dict[Need, bool] = {
            "duty": point.duty != 1.0,
            "budget": point.budget_w is not None,
            "clock": chosen.sm_mhz is not None,
            "memory_clock": chosen.mem_mhz is not None,
            "limit": chosen.power_limit_w is not None,
        }
        for need, is_asked in asked.items():
            if is_asked and need not in self._can:
                raise ValueError(
                    f"the {need} cannot be changed on this plant; it can change {sorted(self._can)}"
                )

    def _change(self, knob: Knob, value: float | None) -> None:
        if knob == "limit" and value is None:
            value = self.gpu.range(knob).default
        self.gpu.change(Setting(knob=knob, value=value))

    def _pass(self, duration_s: float) -> list[Passed]:
        """Let time pass: loading, then work and pauses in turn."""
        parts = []
        left_s = duration_s
        tenants = self._point.configuration.tenants
        if self._loading_s > 0.0:
            self.gpu.run(tenants, is_waiting=True)
            passed_s = min(left_s, self._loading_s)
            parts.append(self.gpu.advance(passed_s))
            self._loading_s = max(self._loading_s - passed_s, 0.0)
            left_s -= passed_s
            self.gpu.run(tenants)
        while left_s > 1e-6:
            parts.append(self._work_or_pause(left_s))
            left_s -= parts[-1].duration_s
        return parts

    def _work_or_pause(self, most_s: float) -> Passed:
        duty, tenants = self._point.duty, self._point.configuration.tenants
        if duty == 1.0:
            return self.gpu.advance(most_s)
        work_s = round(duty * _PERIOD_S, 3)
        is_working = self._phase_s < work_s
        self.gpu.run(tenants, is_waiting=not is_working)
        end_s = work_s if is_working else _PERIOD_S
        passed = self.gpu.advance(max(min(end_s - self._phase_s, most_s), 0.001))
        self._phase_s += passed.duration_s
        if self._phase_s > _PERIOD_S - 5e-4:
            self._phase_s = 0.0
        self.gpu.run(tenants)
        return passed

    def _sensed_w(self, readings_w: list[float]) -> float:
        """Return the mean power that the sensor shows.

        Values of a boxcar sensor overlap; only those that follow each other without a gap count.
        """
        if self.gpu.card.sensor == "boxcar":
            each = round(_SENSOR_S / 0.1)
            readings_w = readings_w[::-1][::each]
        return math.fsum(readings_w) / len(readings_w)


def _processes(tenants: tuple[Tenant, ...]) -> Counter[tuple[str, float]]:
    return Counter((one.model, one.share_pct) for one in tenants)


def _latency_ms(tenants: tuple[Tenant, ...], rates: tuple[float, ...]) -> float | None:
    """Return the 95 % quantile of the time of a batch of the slowest tenant."""
    known = [1e3 * one.batch / rate for one, rate in zip(tenants, rates, strict=True) if rate > 0.0]
    return _P95 * max(known) if known else None


def _mean_mhz(parts: list[Passed]) -> float:
    total_s = math.fsum(one.duration_s for one in parts)
    return math.fsum(one.sm_mhz * one.duration_s for one in parts) / total_s


def _working_share(parts: list[Passed]) -> float:
    """Return the share of the time in which tenants worked."""
    working_s = math.fsum(one.duration_s for one in parts if any(one.samples))
    return working_s / math.fsum(one.duration_s for one in parts)

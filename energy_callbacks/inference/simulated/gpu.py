"""Defines ``SimulatedGpu``, a GPU in software that runs in virtual time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from energy_callbacks.core.errors import ActuatorError, EnergyCallbacksError
from energy_callbacks.inference.records import (
    Configuration,
    MeasuredWindow,
    Mode,
    Phase,
    Tenant,
    needed,
)
from energy_callbacks.inference.simulated.failures import Failures
from energy_callbacks.inference.simulated.physics import (
    Array,
    Card,
    Running,
    Workload,
    memory_gib,
    running,
)
from energy_callbacks.inference.simulated.state import STEP_S, State, samples
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting

# Relative standard deviation of the throughput of a window that is measured again: median of
# repeated rows in Zeus's traces of launch-bound workloads.
_RATE_NOISE: Final = 0.005
# Relative standard deviation of the time of a batch, if the host or the GPU determines it: on an
# H200, quantiles of 95 % and 50 % differ by 20 % and 2 %.
_HOST_JITTER, _GPU_JITTER = 0.11, 0.01
_QUANTILES: Final = (0.0, 1.6449, 2.3263)  # 50, 95 and 99 % of the standard normal distribution


class OutOfMemory(EnergyCallbacksError):
    """The tenants need more memory than the simulated GPU has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What a GPU did in some time.

    Attributes:
        duration_s: the time, s.
        samples: samples of each tenant.
        energy_j: energy of the GPU, J.
        sm_mhz: mean clock of the multiprocessors during work, MHz.
        readings_w: values of the sensor, one every 100 ms, W.
    """

    duration_s: float
    samples: tuple[float, ...]
    energy_j: float
    sm_mhz: float
    readings_w: tuple[float, ...]

    @property
    def power_w(self) -> float:
        """Mean power, W."""
        return self.energy_j / self.duration_s


class SimulatedGpu:
    """A GPU in software. Time passes only in ``advance`` and ``measure``.

    It has the protocol ``Bench``; ``SimulatedActuator`` changes its settings as those of real GPUs.

    Args:
        card: its constants.
        workloads: the models that it can run.
        uuid: its UUID.
        seed: seed of all noise.
        failures: what fails; ``None`` for nothing.
        mode: inference or training, where ``run`` is not given a mode.
    """

    def __init__(
        self,
        card: Card,
        workloads: Mapping[str, Workload],
        *,
        uuid: str,
        seed: int = 0,
        failures: Failures | None = None,
        mode: Mode = "infer",
    ) -> None:
        self.card = card
        self.uuid = uuid
        self.failures = failures or Failures()
        self._workloads = workloads
        self._state = State(card, seed)
        self._rng = np.random.default_rng([seed, 2])
        self._settings: dict[Knob, float | None] = {
            "limit": card.limits_w[2],
            "clock": None,
            "memory_clock": None,
        }
        self._foreign = sorted(self.failures.foreign_limits)
        self._tenants: tuple[Tenant, ...] = ()
        self._usual_mode: Mode = mode
        self._mode: Mode = mode
        self._is_waiting = False
        # Servers repeat the same tenants and batches, and each takes as long as 20 ms of the GPU.
        self._running = lru_cache(maxsize=1024)(self._run)

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that it can run."""
        return tuple(self._workloads)

    @property
    def t_s(self) -> float:
        """Time since the start, s."""
        return self._state.ms * STEP_S

    @property
    def is_lost(self) -> bool:
        """Whether the GPU does not answer any more."""
        lost_s = self.failures.lost_at_s
        return lost_s is not None and self.t_s >= lost_s

    @property
    def power_w(self) -> float:
        """True present power, W, which a real GPU does not tell."""
        return self._state.power_w

    @property
    def sensor_w(self) -> float:
        """Present value of the power sensor, W."""
        return self._state.sensor_w

    @property
    def energy_j(self) -> float:
        """Value of the energy counter, J; a whole number of mJ."""
        return round(self._state.energy_j, 3)

    @property
    def temperature_c(self) -> float:
        """Temperature, degrees Celsius."""
        return self._state.temperature_c

    @property
    def sm_mhz(self) -> float:
        """Present clock of the multiprocessors, MHz."""
        return self._state.sm_mhz

    @property
    def sm_util_pct(self) -> float:
        """Time in which kernels run, percent."""
        return 100.0 * self._now(self._state.running.busy)

    @property
    def mem_util_pct(self) -> float:
        """Time in which the memory is read or written, percent."""
        return self.card.memory_util_pct * self._now(self._state.running.memory_use)

    @property
    def rates_per_s(self) -> tuple[float, ...]:
        """Samples per second of each tenant at the present clock."""
        return tuple(self._now(row) for row in self._state.running.rates_per_s)

    @property
    def highest_mhz(self) -> float:
        """Highest clock of the multiprocessors that the settings allow, MHz."""
        return self._state.clock_mhz

    def range(self, knob: Knob) -> KnobRange:
        """Return the accepted values of a knob and its present value.

        Raises:
            ActuatorError: if the GPU is lost or does not have the knob.
        """
        self._check_present()
        if knob not in self._settings or knob in self.failures.unsupported:
            raise ActuatorError(f"{self.uuid}: this GPU does not support the setting {knob!r}")
        lowest, highest, default = self.card.limits_w
        if knob == "limit":
            present = self._settings[knob]
            return KnobRange(
                knob=knob, lowest=lowest, highest=highest, present=present, default=default
            )
        ladder = self.card.ladder_mhz if knob == "clock" else self.card.memory_clocks_mhz
        steps = tuple(float(clock) for clock in ladder)
        return KnobRange(
            knob=knob, lowest=steps[0], highest=steps[-1], present=None, default=None, steps=steps
        )

    def change(self, setting: Setting) -> None:
        """Change a setting.

        Raises:
            ValueError: if the card does not accept the value.
            ActuatorError: if the GPU is lost, does not have the knob or refuses the change.
        """
        self.range(setting.knob).check(setting.value)
        if not self.failures.has_permission:
            raise ActuatorError(f"{self.uuid}: the driver does not permit the change (simulated)")
        self._change(setting)

    def _change(self, setting: Setting) -> None:
        self._settings[setting.knob] = setting.value
        if setting.knob == "limit":
            self._state.limit_w = setting.value or self.card.limits_w[2]
        elif setting.knob == "clock" and not self.failures.refuses_clocks:
            self._state.clock_mhz = setting.value or self.card.clocks_mhz[1]
        elif setting.knob == "memory_clock":
            self._start()

    def run(
        self, tenants: Sequence[Tenant], *, mode: Mode | None = None, is_waiting: bool = False
    ) -> None:
        """Run these processes from now on instead of the present ones.

        Args:
            tenants: the processes; empty for an idle GPU.
            mode: inference or training; ``None`` for the mode of the GPU.
            is_waiting: whether they are loaded, but have nothing to do.

        Raises:
            ValueError: if a model is unknown.
            OutOfMemory: if the memory does not suffice; the GPU is idle then.
        """
        self._tenants, self._mode, self._is_waiting = (), mode or self._usual_mode, is_waiting
        self._start()
        total = math.fsum(memory_gib(one, self._workload(one), self._mode) for one in tenants)
        if total > self.card.memory_gib:
            raise OutOfMemory(
                f"out of memory: {total:.1f} GiB needed, {self.card.memory_gib:g} GiB available "
                "(simulated)"
            )
        self._tenants = tuple(tenants)
        self._start()

    def advance(self, duration_s: float) -> Passed:
        """Let time pass, rounded to whole milliseconds, and return what the GPU did.

        Raises:
            ValueError: if the time is less than 1 ms.
            ActuatorError: if the GPU is lost.
        """
        steps = round(duration_s / STEP_S)
        if steps < 1:
            raise ValueError(f"duration_s must be at least {STEP_S}, got {duration_s}")
        self._check_present()
        state = self._state
        before_j, first = state.energy_j, len(state.readings_w)
        ms_at = state.ms_at.copy()
        self._advance(state.ms + steps)
        spent = state.ms_at - ms_at
        return Passed(
            duration_s=steps * STEP_S,
            samples=tuple(samples(spent, state.running)),
            energy_j=state.energy_j - before_j,
            sm_mhz=float(np.average(self.card.ladder_mhz, weights=spent))
            if any(spent)
            else self.sm_mhz,
            readings_w=tuple(state.readings_w[first:]),
        )

    def measure(
        self,
        configuration: Configuration,
        *,
        window_s: float,
        warmup_s: float,
        phase: Phase = "anchor",
        mode: Mode = "infer",
    ) -> MeasuredWindow:
        """See ``Bench``. Settings of the configuration are undone afterwards."""
        found = dict(self._settings)
        row = MeasuredWindow(
            configuration=configuration,
            source="simulated",
            phase=phase,
            mode=mode,
            gpu_uuid=self.uuid,
            gpu_name=self.card.name,
            driver="simulated",
            dataset="synthetic",
            warmup_s=warmup_s,
            window_s=window_s,
        )
        try:
            self._apply(configuration)
            self.run(configuration.tenants, mode=mode, is_waiting=phase == "static")
            if warmup_s:
                self.advance(warmup_s)
            return replace(row, **self._figures(self.advance(window_s)))
        except OutOfMemory as error:
            return replace(row, status="oom", note=str(error))
        except (ActuatorError, ValueError) as error:
            return replace(row, status="error", note=str(error))
        finally:
            for knob, value in found.items():
                if value != self._settings[knob]:
                    self._change(Setting(knob=knob, value=value))
            self._tenants = ()
            self._start()

    def _apply(self, configuration: Configuration) -> None:
        for knob, value in needed(configuration).items():
            self.change(Setting(knob=knob, value=value))
        clock = configuration.sm_mhz
        if clock is not None and self._state.clock_mhz > clock:
            raise ActuatorError(f"{self.uuid}: the clock {clock:g} MHz was refused (simulated)")

    def _figures(self, passed: Passed) -> dict[str, Any]:
        state, work = self._state, self._state.running
        factor = 1.0 + _RATE_NOISE * float(self._rng.standard_normal())
        rates = tuple(one / passed.duration_s * factor for one in passed.samples)
        power_w = passed.readings_w or (state.sensor_w,)
        figures: dict[str, Any] = {
            "sm_mhz_measured": passed.sm_mhz,
            "power_mean_w": passed.power_w,
            "power_p95_w": float(np.percentile(power_w, 95)),
            "power_max_w": max(power_w),
            "energy_j": round(passed.energy_j, 3),
            "temperature_c": float(round(state.temperature_c)),
            "sm_util_pct": self.sm_util_pct,
            "mem_util_pct": self.mem_util_pct,
        }
        if any(rates):
            figures |= {
                "throughput_per_s": math.fsum(rates),
                "tenant_throughputs_per_s": rates,
                "steps": sum(
                    int(rate * passed.duration_s / batch)
                    for rate, batch in zip(rates, work.batches, strict=True)
                ),
                **self._latencies(rates),
            }
        return figures

    def _latencies(self, rates: Sequence[float]) -> dict[str, Any]:
        """Return quantiles of the time of a batch, over all tenants."""
        work = self._state.running
        times_ms = [1e3 * batch / rate for batch, rate in zip(work.batches, rates, strict=True)]
        host = float(np.mean([self._now(row) for row in work.host_share]))
        jitter = _GPU_JITTER + (_HOST_JITTER - _GPU_JITTER) * min(2.0 * host, 1.0)
        middle = float(np.mean(times_ms))
        names = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms")
        return {
            name: middle * math.exp(jitter * z) for name, z in zip(names, _QUANTILES, strict=True)
        }

    def _now(self, values: Array) -> float:
        """Return a value at the present clock."""
        return float(np.interp(self.sm_mhz, self.card.ladder_mhz, values))

    def _advance(self, end: int) -> None:
        """Let time pass up to ``end`` ms, with what other processes do meanwhile."""
        state = self._state
        while self._foreign and self._foreign[0][0] <= end * STEP_S:
            at_s, limit_w = self._foreign.pop(0)
            state.advance(max(round(at_s / STEP_S) - state.ms, 0))
            self._change(Setting(knob="limit", value=limit_w))
        lost_s = self.failures.lost_at_s
        if lost_s is not None and lost_s <= end * STEP_S:
            state.advance(max(round(lost_s / STEP_S) - state.ms, 0))
            self._check_present()
        state.advance(end - state.ms)

    def _check_present(self) -> None:
        if self.is_lost:
            raise ActuatorError(f"{self.uuid}: the GPU is lost (simulated)")

    def _start(self) -> None:
        memory_mhz = self._settings["memory_clock"]
        self._state.run(
            self._running(self._tenants, self._mode, memory_mhz, is_waiting=self._is_waiting)
        )

    def _run(
        self, tenants: tuple[Tenant, ...], mode: Mode, memory_mhz: float | None, *, is_waiting: bool
    ) -> Running:
        pairs = [(one, self._workload(one)) for one in tenants]
        return running(self.card, pairs, mode=mode, memory_mhz=memory_mhz, is_waiting=is_waiting)

    def _workload(self, tenant: Tenant) -> Workload:
        if tenant.model not in self._workloads:
            known = ", ".join(self._workloads)
            raise ValueError(f"{self.card.name} cannot run {tenant.model!r}; it has {known}")
        return self._workloads[tenant.model]

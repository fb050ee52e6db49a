"""Measures power, energy, load, clock and temperature of a GPU or of the host in a time window."""

import math
import statistics
from contextlib import AbstractContextManager, suppress
from typing import Any, Final, Self

import numpy as np

from energy_callbacks.accounting.metrics.energy_sums import total, whole_window
from energy_callbacks.core.errors import SourceError
from energy_callbacks.core.records import Energy, Quantity
from energy_callbacks.core.units import megahertz
from energy_callbacks.sensing.clock import Clock, clock_offset
from energy_callbacks.sensing.discovery import discover
from energy_callbacks.sensing.sampler import Sampler
from energy_callbacks.sensing.sources.nvidia.source import session
from energy_callbacks.sensing.timeline import Timeline

# Longest time to wait for readings of the end of a window, s, and how often to look, s. Power
# sensors that average over one second are the slowest.
_PATIENCE_S: Final = 3.0
_LOOK_S: Final = 0.02
# Longest time to wait for the first readings, s: the driver may need seconds to open a GPU.
_OPEN_S: Final = 20.0
_STOP_S: Final = 3.0


class DeviceSensors(AbstractContextManager["DeviceSensors"]):
    """Reads the sensors of one GPU, or those of the host, until the end of the context.

    Args:
        uuid: UUID of the GPU; ``None`` for the host, whose power may be an estimate.
        clock: tells the time.
    """

    def __init__(self, uuid: str | None, clock: Clock) -> None:
        self._uuid, self._clock = uuid, clock
        self._scope: Final = "host" if uuid is None else "gpu"
        self._timeline = Timeline()
        found = (
            discover(clock, used=(), follow_children=False)
            if uuid is None
            else discover(clock, [uuid], host=False)
        )
        self._power: list[tuple[float, float]] = []  # readings after the last window: (t_s, W)
        self._sampler = Sampler(found.sources, self._timeline, clock, lambda _: None)

    def __enter__(self) -> Self:
        """Start to read, and wait for the first readings."""
        self._sampler.start()
        end_s = self._clock.monotonic_s() + _OPEN_S
        while self._seen_s() is None and self._clock.monotonic_s() < end_s:
            self._clock.sleep(_LOOK_S)
        for key in self._keys:
            self._timeline.follow_power(key)
        return self

    def __exit__(self, *_: object) -> None:
        self._sampler.stop(_STOP_S)

    def window(self, start_s: float, end_s: float) -> dict[str, Any]:
        """Return fields of ``MeasuredWindow`` for a window that has just ended.

        Args:
            start_s: monotonic time of its start.
            end_s: monotonic time of its end.
        """
        self._wait_for(end_s)
        energy = self.energy(start_s, end_s)
        power_w = self._power_w(start_s, end_s)
        is_known = energy.energy_j is not None
        note = "power is an estimate of a model" if energy.method == "model" else ""
        busy = self._mean("utilisation", start_s, end_s)
        clock_hz = self._mean("clock", start_s, end_s)
        return {
            "energy_j": energy.energy_j,
            "power_mean_w": (energy.energy_j or 0.0) / (end_s - start_s) if is_known else None,
            "power_p95_w": float(np.quantile(power_w, 0.95)) if power_w else None,
            "power_max_w": max(power_w) if power_w else None,
            "sm_util_pct": None if busy is None else 100.0 * busy,
            "mem_util_pct": self._memory_util_pct(start_s, end_s),
            "temperature_c": self._mean("temperature", start_s, end_s),
            "sm_mhz_measured": None if clock_hz is None else megahertz(clock_hz),
            "note": "; ".join(filter(None, (note, self._throttling(start_s, end_s)))),
        }

    def energy(self, start_s: float, end_s: float) -> Energy:
        """Return the energy between two moments that have readings."""
        energies = [self._timeline.energy(key, start_s, end_s) for key in self._keys]
        return whole_window(total(energies))

    def ask(self) -> None:
        """Ask for new readings, which come some milliseconds later."""
        self._sampler.ask()

    def reach_s(self) -> float:
        """Return the time until which there are readings now, s."""
        return self._seen_s() or -math.inf

    @property
    def _keys(self) -> tuple[str, ...]:
        return self._timeline.keys(self._scope)

    def _seen_s(self) -> float | None:
        return self._timeline.seen_s(self._clock.monotonic_s()) if self._keys else None

    def _wait_for(self, end_s: float) -> None:
        """Wait until the readings reach the end of the window.

        Looks are counted instead of time, so that a process that was paused does not give up.
        """
        for _ in range(round(_PATIENCE_S / _LOOK_S)):
            if self.reach_s() >= end_s:
                return
            self.ask()
            self._clock.sleep(_LOOK_S)

    def _power_w(self, start_s: float, end_s: float) -> list[float]:
        """Return the readings of power in the window, W, and keep those of later windows.

        They are empty for a host, which has several devices.
        """
        if self._uuid is None:
            return []
        for key in self._keys:
            self._power += self._timeline.leave_power(key)
            self._timeline.follow_power(key)
        found = [watts for t_s, watts in self._power if start_s < t_s <= end_s]
        self._power = [one for one in self._power if one[0] > end_s]
        return found

    def _mean(self, quantity: Quantity, start_s: float, end_s: float) -> float | None:
        for key in self._timeline.keys_with(quantity):
            values = self._timeline.readings(key, quantity, start_s, end_s)[1]
            if values:
                return statistics.fmean(values)
        return None

    def _throttling(self, start_s: float, end_s: float) -> str:
        for key in self._timeline.keys_with("throttled"):
            share = self._timeline.rate(key, "throttled", start_s, end_s) or 0.0
            if share > 0.01:
                return f"the power limit or heat lowered the clock for {share:.0%} of the time"
        return ""

    def _memory_util_pct(self, start_s: float, end_s: float) -> float | None:
        """Return the mean of the driver's samples of the memory's utilisation; ``None`` if none."""
        if self._uuid is None:
            return None
        _, offset_s = clock_offset(self._clock)
        start_us, end_us = (int(1e6 * (t_s + offset_s)) for t_s in (start_s, end_s))
        values: list[float] = []
        with suppress(SourceError), session(self._uuid) as nvml:
            card = nvml.nvmlDeviceGetHandleByUUID(self._uuid)
            kind = nvml.NVML_MEMORY_UTILIZATION_SAMPLES
            _, samples = nvml.nvmlDeviceGetSamples(card, kind, start_us)
            values = [float(one.sampleValue.uiVal) for one in samples if one.timeStamp <= end_us]
        return statistics.fmean(values) if values else None

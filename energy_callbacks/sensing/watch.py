"""Reads the devices of this machine outside of a training, for the command ``monitor``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from energy_callbacks.core.records import Device, Energy
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.sources.nvidia.processes import CardProcess, card_processes
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.timeline import Timeline

# Time over which power is averaged, s. The energy counters of older GPUs need at least one second
# for a mean power.
_RECENT_S: Final = 2.0
# Maximum age of a value that is shown, except power and energy, s.
_FRESH_S: Final = 5.0
# Maximum time that ``Watch.stop`` waits for all sources together, s.
_STOP_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLook:
    """State of one device at one moment; an unknown number is ``None``.

    Attributes:
        device: the device.
        power_w: mean power over at most two seconds up to the newest reading, W; time without
            readings is left out.
        energy: energy from the creation of ``Watch``, or from the first reading if that is later,
            to the newest reading.
        utilisation: fraction of time in which the device was busy, 0 to 1.
        memory_used_bytes: used memory.
        memory_utilisation: fraction of time in which memory was read or written, 0 to 1.
        temperature_c: temperature, degrees Celsius.
        clock_hz: clock frequency of the GPU's multiprocessors.
        memory_clock_hz: clock frequency of the GPU's memory.
        throttled_s: sum of the times in which heat, the power limit or the power brake reduced the
            clock frequency, s.
        processes: processes on a GPU, in order of decreasing memory; empty for other devices, or if
            unknown.
    """

    device: Device
    power_w: float | None
    energy: Energy
    utilisation: float | None
    memory_used_bytes: float | None
    memory_utilisation: float | None
    temperature_c: float | None
    clock_hz: float | None
    memory_clock_hz: float | None
    throttled_s: float | None
    processes: tuple[CardProcess, ...]


class Watch:
    """Reads sources until ``stop`` is called.

    Readings are kept for ten minutes. The cumulative energy is kept without limit.

    Args:
        sources: sources to read.
        clock: tells the time and runs a thread for each source.
    """

    def __init__(self, sources: Sequence[Source], clock: Clock) -> None:
        self._clock = clock
        self._timeline = Timeline()
        self._notices: list[Notice] = []
        self._sampler = Sampler(sources, self._timeline, clock, self._notices.append)
        self._start_s = clock.monotonic_s()

    def start(self) -> None:
        """Open all sources and begin to read them, without waiting for the first readings."""
        self._sampler.start()

    def stop(self) -> None:
        """Read every source once more and close it; wait at most three seconds for this."""
        self._sampler.stop(_STOP_TIMEOUT_S)

    @property
    def elapsed_s(self) -> float:
        """Seconds since this object was created."""
        return self._clock.monotonic_s() - self._start_s

    @property
    def problems(self) -> tuple[Notice, ...]:
        """Newest notice of each source, if it says that the source is unavailable or lost.

        Remarks are ignored. A lost source may add remarks when it is closed; if they counted, they
        would be its newest notices, and would hide that the source is lost.
        """
        newest = {one.source: one for one in self._notices if one.kind != "remark"}
        return tuple(one for one in newest.values() if one.kind in ("unavailable", "lost"))

    def look(self) -> list[DeviceLook]:
        """Return the state of all devices whose energy is measured or modelled, GPUs first."""
        keys = self._timeline.metered
        known = [device for device in self._timeline.devices if device.key in keys]
        known.sort(key=lambda device: (device.kind != "gpu", device.index or 0))
        return [self._look(device) for device in known]

    def _look(self, device: Device) -> DeviceLook:
        timeline, key = self._timeline, device.key
        # The driver's buffer may contain readings from before this object was created. They are not
        # counted.
        first_s = max(timeline.start_s(key) or self._start_s, self._start_s)
        newest_s = timeline.newest_s(key)
        energy, power_w = Energy(energy_j=None), None
        if newest_s is not None and newest_s > first_s:
            energy = timeline.energy(key, first_s, newest_s)
            since_s = max(newest_s - _RECENT_S, first_s)
            joules, coverage = timeline.seen(key, since_s, newest_s)
            if joules is not None and coverage:
                power_w = joules / (coverage * (newest_s - since_s))
        after_s = self._clock.monotonic_s() - _FRESH_S
        return DeviceLook(
            device=device,
            power_w=power_w,
            energy=energy,
            utilisation=timeline.latest(key, "utilisation", after_s),
            memory_used_bytes=timeline.latest(key, "memory_used", after_s),
            memory_utilisation=timeline.latest(key, "memory_utilisation", after_s),
            temperature_c=timeline.latest(key, "temperature", after_s),
            clock_hz=timeline.latest(key, "clock", after_s),
            memory_clock_hz=timeline.latest(key, "memory_clock", after_s),
            throttled_s=timeline.latest(key, "throttled", after_s),
            processes=card_processes(device.uuid) if device.uuid else (),
        )

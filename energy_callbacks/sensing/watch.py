"""Watches all devices of this machine without a run, for ``monitor``."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from energy_callbacks.core.records import Device, Energy
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.sources.nvidia.processes import CardProcess, card_processes
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.timeline import Timeline

# Power is the mean over this time: a second is what a counter of joules needs on older cards.
_RECENT_S: Final = 2.0
# An old reading of a gauge is not its present value.
_FRESH_S: Final = 5.0
_STOP_TIMEOUT_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLook:
    """One device at one moment; ``None`` if not known.

    Attributes:
        power_w: mean of the newest two seconds that were seen.
        energy: since the start.
        utilisation: share of the time in which it was busy.
        throttled_s: slowed down by heat or power, since the start.
        processes: on a card, most memory first.
    """

    device: Device
    power_w: float | None
    energy: Energy
    utilisation: float | None
    memory_used_bytes: float | None
    temperature_c: float | None
    clock_hz: float | None
    throttled_s: float | None
    processes: tuple[CardProcess, ...]


class Watch:
    """Reads sources until it is stopped; keeps ten minutes at full resolution, energy permanently.

    Args:
        sources: to read.
        clock: time and threads.
    """

    def __init__(self, sources: Sequence[Source], clock: Clock) -> None:
        self._clock = clock
        self._timeline = Timeline()
        self._notices: dict[str, Notice] = {}
        self._sampler = Sampler(sources, self._timeline, clock, self._note)
        self._start_s = clock.monotonic_s()

    def start(self) -> None:
        """Begin to read."""
        self._sampler.start()

    def stop(self) -> None:
        """Read no more."""
        self._sampler.stop(_STOP_TIMEOUT_S)

    @property
    def elapsed_s(self) -> float:
        """Since this was made."""
        return self._clock.monotonic_s() - self._start_s

    @property
    def problems(self) -> tuple[Notice, ...]:
        """What cannot be read, or not any more."""
        wrong = ("unavailable", "lost")
        return tuple(one for one in self._notices.values() if one.kind in wrong)

    def look(self) -> list[DeviceLook]:
        """All devices with energy, now; cards first, by their number."""
        keys = set(self._timeline.metered)
        known = [device for device in self._timeline.devices if device.key in keys]
        known.sort(key=lambda device: (device.kind != "gpu", device.index or 0))
        return [self._look(device) for device in known]

    def _note(self, notice: Notice) -> None:
        self._notices[notice.source] = notice

    def _look(self, device: Device) -> DeviceLook:
        timeline, key = self._timeline, device.key
        # A driver's buffer reaches back before the start.
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
            temperature_c=timeline.latest(key, "temperature", after_s),
            clock_hz=timeline.latest(key, "clock", after_s),
            throttled_s=timeline.latest(key, "throttled", after_s),
            processes=card_processes(device.uuid) if device.uuid else (),
        )

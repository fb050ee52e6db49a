"""Public fakes: a clock without waiting, a scripted sensor, an in-memory output.

With them a whole run is deterministic and takes no time::

    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda t_s: 200.0)
    with EnergyMeter(sources=[source], clock=clock) as meter:
        with meter.phase("train"):
            clock.advance(10.0)
            meter.step(samples=64)
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.sensing.clock import Periodic
from energy_callbacks.sensing.sources.replay import ReplaySource

__all__ = ["FakeClock", "InMemoryOutput", "ReplaySource", "ScriptedSource"]


class FakeClock:
    """A clock that stands still until ``advance``; jobs run at their virtual times, in order.

    Args:
        start_s: monotonic time at first.
        start_unix_s: wall time at first.
    """

    def __init__(self, start_s: float = 1000.0, start_unix_s: float = 1.7e9) -> None:
        self._now_s = start_s
        self._unix_offset_s = start_unix_s - start_s
        self._queue: list[tuple[float, int, _FakePeriodic]] = []
        self._serial = 0

    def monotonic_s(self) -> float:
        """Virtual monotonic time."""
        return self._now_s

    def unix_s(self) -> float:
        """Virtual wall time."""
        return self._now_s + self._unix_offset_s

    def set_wall_clock(self, jump_s: float) -> None:
        """Let the wall clock jump, as a time server does."""
        self._unix_offset_s += jump_s

    def sleep(self, duration_s: float) -> None:
        """Let time pass without running any job: it is a job that sleeps."""
        self._now_s += duration_s

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:  # noqa: ARG002
        """Run ``job`` at each ``advance`` that passes its time, first at the next one."""
        periodic = _FakePeriodic(job, interval_s)
        self._put(self._now_s, periodic)
        return periodic

    def advance(self, duration_s: float) -> None:
        """Let time pass and run everything that is due."""
        end_s = self._now_s + duration_s
        while self._queue and self._queue[0][0] <= end_s:
            due_s, _, periodic = heapq.heappop(self._queue)
            self._now_s = max(self._now_s, due_s)
            if not periodic.is_stopped:
                started_s = self._now_s  # a long turn does not delay the next one
                self._put(max(started_s + periodic.run(), self._now_s), periodic)
        self._now_s = max(self._now_s, end_s)

    def __getstate__(self) -> dict[str, Any]:
        """A copy shows the same time; the jobs stay with the original."""
        return self.__dict__ | {"_queue": []}

    def _put(self, due_s: float, periodic: "_FakePeriodic") -> None:
        self._serial += 1
        heapq.heappush(self._queue, (due_s, self._serial, periodic))


@dataclass(slots=True)
class _FakePeriodic:
    job: Callable[[], float | None]
    interval_s: float
    is_stopped: bool = False
    is_done: bool = False
    cpu_s: float = 0.0

    def run(self) -> float:
        return self.job() or self.interval_s

    def ask_to_stop(self) -> None:
        """No run at a later time; the last one happens in ``wait``."""
        self.is_stopped = True

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        """The last run."""
        if not self.is_done:
            self.is_done = True
            self.job()
        return True


class ScriptedSource:
    """A sensor that plays a power signal known in closed form.

    Args:
        clock: time.
        power_w: the signal over monotonic time, W.
        energy_j: its integral from any origin, J; offered as a counter if given.
        kind: ``gauge`` readings of ``power_w`` at each ``interval_s``; ``mean`` the mean since the
            reading before, from ``energy_j``; ``None`` no power readings.
        device: who owns the readings; defaults to ``gpu0``.
        sensor: what is known of the sensor.
        interval_s: between readings.
    """

    def __init__(
        self,
        clock: FakeClock,
        *,
        power_w: Callable[[float], float],
        energy_j: Callable[[float], float] | None = None,
        kind: Literal["gauge", "mean"] | None = "gauge",
        device: Device | None = None,
        sensor: Sensor | None = None,
        interval_s: float = 0.1,
    ) -> None:
        if kind == "mean" and energy_j is None:
            raise ValueError("kind='mean' needs energy_j, got None; give the signal's integral")
        self.name = "scripted"
        self.interval_s = interval_s
        self._clock = clock
        self._power_w = power_w
        self._energy_j = energy_j
        self._kind: Literal["gauge", "mean"] | None = kind
        self._device = device or Device(key="gpu0", kind="gpu", scope="gpu", name="scripted GPU")
        self._sensor = sensor
        self._power: Channel | None = None
        self._counter: Channel | None = None
        self._last_s: float | None = None

    def open(self) -> Sequence[Channel]:
        """Offer power, energy or both."""
        if self._kind is not None:
            self._power = Channel(
                device=self._device, quantity="power", kind=self._kind, sensor=self._sensor
            )
        if self._energy_j is not None and self._kind != "mean":
            self._counter = Channel(
                device=self._device, quantity="energy", kind="counter", sensor=self._sensor
            )
        return [channel for channel in (self._power, self._counter) if channel is not None]

    def read(self) -> Sequence[Reading]:
        """One reading of each channel, now."""
        t_s = self._clock.monotonic_s()
        readings = []
        if self._power is not None:
            readings.append(Reading(self._power, t_s, self._power_value(t_s)))
        if self._counter is not None and self._energy_j is not None:
            readings.append(Reading(self._counter, t_s, self._energy_j(t_s)))
        self._last_s = t_s
        return readings

    def _power_value(self, t_s: float) -> float:
        if self._kind == "gauge" or self._energy_j is None:
            return self._power_w(t_s)
        if self._last_s is None or t_s <= self._last_s:
            return self._power_w(t_s)
        return (self._energy_j(t_s) - self._energy_j(self._last_s)) / (t_s - self._last_s)

    def close(self) -> None:
        """Nothing to release."""


@dataclass(slots=True)
class InMemoryOutput:
    """Remembers what was written, in order."""

    rows: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    is_closed: bool = False

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:  # noqa: ARG002
        """Remember a row."""
        self.rows.append((step, dict(scalars)))

    def close(self) -> None:
        """Remember that it was closed."""
        self.is_closed = True

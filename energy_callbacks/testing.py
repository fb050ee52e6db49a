"""Public fakes for tests: a clock, a scripted sensor, an in-memory output.

With them a run is deterministic and takes no time::

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
    """A clock with virtual time, which only ``advance`` and ``sleep`` change.

    Periodic jobs run during ``advance``, at their virtual times and in order.

    Args:
        start_s: initial monotonic time, s.
        start_unix_s: initial wall time, seconds since 1970.
    """

    def __init__(self, start_s: float = 1000.0, start_unix_s: float = 1.7e9) -> None:
        self._now_s = start_s
        self._unix_offset_s = start_unix_s - start_s
        self._queue: list[tuple[float, int, _FakePeriodic]] = []
        self._serial = 0

    def monotonic_s(self) -> float:
        """Return the virtual monotonic time."""
        return self._now_s

    def unix_s(self) -> float:
        """Return the virtual wall time."""
        return self._now_s + self._unix_offset_s

    def set_wall_clock(self, jump_s: float) -> None:
        """Move the wall clock forward by ``jump_s`` seconds, as a time server may do."""
        self._unix_offset_s += jump_s

    def sleep(self, duration_s: float) -> None:
        """Let time pass without running jobs; jobs may call it."""
        self._now_s += duration_s

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:  # noqa: ARG002
        """Run ``job`` whenever ``advance`` reaches its time; the first call is due now."""
        periodic = _FakePeriodic(job, interval_s)
        self._put(self._now_s, periodic)
        return periodic

    def advance(self, duration_s: float) -> None:
        """Let time pass and run the jobs that are due."""
        end_s = self._now_s + duration_s
        while self._queue and self._queue[0][0] <= end_s:
            due_s, _, periodic = heapq.heappop(self._queue)
            self._now_s = max(self._now_s, due_s)
            if not periodic.is_stopped:
                started_s = self._now_s  # a job that takes long does not delay the next call
                self._put(max(started_s + periodic.run(), self._now_s), periodic)
        self._now_s = max(self._now_s, end_s)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy, which has the same time and no jobs."""
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
        """Stop the periodic calls of the job; ``wait`` makes the last call."""
        self.is_stopped = True

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        """Run the job a last time, unless that has been done."""
        if not self.is_done:
            self.is_done = True
            self.job()
        return True


class ScriptedSource:
    """A source whose readings follow a given power signal.

    Args:
        clock: time of the readings.
        power_w: returns the power at a monotonic time, W.
        energy_j: returns the integral of the power from any origin, J. It is offered as a counter
            unless ``kind`` is ``mean``. ``None``: no counter.
        kind: ``gauge``: readings of ``power_w``; ``mean``: readings of the mean power since the
            previous reading, from ``energy_j``; ``None``: no power readings.
        device: the device of the readings; defaults to ``gpu0``.
        sensor: known properties of the sensor; ``None`` if there are none.
        interval_s: time between two readings, s.

    Raises:
        ValueError: if ``kind`` is ``mean`` and ``energy_j`` is ``None``.
    """

    name = "scripted"

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
        self.interval_s = interval_s
        self._clock = clock
        self._power_w = power_w
        self._energy_j = energy_j
        self._last_s: float | None = None
        self._channels: list[tuple[Channel, Callable[[float], float]]] = []
        device = device or Device(key="gpu0", kind="gpu", scope="gpu", name="scripted GPU")
        if kind is not None:
            power = Channel(device=device, quantity="power", kind=kind, sensor=sensor)
            self._channels.append((power, self._mean_w if kind == "mean" else power_w))
        if energy_j is not None and kind != "mean":
            counter = Channel(device=device, quantity="energy", kind="counter", sensor=sensor)
            self._channels.append((counter, energy_j))

    def open(self) -> Sequence[Channel]:
        """Return the channels: power, energy or both."""
        return [channel for channel, _ in self._channels]

    def read(self) -> Sequence[Reading]:
        """Return one reading of each channel, at the present time."""
        t_s = self._clock.monotonic_s()
        readings = [Reading(channel, t_s, value(t_s)) for channel, value in self._channels]
        self._last_s = t_s
        return readings

    def _mean_w(self, t_s: float) -> float:
        last_s = self._last_s
        if self._energy_j is None or last_s is None or t_s <= last_s:
            return self._power_w(t_s)
        return (self._energy_j(t_s) - self._energy_j(last_s)) / (t_s - last_s)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


@dataclass(slots=True)
class InMemoryOutput:
    """Stores the rows that were written, as (step, scalars) in order."""

    rows: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    is_closed: bool = False

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:  # noqa: ARG002
        """Store a row."""
        self.rows.append((step, dict(scalars)))

    def close(self) -> None:
        """Set ``is_closed``."""
        self.is_closed = True

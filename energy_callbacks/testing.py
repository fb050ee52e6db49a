"""Public fakes for tests: a clock, a scripted sensor, an in-memory output.

A test with these fakes is deterministic and does not wait::

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
    """A clock with virtual time, which passes only in ``advance`` and ``sleep``.

    Periodic jobs run during ``advance``, in the order in which they are due.

    Args:
        start_s: initial monotonic time, in seconds.
        start_unix_s: initial wall time, in seconds since 1970.
    """

    def __init__(self, start_s: float = 1000.0, start_unix_s: float = 1.7e9) -> None:
        self._now_s = start_s
        self._unix_offset_s = start_unix_s - start_s
        self._queue: list[tuple[float, int, _FakePeriodic]] = []
        self._serial = 0

    def monotonic_s(self) -> float:
        """Return the virtual monotonic time, in seconds."""
        return self._now_s

    def unix_s(self) -> float:
        """Return the virtual wall time, in seconds since 1970."""
        return self._now_s + self._unix_offset_s

    def set_wall_clock(self, jump_s: float) -> None:
        """Move only the wall time forward, by ``jump_s`` seconds, as a time server may do."""
        self._unix_offset_s += jump_s

    def sleep(self, duration_s: float) -> None:
        """Let ``duration_s`` seconds pass without running jobs; jobs may call this method."""
        self._now_s += duration_s

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:  # noqa: ARG002
        """Schedule ``job``, which ``advance`` then calls; the first call is due now.

        Args:
            interval_s: time between two calls, in seconds.
            job: returns the time until its next call, in seconds; ``None`` for ``interval_s``.
            name: not used.
        """
        periodic = _FakePeriodic(job, interval_s)
        self._put(self._now_s, periodic)
        return periodic

    def advance(self, duration_s: float) -> None:
        """Let ``duration_s`` seconds pass, and run the jobs that become due in this time."""
        end_s = self._now_s + duration_s
        while self._queue and self._queue[0][0] <= end_s:
            due_s, _, periodic = heapq.heappop(self._queue)
            self._now_s = max(self._now_s, due_s)
            if not periodic.is_stopped:
                # The next call is due one interval after the start of this call.
                started_s = self._now_s
                self._put(max(started_s + periodic.run(), self._now_s), periodic)
        self._now_s = max(self._now_s, end_s)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of the clock without its jobs, for copying and pickling."""
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

    def run_soon(self) -> None:
        """Call the job now; its next periodic call is due as before."""
        if not self.is_stopped:
            self.job()

    def ask_to_stop(self) -> None:
        """End the periodic calls of the job; ``wait`` calls the job a last time."""
        self.is_stopped = True

    def wait(self, timeout_s: float) -> bool:  # noqa: ARG002
        """Call the job a last time, unless ``wait`` was called before; return ``True``."""
        if not self.is_done:
            self.is_done = True
            self.job()
        return True


class ScriptedSource:
    """A source whose readings follow a given power signal.

    Args:
        clock: clock that gives the times of the readings.
        power_w: function that returns the power in W at a monotonic time.
        energy_j: function that returns the integral of the power, in J, up to a monotonic time; the
            integral may start at any time. Unless ``kind`` is ``mean``, the source has an energy
            counter with these values. ``None`` for no counter.
        kind: kind of the power readings: ``gauge`` for values of ``power_w``; ``mean`` for the mean
            power since the previous reading, computed from ``energy_j``; ``None`` for no power
            readings.
        device: the device of the readings; ``None`` for a GPU with the key ``gpu0``.
        sensor: known properties of the sensor; ``None`` if not known.
        interval_s: time between two readings, in seconds.

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
        """Return the channels of the source: power, energy, both or none."""
        return [channel for channel, _ in self._channels]

    def read(self) -> Sequence[Reading]:
        """Return one reading of each channel at the current time of the clock."""
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
    """An output that stores the rows that are written to it.

    Attributes:
        rows: (step, scalars) of each row, in the order of writing.
        is_closed: whether ``close`` was called.
    """

    rows: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    is_closed: bool = False

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:  # noqa: ARG002
        """Append a row to ``rows``; the wall time is not stored."""
        self.rows.append((step, dict(scalars)))

    def close(self) -> None:
        """Set ``is_closed``."""
        self.is_closed = True

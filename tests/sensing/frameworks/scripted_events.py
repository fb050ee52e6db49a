"""A device whose events happen at moments known in closed form, on a virtual clock."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.testing import FakeClock


@dataclass(slots=True, eq=False)
class ScriptedEvent:
    """``at_s`` is the true time of the event on the host's clock."""

    at_s: float | None = None
    is_destroyed: bool = False


@dataclass(slots=True)
class ScriptedDevice:
    """Streams that execute queued work, and a clock of the device.

    Attributes:
        clock: the host's; every call costs ``call_s`` of it.
        drift: how much faster the device's clock goes.
        offset_s: what the device's clock shows when the host's is at 0.
        idle_delay_s: how long an event takes on the stream where nothing is queued.
        is_capturing: the training's stream is being captured into a graph.
        is_lost: the context is gone.
        jump: when the device's clock jumps, and by how much.
        uuid: the device's.
    """

    clock: FakeClock
    drift: float = 0.0
    offset_s: float = 1e5
    call_s: float = 2e-6
    idle_delay_s: float = 8e-6
    is_capturing: bool = False
    is_lost: bool = False
    jump: tuple[float, float] = (1e99, 0.0)
    uuid: str | None = "1"
    stream: int = 0
    events: list[ScriptedEvent] = field(default_factory=list)
    attached_count: int = 0
    is_closed: bool = False
    _done_s: dict[int, float] = field(default_factory=dict)

    def launch(self, duration_s: float) -> None:
        """Queue work on the current stream."""
        begin_s = max(self.clock.monotonic_s(), self._done_s.get(self.stream, 0.0))
        self._done_s[self.stream] = begin_s + duration_s

    @property
    def done_s(self) -> float:
        """When the current stream finishes all queued work."""
        return self._done_s.get(self.stream, 0.0)

    @property
    def alive(self) -> list[ScriptedEvent]:
        return [event for event in self.events if not event.is_destroyed]

    def create(self) -> ScriptedEvent:
        self.events.append(ScriptedEvent())
        return self.events[-1]

    def record(self, event: ScriptedEvent) -> bool:
        assert not event.is_destroyed
        if self.is_capturing:
            return False
        self.clock.sleep(self.call_s)
        event.at_s = max(self.clock.monotonic_s(), self.done_s)
        return True

    def record_idle(self, event: ScriptedEvent) -> bool:
        assert self.attached_count
        assert not event.is_destroyed
        self.clock.sleep(self.call_s)
        event.at_s = self.clock.monotonic_s() + self.idle_delay_s
        return True

    def is_done(self, event: ScriptedEvent) -> bool:
        if self.is_lost:
            raise SourceLost("lost")
        assert self.attached_count
        self.clock.sleep(self.call_s)
        assert event.at_s is not None
        return event.at_s <= self.clock.monotonic_s()

    def elapsed_s(self, start: ScriptedEvent, end: ScriptedEvent) -> float | None:
        if not (self.is_done(start) and self.is_done(end)):
            return None
        assert start.at_s is not None
        assert end.at_s is not None
        elapsed_s = self.shown_s(end.at_s) - self.shown_s(start.at_s)
        return float(np.float32(elapsed_s * 1e3)) / 1e3

    def shown_s(self, host_s: float) -> float:
        """Time on the device's clock, in steps of half a microsecond."""
        at_s, by_s = self.jump
        true_s = self.offset_s + host_s * (1.0 + self.drift) + (by_s if host_s > at_s else 0.0)
        return round(true_s / 5e-7) * 5e-7

    @contextmanager
    def attached(self) -> Iterator[None]:
        if self.is_lost:
            raise SourceLost("lost")
        self.attached_count += 1
        yield
        self.attached_count -= 1

    def destroy(self, event: ScriptedEvent) -> None:
        assert not event.is_destroyed
        event.is_destroyed = True

    def close(self) -> None:
        self.is_closed = True

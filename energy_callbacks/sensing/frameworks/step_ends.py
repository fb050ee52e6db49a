"""When the device finished a step, by CUDA events that are read later, in host time.

::

    training thread     mark     an event of a reused pool goes behind the step's work
    journal's thread    settle   an anchor is placed, and events that have passed are dated by it

Event times are known only as differences. An anchor is an event on a stream where nothing waits:
recorded and seen to have passed between two readings of the host's clock, it ties device time to
host time, however far the host runs ahead on the stream that trains. A step's end is the middle of

    [anchor, recorded to seen] + elapsed +- drift   and   [step queued, step seen to have ended]

and half the width of what both have in common is a bound of its error. No thread ever waits for
the training's work.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks import cuda_events
from energy_callbacks.sensing.frameworks.cuda_events import Event, Events

Item = TypeVar("Item")

# A step of 0.25 ms, looked after once a second (the longest ``sample_interval_s``).
_POOL_SIZE: Final = 4096
# Events ready for steps to come: to make one takes the training thread longer than to record it.
_LEAST_SPARE: Final = 64
# How fast the clocks of card and host may drift apart: the widest tolerance of a clock on a PCIe
# card, that of the reference clock (PCI Express Base Specification, +-300 ppm).
_DRIFT: Final = 3e-4
# cuEventElapsedTime: "a resolution of around 0.5 microseconds", handed over as a 32-bit number of
# milliseconds, which is as good over the eight seconds that the oldest anchor may be old.
_RESOLUTION_S: Final = 1e-6
# An anchor takes 10 to 50 us; one whose thread was held up is tried again.
_GOOD_S: Final = 25e-6
_TRIES: Final = 4
_KEPT_ANCHORS: Final = 8
# If streams share one hardware queue (CUDA_DEVICE_MAX_CONNECTIONS=1), anchors queue too.
_SPIN_S: Final = 0.2e-3
_PATIENCE_S: Final = 20e-3


@dataclass(slots=True, eq=False)
class StepEnd:
    """When a step ended.

    Attributes:
        queued_s: when Python had queued its work.
        end_s: when it ended; ``None`` while that is not known, ``queued_s`` if no event dates it.
        error_s: half-width of the bounds of ``end_s``; ``None`` if no event dates it.
    """

    queued_s: float
    end_s: float | None = None
    error_s: float | None = None


@dataclass(frozen=True, slots=True)
class _EventAnchor:
    event: Event
    low_s: float
    high_s: float

    @property
    def error_s(self) -> float:
        return (self.high_s - self.low_s) / 2.0


class StepEnds:
    """Dates the ends of steps by events.

    Args:
        clock: host time.
        open_events: the device's events, ``None`` while the training uses no device; by default
            those of CUDA.
        pool_size: at most this many events are under way; a step beyond them keeps its host mark.
    """

    def __init__(
        self,
        clock: Clock,
        open_events: Callable[[], Events | None] | None = None,
        *,
        pool_size: int = _POOL_SIZE,
    ) -> None:
        self._clock = clock
        self._open = open_events or cuda_events.open_events
        self._events: Events | None = None
        self._is_over = False
        self._left_to_create = pool_size
        self._free: deque[Event] = deque()
        self._pending: deque[tuple[StepEnd, Event]] = deque()
        self._anchors: deque[_EventAnchor] = deque()
        self.steps = 0
        self.host_marks = 0

    def mark(self, queued_s: float) -> StepEnd:
        """The work of a step has just been queued. On the training thread, some microseconds."""
        # Flat, as calls take longest in a loop that only launches work: its caches are cold.
        self.steps += 1
        end = StepEnd(queued_s)
        events = None if self._is_over else self._events or self._opened()
        if events is None:
            self._keep_host_mark(end)
            return end
        try:
            event = self._free.popleft()
        except IndexError:
            event = self._created(events)
        if event is not None and events.record(event):
            self._pending.append((end, event))
            return end
        if event is not None:
            self._free.append(event)
        self._keep_host_mark(end)
        return end

    def _opened(self) -> Events | None:
        self._events = self._open()
        return self._events

    def _created(self, events: Events) -> Event | None:
        if not self._left_to_create:
            return None
        self._left_to_create -= 1
        return events.create()

    def settle(self) -> None:
        """Date the steps that have ended; never waits for one that has not."""
        if self._events is None or self._is_over or not self._pending:
            return
        try:
            with self._events.attached():
                self._date(self._events)
        except SourceLost:
            self._give_up()

    def _date(self, events: Events) -> None:
        self._place_anchors(events)
        self._make_spare(events)
        if not self._anchors:
            return
        newest_s = self._anchors[-1].high_s
        anchor = min(self._anchors, key=lambda a: a.error_s + _DRIFT * (newest_s - a.high_s))
        while self._pending:
            end, event = self._pending[0]
            elapsed_s = events.elapsed_s(anchor.event, event)
            if elapsed_s is None:
                return
            self._bound(end, anchor, elapsed_s)
            self._pending.popleft()
            self._free.append(event)

    def _make_spare(self, events: Events) -> None:
        """As many as have been needed since the last look, so that marking finds one."""
        wanted = max(_LEAST_SPARE, len(self._pending)) - len(self._free)
        for _ in range(wanted):
            event = self._created(events)
            if event is None:
                return
            self._free.append(event)

    def _bound(self, end: StepEnd, anchor: _EventAnchor, elapsed_s: float) -> None:
        seen_s = self._clock.monotonic_s()
        slack_s = _DRIFT * abs(elapsed_s) + _RESOLUTION_S
        low_s = max(anchor.low_s + elapsed_s - slack_s, end.queued_s)
        high_s = min(anchor.high_s + elapsed_s + slack_s, seen_s)
        if low_s > high_s:  # the machine slept, or one of its clocks jumped
            low_s, high_s = end.queued_s, seen_s
        end.error_s = (high_s - low_s) / 2.0
        end.end_s = (low_s + high_s) / 2.0  # last: it is looked at from other threads

    def _place_anchors(self, events: Events) -> None:
        for _ in range(_TRIES):
            is_old = len(self._anchors) == _KEPT_ANCHORS
            event = self._anchors.popleft().event if is_old else events.create()
            anchor = None if event is None else self._anchor(events, event)
            if anchor is None:
                if event is not None:
                    events.destroy(event)
                return
            self._anchors.append(anchor)
            if anchor.error_s < _GOOD_S:
                return

    def _anchor(self, events: Events, event: Event) -> _EventAnchor | None:
        clock = self._clock
        low_s = clock.monotonic_s()
        if not events.record_idle(event):
            return None
        while not events.is_done(event):
            waited_s = clock.monotonic_s() - low_s
            if waited_s > _PATIENCE_S:
                return None
            if waited_s > _SPIN_S:
                clock.sleep(_SPIN_S)
        return _EventAnchor(event, low_s, clock.monotonic_s())

    def close(self) -> None:
        """Date what can be dated; the other steps keep their host marks, and events are freed."""
        self.settle()
        self._give_up()
        events = self._events
        if events is None:
            return
        try:
            with events.attached():
                for event in (*_drained(self._free), *(a.event for a in _drained(self._anchors))):
                    events.destroy(event)
                events.close()
        except SourceLost:
            return  # the context took them along

    def _give_up(self) -> None:
        self._is_over = True
        for end, event in _drained(self._pending):
            self._keep_host_mark(end)
            self._free.append(event)

    def _keep_host_mark(self, end: StepEnd) -> None:
        self.host_marks += 1
        end.end_s = end.queued_s


def _drained(queue: "deque[Item]") -> Iterator[Item]:
    """Take everything out, while another thread may still put something in."""
    with suppress(IndexError):
        while True:
            yield queue.popleft()

"""Determines when the device finished queued work, in host time, from CUDA events.

::

    training thread     mark     queues an event after the work of a step, or of a phase
    journal's thread    settle   records an anchor, and computes when past events occurred

CUDA reports only the time between two events. An anchor is an event on an empty stream, so that it
occurs at once. The host reads its clock before it records an anchor, and again after it has
observed that the anchor has occurred. This relates device time to host time, even if the training
has queued much work. The end of the work is the middle of the intersection of two intervals of host
time:

    [anchor recorded, anchor observed] + elapsed +- slack   and   [work queued, end observed]

Here ``elapsed`` is the device time from the anchor to the work's event. ``slack`` bounds the error
of ``elapsed``: the drift between the clocks of device and host plus the resolution. Half the width
of the intersection bounds the error of the end. No thread waits for the end of any work.
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

# Default of ``pool_size``: enough for steps of 0.25 ms if ``settle`` is called once a second (the
# journal's thread calls it at least every 0.8 s).
_POOL_SIZE: Final = 4096
# Minimum number of events that ``settle`` keeps ready for ``mark``, because creating an event takes
# longer than recording it.
_LEAST_SPARE: Final = 64
# Maximum relative drift between the clocks of card and host: the tolerance of the reference clock
# of a PCIe card (PCI Express Base Specification, +-300 ppm).
_DRIFT: Final = 3e-4
# Sum of two resolutions: cuEventElapsedTime has "a resolution of around 0.5 microseconds", and its
# result is a 32-bit floating-point number of milliseconds, whose resolution is 0.5 us up to eight
# seconds. Anchors are at most eight seconds old if ``settle`` is called at least once a second.
_RESOLUTION_S: Final = 1e-6
# Recording and observing an anchor takes 10 to 50 us; half of this time is the error of the anchor.
# If the error is not below _GOOD_S, for example because the thread was delayed, another anchor is
# recorded, up to _TRIES in one call of ``settle``.
_GOOD_S: Final = 25e-6
_TRIES: Final = 4
# Number of newest anchors from which the most accurate one is chosen.
_KEPT_ANCHORS: Final = 8
# An anchor is polled without pauses for _SPIN_S, then at intervals of _SPIN_S, and is given up
# after _PATIENCE_S. It is given up, for example, if all streams share one hardware queue
# (CUDA_DEVICE_MAX_CONNECTIONS=1): the anchor then occurs only after the training's queued work.
_SPIN_S: Final = 0.2e-3
_PATIENCE_S: Final = 20e-3


@dataclass(slots=True, eq=False)
class WorkEnd:
    """The end of queued work.

    Attributes:
        queued_s: host time when Python had queued all of the work on the device, s.
        end_s: host time when the device finished it, s; ``None`` if not known yet; the same as
            ``queued_s`` if no event shows the end.
        error_s: bound of the error of ``end_s``, s; ``None`` if not known yet, or if no event
            shows the end.
    """

    queued_s: float
    end_s: float | None = None
    error_s: float | None = None


@dataclass(frozen=True, slots=True)
class _EventAnchor:
    """An event that occurred between the host times ``low_s`` and ``high_s``."""

    event: Event
    low_s: float
    high_s: float

    @property
    def error_s(self) -> float:
        return (self.high_s - self.low_s) / 2.0


class WorkEnds:
    """Determines the ends of queued work from events of the device.

    Attributes:
        marked: number of calls of ``mark``.
        host_marks: number of those whose ``end_s`` is the time when the work was queued, because
            no event shows its end.

    Args:
        clock: clock that gives the host time.
        open_events: returns the interface to the device's events, or ``None`` while the training
            uses no device; the default returns that of CUDA.
        pool_size: maximum number of pending events. While that many events are pending, the end of
            new work is the time when it was queued.
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
        self._pending: deque[tuple[WorkEnd, Event]] = deque()
        self._anchors: deque[_EventAnchor] = deque()
        self.marked = 0
        self.host_marks = 0

    @property
    def device_uuid(self) -> str | None:
        """UUID of the device, as in ``Events``; ``None`` while the training uses no device."""
        return self._events.uuid if self._events else None

    def mark(self, queued_s: float) -> WorkEnd:
        """Record an event after the work queued so far, and return an object for its end.

        ``settle`` sets ``end_s`` of this object later; if no event can be recorded, it is set at
        once. The call takes a few microseconds.

        Args:
            queued_s: host time when all of the work had been queued.
        """
        # The usual path calls no helper functions, because calls are slow while the CPU's caches
        # are cold.
        self.marked += 1
        end = WorkEnd(queued_s)
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
        """Determine the ends of work that has ended, without waiting for work that still runs."""
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
        """Create events until at least as many are free as are pending, so that ``mark`` is fast.

        At least ``_LEAST_SPARE`` events are made free. At most ``pool_size`` are created in total.
        """
        wanted = max(_LEAST_SPARE, len(self._pending)) - len(self._free)
        for _ in range(wanted):
            event = self._created(events)
            if event is None:
                return
            self._free.append(event)

    def _bound(self, end: WorkEnd, anchor: _EventAnchor, elapsed_s: float) -> None:
        seen_s = self._clock.monotonic_s()
        slack_s = _DRIFT * abs(elapsed_s) + _RESOLUTION_S
        low_s = max(anchor.low_s + elapsed_s - slack_s, end.queued_s)
        high_s = min(anchor.high_s + elapsed_s + slack_s, seen_s)
        if low_s > high_s:  # the machine was suspended, or a clock jumped
            low_s, high_s = end.queued_s, seen_s
        end.error_s = (high_s - low_s) / 2.0
        # ``end_s`` is set last, so that a thread that finds it set can also read ``error_s``.
        end.end_s = (low_s + high_s) / 2.0

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
        """Determine the ends of work that has ended, and release all events.

        For work that still runs, the end is the time when it was queued.
        """
        self.settle()
        self._give_up()
        events = self._events
        if events is None:
            return
        # If the context is lost, the events are gone with it.
        with suppress(SourceLost), events.attached():
            for event in (*_drained(self._free), *(a.event for a in _drained(self._anchors))):
                events.destroy(event)
            events.close()

    def _give_up(self) -> None:
        self._is_over = True
        for end, event in _drained(self._pending):
            self._keep_host_mark(end)
            self._free.append(event)

    def _keep_host_mark(self, end: WorkEnd) -> None:
        self.host_marks += 1
        end.end_s = end.queued_s


def _drained(queue: "deque[Item]") -> Iterator[Item]:
    """Remove and yield all items, including those that another thread adds meanwhile."""
    with suppress(IndexError):
        while True:
            yield queue.popleft()

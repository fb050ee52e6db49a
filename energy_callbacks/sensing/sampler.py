"""Reads each source on its own thread, at its own interval, and counts failed readings.

Errors of sources are not raised. A failed reading is left out of the timeline, and the first failed
reading of each source causes a ``Notice``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from energy_callbacks.core.errors import SourceError, SourceLost, SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.clock import Clock, Periodic
from energy_callbacks.sensing.schedule import until_quick_reading_s
from energy_callbacks.sensing.sources.protocol import (
    DiscoveredSources,
    FindingSource,
    FinishingSource,
    PromptSource,
    QuickSource,
    RemarkingSource,
    Source,
)
from energy_callbacks.sensing.timeline import Timeline

# Maximum number of seconds from the start of a failed reading to the start of the next reading,
# unless the interval of the source is longer.
_LONGEST_BACK_OFF_S = 10.0

# Interval between two tries to open a lost source again, s. The source is read again at most this
# time after its sensor is back. A try costs a few calls of the driver.
_REOPEN_S = 1.0

NoticeKind = Literal["opened", "unavailable", "missed", "lost", "back", "remark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An event of a source.

    Attributes:
        source: name of the source.
        kind: ``opened``: the source was opened; ``unavailable``: it cannot be opened; ``missed``:
            a reading failed for the first time; ``lost``: the sensor is gone; ``back``: a lost
            source was opened again; ``remark``: the source has corrected faults of its sensor.
        t_s: monotonic time of the event.
        message: description of the event for the user; empty for ``opened``.
        fix: what the user can do about it; may be empty.
        channels: channels that the source offers; empty before it has been opened.
    """

    source: str
    kind: NoticeKind
    t_s: float
    message: str = ""
    fix: str = ""
    channels: tuple[Channel, ...] = ()


@dataclass(slots=True)
class _Worker:
    """A source, its periodic job, and its state.

    Attributes:
        source: the source.
        quick_interval_s: seconds between readings after a change of phase; ``None`` if the source
            is not a ``QuickSource``.
        finding: ``source`` if it is a ``FindingSource``, otherwise ``None``.
        since_s: monotonic time from which the energy of the source counts.
        periodic: the job that reads the source; set when the job starts.
        is_open: whether the source is open; ``False`` while it is lost.
        was_opened: whether ``open`` of the source has succeeded.
        channels: channels that the source offers; empty before it has been opened.
        is_over: whether the source is not read any more.
        missed: number of failed readings.
        missed_in_a_row: number of failed readings since the last successful reading.
        is_last_turn: whether the next call of the job is the last one.
        is_asked: whether the next call of the job is to return the newest values.
        has_arrived: whether ``Timeline.arrived`` was called for the source.
        started_s: monotonic time at which the present call of the job started; ``None`` between
            calls.
    """

    source: Source
    quick_interval_s: float | None = None
    finding: FindingSource | None = None
    since_s: float = -math.inf
    periodic: Periodic = field(init=False)
    is_open: bool = False
    was_opened: bool = False
    channels: tuple[Channel, ...] = ()
    is_over: bool = False
    missed: int = 0
    missed_in_a_row: int = 0
    is_last_turn: bool = False
    is_asked: bool = False
    has_arrived: bool = False
    started_s: float | None = None


class Sampler:
    """Reads sources into a timeline until ``ask_to_stop`` or ``stop`` is called.

    Args:
        sources: sources to read. Each source is opened on its own thread, because opening may take
            seconds.
        timeline: receives the readings.
        clock: clock that tells the time and runs the threads.
        on_notice: called with every notice about a source, on the source's thread.
        on_readings: called with the readings of each call of a source, on the source's thread;
            ``None`` if only the timeline needs them.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        timeline: Timeline,
        clock: Clock,
        on_notice: Callable[[Notice], None],
        on_readings: Callable[[Sequence[Reading]], None] | None = None,
    ) -> None:
        self._workers = [_worker(source) for source in sources]
        self._is_stopping = False
        self._timeline = timeline
        self._clock = clock
        self._on_notice = on_notice
        self._on_readings = on_readings

    def start(self) -> None:
        """Start one thread for every source, which opens the source and reads it."""
        self._timeline.expect(len(self._workers))
        for worker in tuple(self._workers):
            self._start(worker)

    def _start(self, worker: _Worker) -> None:
        worker.periodic = self._clock.every(
            worker.source.interval_s,
            lambda: self._run(worker),
            name=f"energy_callbacks {worker.source.name}",
        )

    def _add(self, found: DiscoveredSources) -> None:
        """Begin to read sources that a ``FindingSource`` has found."""
        for name, reason, fix in found.unavailable:
            now_s = self._clock.monotonic_s()
            notice = Notice(source=name, kind="unavailable", t_s=now_s, message=reason, fix=fix)
            self._on_notice(notice)
        self._timeline.expect(len(found.sources))
        for source in found.sources:
            worker = _worker(source, found.since_s)
            self._start(worker)
            self._workers.append(worker)
            if self._is_stopping:
                self._ask_to_stop(worker)

    def ask(self) -> None:
        """Make the threads of power and energy read their newest values now; do not wait for that.

        Sources of means are left out: a mean over a very short time is inaccurate.
        """
        for worker in self._workers:
            if any(c.quantity in ("power", "energy") and c.kind != "mean" for c in worker.channels):
                worker.is_asked = True
                worker.periodic.run_soon()

    def ask_to_stop(self) -> None:
        """Make every thread read its source once more and close it; do not wait for that."""
        self._is_stopping = True
        for worker in self._workers:
            self._ask_to_stop(worker)

    def _ask_to_stop(self, worker: _Worker) -> None:
        worker.is_last_turn = True
        worker.periodic.ask_to_stop()

    def stop(self, timeout_s: float) -> tuple[str, ...]:
        """Read every source once more, on its own thread, and close it.

        Args:
            timeout_s: maximum time to wait for all sources together, s.

        Returns:
            The names of the sources whose threads did not end in time.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        self.ask_to_stop()
        # A source may be found and appended while another one is waited for.
        return tuple(
            worker.source.name
            for worker in self._workers
            if not worker.periodic.wait(max(deadline_s - self._clock.monotonic_s(), 0.0))
        )

    def hung_s(self, limit_s: float) -> dict[str, float]:
        """Return the duration so far, s, of running calls longer than ``limit_s``, by source."""
        now_s = self._clock.monotonic_s()
        # Each ``started_s`` is read once, because the source's thread may reset it at any time.
        started_s = [(worker.source.name, worker.started_s) for worker in self._workers]
        passed_s = [(name, now_s - t_s) for name, t_s in started_s if t_s is not None]
        return {name: call_s for name, call_s in passed_s if call_s > limit_s}

    @property
    def missed(self) -> dict[str, int]:
        """Number of failed readings by name of the source; sources without any are left out."""
        return {w.source.name: w.missed for w in self._workers if w.missed}

    @property
    def cpu_s(self) -> float:
        """Processor time of all threads that have ended, s."""
        return sum(worker.periodic.cpu_s for worker in self._workers)

    def _run(self, worker: _Worker) -> float:
        """Read a source, and return the seconds from this reading to the next one.

        The time is longer after a failed reading.
        """
        if worker.is_over:
            return _LONGEST_BACK_OFF_S
        # Copied, because ``ask_to_stop`` may set it during this reading: then the next reading is
        # the last.
        is_last = worker.is_last_turn
        worker.started_s = self._clock.monotonic_s()
        try:
            return self._turn(worker, is_last=is_last)
        finally:
            if is_last:
                self._close(worker)
            if (worker.is_open or worker.is_over) and not worker.has_arrived:
                worker.has_arrived = True
                self._timeline.arrived()
            worker.started_s = None

    def _turn(self, worker: _Worker, *, is_last: bool) -> float:
        try:
            if not worker.is_open:
                self._open(worker)
            self._read(worker, is_last=is_last)
        except SourceUnavailable as error:
            if worker.was_opened:
                return _REOPEN_S  # still lost
            self._end(worker, "unavailable", error.reason, error.fix)
        except SourceLost as error:
            self._lose(worker, error)
            return _REOPEN_S
        except BaseException as error:  # noqa: BLE001 - a bug in a source must never end a training
            return self._note_miss(worker, error)
        else:
            worker.missed_in_a_row = 0
            return self._interval_s(worker)
        return worker.source.interval_s

    def _open(self, worker: _Worker) -> None:
        """Open a source for the first time, or after it was lost."""
        channels = tuple(worker.source.open())
        worker.is_open = True
        if worker.was_opened:
            self._timeline.mark((channel.device.key for channel in worker.channels), is_lost=False)
            self._notify(worker, "back", "it answers again; it was not read in the meantime")
            return
        worker.channels = channels
        self._timeline.register(channels, worker.since_s)
        worker.was_opened = True
        self._notify(worker, "opened")

    def _read(self, worker: _Worker, *, is_last: bool) -> None:
        readings = self._readings(worker, is_last=is_last)
        if self._on_readings is not None:
            self._on_readings(readings)
        self._timeline.extend(readings)
        if worker.finding is not None:
            self._add(worker.finding.found())

    def _readings(self, worker: _Worker, *, is_last: bool) -> Sequence[Reading]:
        source, is_asked, worker.is_asked = worker.source, worker.is_asked, False
        if is_last and isinstance(source, FinishingSource):
            return source.finish()
        return source.read_now() if is_asked and isinstance(source, PromptSource) else source.read()

    def _lose(self, worker: _Worker, error: SourceLost) -> None:
        """Close a lost source; the next calls of ``_turn`` try to open it again."""
        self._timeline.mark((channel.device.key for channel in worker.channels), is_lost=True)
        self._notify(worker, "lost", str(error))
        worker.is_open = False
        self._close_source(worker)

    def _interval_s(self, worker: _Worker) -> float:
        """Return the seconds from the present reading to the next one, if no reading failed."""
        interval_s: float = worker.source.interval_s
        if worker.quick_interval_s is None or worker.started_s is None:
            return interval_s
        changed_s = self._timeline.newest_pin_s
        quick_s = until_quick_reading_s(worker.started_s, worker.quick_interval_s, changed_s)
        return min(interval_s, quick_s)

    def _note_miss(self, worker: _Worker, error: BaseException) -> float:
        if not worker.was_opened and not isinstance(error, SourceError):
            self._end(worker, "unavailable", f"{type(error).__name__}: {error}")
            return _LONGEST_BACK_OFF_S
        worker.missed += 1
        worker.missed_in_a_row += 1
        if worker.missed == 1:
            self._notify(worker, "missed", f"{type(error).__name__}: {error}")
        back_off_s: float = worker.source.interval_s * 2.0 ** min(worker.missed_in_a_row, 6)
        return min(back_off_s, max(_LONGEST_BACK_OFF_S, worker.source.interval_s))

    def _end(self, worker: _Worker, kind: NoticeKind, reason: str, fix: str = "") -> None:
        self._notify(worker, kind, reason, fix)
        self._close(worker)

    def _close(self, worker: _Worker) -> None:
        worker.is_over = True
        self._close_source(worker)

    def _close_source(self, worker: _Worker) -> None:
        try:
            if isinstance(worker.source, RemarkingSource):
                for remark in worker.source.remarks():
                    self._notify(worker, "remark", remark)
            worker.source.close()
        except BaseException as error:  # noqa: BLE001 - see _turn
            logger.debug("closing %s failed: %s", worker.source.name, error)

    def _notify(self, worker: _Worker, kind: NoticeKind, message: str = "", fix: str = "") -> None:
        self._on_notice(
            Notice(
                source=worker.source.name,
                kind=kind,
                t_s=self._clock.monotonic_s(),
                message=message,
                fix=fix,
                channels=worker.channels,
            )
        )


def _worker(source: Source, since_s: float = -math.inf) -> _Worker:
    quick_interval_s = source.quick_interval_s if isinstance(source, QuickSource) else None
    finding = source if isinstance(source, FindingSource) else None
    return _Worker(source, quick_interval_s, finding, since_s)

"""Writes events and energies to the journal of an attempt.

The training thread only puts events into queues. ``JournalRecorder.update`` runs periodically on
the journal's thread. It writes the queued lines, and those of ``MeasuredLines`` for which all
sensors have readings.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import JournalWriter, Record
from energy_callbacks.accounting.measured_lines import MeasuredLines
from energy_callbacks.accounting.metrics.phase_energy import PhaseEnergy
from energy_callbacks.accounting.metrics.step_counts import StepLog
from energy_callbacks.accounting.phases import PhaseSpan, PhaseStack, joined, without
from energy_callbacks.core import formatting
from energy_callbacks.core.records import Channel, Device, Energy
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sampler import Notice
from energy_callbacks.sensing.timeline import Timeline

if TYPE_CHECKING:
    from energy_callbacks.accounting.device_edges import DeviceEdges
    from energy_callbacks.sensing.frameworks.work_ends import WorkEnds

# Number of seconds for which ``settled_s`` and ``seen_s`` wait for a device without readings. Lines
# with energies may wait longer, see ``Timeline.complete_s``.
_PATIENCE_S = 6.0
# A window that ended less than this time ago ends now, s.
_NOW_S = 0.001
# Number of spans and windows that ``trained`` knows; older ones are forgotten.
_MOST_SPANS = 10_000
# Highest share of steps whose ends no CUDA event has measured; if it is higher, a warning is
# written. A few such steps are normal: the last steps may still run on the device when the training
# ends.
_FEW_HOST_MARKS = 0.05

# Relative change of the mean period of the steps above which the timeline receives the new period.
# ``sensing.estimation.beats`` assumes a standard error of 0.5 %.
_PERIOD_CHANGE = 0.01


class JournalRecorder:
    """Writes the journal of one attempt.

    Args:
        timeline: provides readings and energies.
        writer: writes lines to the journal.
        clock: tells the time.
        start_s: monotonic time of the attempt's start; times in the journal are relative to this.
        ends: measures the ends of steps with CUDA events; ``None`` to use the times at which the
            steps were queued.
        device_edges: measures with CUDA events when the GPU reaches a phase; ``None`` to estimate
            it.

    Attributes:
        phases: stack of phases.
        steps: log of the optimizer steps.
        settled_s: monotonic time up to which no later reading will change the energy.
        seen_s: monotonic time up to which readings have arrived and steps are counted.
    """

    def __init__(
        self,
        timeline: Timeline,
        writer: JournalWriter,
        clock: Clock,
        start_s: float,
        *,
        ends: "WorkEnds | None" = None,
        device_edges: "DeviceEdges | None" = None,
    ) -> None:
        self.phases = PhaseStack(start_s)
        self.steps = StepLog(start_s, ends)
        self._measured = MeasuredLines(timeline, self.steps, writer, start_s)
        self._device_edges = device_edges
        self._by_phase = PhaseEnergy(timeline, device_edges)
        self.timeline = timeline
        self._writer = writer
        self._clock = clock
        self.start_s = start_s
        self._closed: deque[PhaseSpan] = deque()
        self._named: deque[PhaseSpan] = deque()
        self._new_windows: deque[PhaseSpan] = deque()
        self._lines: deque[Record | Callable[[], Record | None]] = deque()
        self._period_s = 0.0
        self.is_asked = False
        self._trained: list[PhaseSpan] = []
        self._renamed: deque[PhaseSpan] = deque(maxlen=_MOST_SPANS)
        self.settled_s = self.seen_s = start_s
        self._end_s: float | None = None
        timeline.pin(start_s)

    # The methods up to the next comment of this kind may run on the training thread. They use no
    # file, no sensor and no lock: a signal handler that runs on the training thread in the middle
    # of one of them may call any of them.

    def enter(self, name: str, t_s: float) -> None:
        """Begin a phase at the monotonic time ``t_s``."""
        self.phases.enter(name, t_s)
        self._note_change(t_s)

    def leave(self, name: str, t_s: float) -> None:
        """End a phase and all phases above it at ``t_s``; ignore a phase not in the stack."""
        if self.phases.leave(name, t_s):
            self._note_change(t_s)

    def release(self, call: object, t_s: float) -> bool:
        """End the phases of a framework's call at ``t_s``; see ``PhaseStack.release``."""
        is_released = self.phases.release(call, t_s)
        if is_released:
            self._note_change(t_s)
        return is_released

    def leave_all(self, t_s: float) -> None:
        """End all phases at ``t_s``; the process is then in phase ``idle``."""
        self.phases.leave_all(t_s)
        self._note_change(t_s)

    def _note_change(self, t_s: float) -> None:
        self.steps.pause()
        self.timeline.pin(t_s)
        self.mark_edge(t_s)
        self.event("phase", t_s, phase=self.phases.name)

    def mark_edge(self, t_s: float) -> None:
        """Measure when the GPU reaches the work that is queued from now, ``t_s``, on.

        Called at each change of phase. A window that is reported later should begin at ``t_s``.
        """
        if self._device_edges is not None:
            self._device_edges.mark(t_s)

    def window(self, name: str, start_s: float, end_s: float) -> None:
        """Assign a past span of time to the phase ``name``, and queue the span for the journal."""
        self.timeline.pin(start_s)
        self.timeline.pin(end_s)
        if self._clock.monotonic_s() - end_s < _NOW_S:
            self.mark_edge(end_s)
        span = PhaseSpan(name=name, start_s=start_s, end_s=end_s)
        self._new_windows.append(span)
        if name != "train":
            self._renamed.append(span)

    def event(self, kind: str, t_s: float, **values: Any) -> None:
        """Queue an ``event`` line."""
        self._lines.append(self.event_line(kind, t_s, **values))

    def event_line(self, kind: str, t_s: float, **values: Any) -> Record:
        """Return an ``event`` line."""
        return {"type": "event", "kind": kind, "t_s": t_s - self.start_s, **values}

    def queue(self, line: Callable[[], Record | None]) -> None:
        """Queue a line that the journal's thread will compute; ``None`` is left out."""
        self._lines.append(line)

    def warn(self, code: str, message: str, fix: str = "") -> None:
        """Queue a ``warning`` line for the report; ``fix`` is advice for the user."""
        self._queue("warning", self._clock.monotonic_s(), code=code, message=message, fix=fix)

    def note(self, notice: Notice) -> None:
        """Queue the lines that describe a notice of the sampler about a source."""
        source, message = notice.source, notice.message
        if notice.kind == "opened":
            by_device = {channel.device.key: channel.device for channel in notice.channels}
            for key, device in by_device.items():
                offered = [c for c in notice.channels if c.device.key == key]
                self._lines.append(self._device_record(device, offered))
        elif notice.kind == "unavailable":
            self._queue("unavailable", notice.t_s, source=source, reason=message, fix=notice.fix)
        elif notice.kind == "remark":
            self._queue("remark", notice.t_s, source=source, message=message)
        else:
            self.warn(f"source_{notice.kind}", f"{source}: {message}")

    def _device_record(self, device: Device, channels: Sequence[Channel]) -> Record:
        used_s = self.timeline.used_since_s(device.key) - self.start_s
        if used_s <= 0.0:
            return journal.device_record(device, channels)
        since = formatting.duration(used_s)
        note = f"in use since {since} after the start; its energy before that is not counted"
        device = replace(device, notes=(*device.notes, note))
        return journal.device_record(device, channels, used_s)

    def _queue(self, type_: str, t_s: float, **values: Any) -> None:
        self._lines.append({"type": type_, "t_s": t_s - self.start_s, **values})

    # The methods from here on run on the journal's thread, except ``trained``, which may run on any
    # thread.

    def update(self, *, is_final: bool = False) -> None:
        """Write the queued lines, and the energies and steps for which all readings have arrived.

        Args:
            is_final: whether to write everything without waiting for further readings.
        """
        now_s = self._clock.monotonic_s() if self._end_s is None else self._end_s
        self._take_changes()
        settled_s = self.timeline.settled_s(now_s, _PATIENCE_S)
        seen_s = self.timeline.seen_s(now_s, _PATIENCE_S)
        self.settled_s = now_s if is_final else self._later(self.settled_s, settled_s, now_s)
        self.seen_s = now_s if is_final else self._later(self.seen_s, seen_s, now_s)
        complete_s = now_s if is_final else self.timeline.complete_s(now_s) or self.settled_s
        final_s = min(self.settled_s, complete_s)
        self._write_queued()
        self._measured.write_spans(self._closed, final_s, "span", "phase")
        has_windows = self._measured.write_spans(self._named, final_s, "window", "name")
        self._measured.write_steps(self.seen_s, is_final=is_final)
        self._note_period()
        until_s = now_s if self._end_s is None else math.inf  # the last readings are after the end
        self._measured.write_series(now_s, until_s)
        self._writer.flush()  # before all that may take long while the training runs Python code
        if self._device_edges is not None:
            self._device_edges.settle()
        self._by_phase.update(final_s, is_final=is_final)
        is_asked = self.is_asked
        self._measured.write_so_far(now_s, final_s, is_due=has_windows or is_asked)
        if is_asked and not is_final:
            self._write_phases(self._measured.so_far_s, self._by_phase.energies_until)
        self._writer.flush()
        self.is_asked = self.is_asked and not is_asked

    def see_until(self, t_s: float) -> None:
        """End the attempt at ``t_s``, and count the steps until then; no time passes afterwards."""
        self._end_s = t_s
        self.seen_s = max(self.seen_s, t_s)
        self.steps.advance(self.seen_s)

    def finish(
        self, status: str, error: str | None, *, end_s: float | None = None, **values: Any
    ) -> None:
        """End the current span, write all queued lines and the totals, and close the journal.

        Args:
            status: ``finished``, ``failed`` or ``interrupted``.
            error: why the training ended early; ``None`` if it finished.
            end_s: monotonic time of the end; ``None`` is now. If CUDA events show that the device
                finished the last step later, the attempt ends when the device did.
            values: further fields of the ``totals`` line.
        """
        self.steps.close()
        if self._device_edges is not None:
            self._device_edges.close()
        end_s = self._clock.monotonic_s() if end_s is None else end_s
        now_s = self._end_s = max(end_s, self.steps.advance(math.inf).t_s)
        self.phases.end(now_s)
        self._note_change(now_s)
        for key, count in self.timeline.disagreements().items():
            has_power = any(one.quantity == "power" for one in self.timeline.channels(key))
            self.warn(
                "counter_disagrees",
                f"{key}: the energy counter and the power readings disagree in {count} intervals. "
                "The power readings are used there."
                if has_power
                else f"{key}: the energy counter was reset, or rose impossibly fast, in {count} "
                "intervals. The energy of these intervals is not known.",
            )
        for key, count in self.timeline.impossible().items():
            self.warn(
                "impossible_power",
                f"{key}: {count} power readings are not used, because no device of this kind "
                "can draw as much power.",
            )
        self._warn_of_host_marks()
        self.update(is_final=True)
        if self._writer.lost:
            self.warn(
                "journal_incomplete",
                f"{self._writer.lost} lines of the journal could not be written "
                f"({self._writer.last_error}). Steps, phases and curves are incomplete.",
            )
            self._write_queued()
        self._write_phases(now_s, lambda _: self._by_phase.energies())
        self._by_phase.give_up()  # the meter keeps this object; the sums take 0.2 MB for each phase
        self._measured.write_totals(now_s, status, error, **values)
        self._writer.close()

    def _write_queued(self) -> None:
        while self._lines:
            queued = self._lines.popleft()
            if (line := queued() if callable(queued) else queued) is not None:
                self._writer.write(line)

    def _warn_of_host_marks(self) -> None:
        host_marks, steps = self.steps.host_marks
        if host_marks > _FEW_HOST_MARKS * steps:
            self.warn(
                "step_events",
                f"The end of {steps - host_marks} of {steps} steps was timed with CUDA events. "
                "All other steps end when Python has queued their work. (Events need PyTorch on "
                "an NVIDIA GPU, and do not work during a graph capture.)",
            )

    def _later(self, before_s: float, reached_s: float | None, now_s: float) -> float:
        if reached_s is None:
            return now_s if now_s - self.start_s > _PATIENCE_S else before_s
        return max(reached_s, before_s)

    def _take_changes(self) -> None:
        """Take the changes of phase and the windows that the training thread has queued."""
        # Windows are taken first: the spans that a window overlaps were queued before it, except
        # the last of them.
        windows = [self._new_windows.popleft() for _ in range(len(self._new_windows))]
        for span in self.phases.take():
            self._closed.append(span)
            self._by_phase.add(span)
            if span.name == "train":
                self._keep_trained(span)
        self._by_phase.begin(*self.phases.open)
        for window in windows:
            self._by_phase.rename(window)
        self._named.extend(windows)

    def _keep_trained(self, span: PhaseSpan) -> None:
        # ``trained`` may read the list on another thread, so it is replaced, not shortened.
        if len(self._trained) >= _MOST_SPANS:
            self._trained = self._trained[_MOST_SPANS // 2 :]
        self._trained.append(span)

    def _write_phases(
        self, end_s: float, found: Callable[[float], dict[str, dict[str, Energy]]]
    ) -> None:
        """Write the ``phases`` line; a warning if the fit fails, because totals must be written.

        Args:
            end_s: time up to which energies are final.
            found: returns the energies of the phases up to this time.
        """
        try:
            phases = found(end_s)
        except (ArithmeticError, ValueError) as error:  # includes those of linear algebra
            self.warn(
                "phases",
                f"The fit that estimates the energies of phases failed ({error}). The report "
                "adds up the measured spans of each phase instead.",
            )
            self._write_queued()
            return
        if phases:
            line = {key: journal.energies_as_json(by_name) for key, by_name in phases.items()}
            self._writer.write({"type": "phases", "t_s": end_s - self.start_s, "energy": line})

    def _note_period(self) -> None:
        period_s = self.steps.period_s
        if period_s and abs(period_s - self._period_s) > _PERIOD_CHANGE * self._period_s:
            self._period_s = period_s
            self.timeline.note_period(period_s)

    def trained(self, start_s: float, end_s: float) -> tuple[PhaseSpan, ...]:
        """Return the parts of the time from ``start_s`` to ``end_s`` in phase ``train``.

        Parts that ``window`` has assigned to another phase are left out. Parts that share an edge
        are returned as one.
        """
        name, begin_s = self.phases.open  # read first, see ``PhaseStack.take``
        newest = takewhile(lambda span: span.end_s > start_s, reversed(self._trained))
        spans = [span for span in newest if span.end_s <= begin_s][::-1]
        if name == "train":
            spans.append(PhaseSpan(name="train", start_s=begin_s, end_s=end_s))
        # Copied in one operation, because the training thread may append to it.
        renamed = [s for s in list(self._renamed) if s.end_s > start_s and s.start_s < end_s]
        inside = (
            PhaseSpan(name="train", start_s=max(s.start_s, start_s), end_s=min(s.end_s, end_s))
            for s in spans
        )
        return without(joined(span for span in inside if span.end_s > span.start_s), renamed)

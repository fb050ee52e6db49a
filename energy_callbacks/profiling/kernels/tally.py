"""Sums of a window's trace: time by kernel, by part of the step, and idle time by cause.

Whole steps are counted: the frame reaches from the first work of the first step on the device to
the first work of the last one, so that n recorded steps give n - 1 periods, and neither the
profiler's own start nor the synchronisation at its end is in it. If no accelerator worked, the
operators of the host take the place of kernels, and the frame is the steps themselves.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from energy_callbacks.core.units import seconds_from_microseconds
from energy_callbacks.profiling.kernels.classes import class_of, is_cudnn
from energy_callbacks.profiling.kernels.traces.kineto import Event, Trace, innermost, is_inside
from energy_callbacks.profiling.kernels.traces.spans import (
    EMPTY,
    Spans,
    clipped,
    gaps,
    holds,
    length,
    overlaps,
    shared_out,
    spans,
    union,
)

Part = str
PARTS: Final = ("forward", "backward", "optimizer")
CAUSES: Final = ("input", "launch", "host", "device")
"""Why a device was idle: a batch was fetched; operators were being launched; the host did anything
else; or the work was queued already, and the device itself took its time."""
# Python between two operators of one layer: this much still counts as launching.
_BETWEEN_OPERATORS_US: Final = 100.0


@dataclass(slots=True)
class KernelTally:
    """Sums over windows; times in seconds, of all devices together.

    Attributes:
        has_device: whether kernels of an accelerator were seen, not operators of the host.
        devices: how many accelerators (or one host).
        steps: whole steps.
        frame_s: time of these, times ``devices``.
        time_s: by kernel; what runs at once shares its time.
        calls: by kernel.
        class_of: by kernel.
        parts_s: by part of the step, of ``time_s``.
        idle_s: by cause.
        cudnn_s: of cuDNN.
        copy_s: of copies to and from the host.
        hidden_copy_s: of that, while kernels ran.
    """

    has_device: bool = False
    devices: int = 1
    steps: int = 0
    frame_s: float = 0.0
    time_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    calls: "Counter[str]" = field(default_factory=Counter)
    class_of: dict[str, str] = field(default_factory=dict)
    parts_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    idle_s: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cudnn_s: float = 0.0
    copy_s: float = 0.0
    hidden_copy_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """Time in which anything ran."""
        return sum(self.time_s.values())

    def add(self, other: "KernelTally") -> None:
        """Another window."""
        self.has_device |= other.has_device
        self.devices = max(self.devices, other.devices)
        self.class_of |= other.class_of
        self.calls.update(other.calls)
        for name in ("time_s", "parts_s", "idle_s"):
            for key, time_s in getattr(other, name).items():
                getattr(self, name)[key] += time_s
        for name in ("steps", "frame_s", "cudnn_s", "copy_s", "hidden_copy_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class _Work:
    """Something a device did."""

    name: str
    start_us: float
    end_us: float
    part: Part
    is_kernel: bool
    is_cudnn: bool
    is_call: bool = True
    launched_us: float | None = None


def tally(trace: Trace, waits: Spans = EMPTY) -> KernelTally:
    """The sums of one window.

    Args:
        trace: of it.
        waits: for data, as the training loop reported them, on the trace's axis in us.
    """
    data = union(np.concatenate([trace.data, waits]))
    found = KernelTally(has_device=trace.has_device)
    if len(trace.steps) == 0:
        return found
    by_device = _on_devices(trace) if trace.has_device else {0: list(_on_host(trace, data))}
    found.devices = len(by_device)
    for work in by_device.values():
        start_us, end_us, steps = _frame(trace, work)
        found.steps = max(found.steps, steps)
        if steps:
            inside = _count(found, work, start_us, end_us)
            for cause, idle_us in _idle(trace, work, gaps(inside, start_us, end_us), data):
                found.idle_s[cause] += seconds_from_microseconds(idle_us)
    return found


def _on_devices(trace: Trace) -> dict[int, list[_Work]]:
    found: dict[int, list[_Work]] = {}
    for event in trace.on_device:
        found.setdefault(event.device, []).append(_of_device(trace, event))
    return found


def _of_device(trace: Trace, event: Event) -> _Work:
    launch = None if event.correlation is None else trace.launches.get(event.correlation)
    thread, launched_us = launch or (None, None)
    at_us = event.start_us if launched_us is None else launched_us
    return _Work(
        name=event.name,
        start_us=event.start_us,
        end_us=event.end_us,
        part=_part(trace, thread, at_us),
        is_kernel=event.category == "kernel",
        is_cudnn=is_cudnn(event.name) or is_inside(trace.cudnn, thread, at_us),
        launched_us=launched_us,
    )


def _on_host(trace: Trace, data: Spans) -> Iterator[_Work]:
    """Operators that are not the loader's."""
    for event, start_us, end_us, is_call in innermost(trace.operators):
        if not holds(data, np.array([start_us]))[0]:
            yield _Work(
                name=event.name,
                start_us=start_us,
                end_us=end_us,
                part=_part(trace, event.thread, start_us),
                is_kernel=True,
                is_cudnn=False,
                is_call=is_call,
            )


def _part(trace: Trace, thread: object, at_us: float) -> Part:
    if is_inside(trace.optimizer, thread, at_us):
        return "optimizer"
    return "backward" if is_inside(trace.backward, thread, at_us) else "forward"


def _frame(trace: Trace, work: Sequence[_Work]) -> tuple[float, float, int]:
    """Start, end and whole steps."""
    first_us, last_us = trace.steps[0, 0], trace.steps[-1, 1]
    if not trace.has_device:
        return float(first_us), float(last_us), len(trace.steps)
    launched = sorted((w.launched_us, w.start_us) for w in work if w.launched_us is not None)
    asked = np.array([asked_us for asked_us, _ in launched])
    begins = []
    for start_us, end_us in trace.steps:
        low, high = np.searchsorted(asked, [start_us, end_us])
        if high > low:
            begins.append(min(began_us for _, began_us in launched[low:high]))
    if len(begins) < 2:
        return 0.0, 0.0, 0
    return begins[0], begins[-1], len(begins) - 1


def _count(found: KernelTally, work: Sequence[_Work], start_us: float, end_us: float) -> Spans:
    """Add what a device did; returns when it did anything."""
    inside = [one for one in work if one.end_us > start_us and one.start_us < end_us]
    all_spans = np.clip(spans((w.start_us, w.end_us) for w in inside), start_us, end_us)
    for one, time_us in zip(inside, shared_out(all_spans), strict=True):
        time_s = seconds_from_microseconds(float(time_us))
        found.time_s[one.name] += time_s
        found.parts_s[one.part] += time_s
        found.cudnn_s += time_s * one.is_cudnn
        found.calls[one.name] += one.is_call and one.start_us >= start_us
        found.class_of.setdefault(one.name, class_of(one.name))
    found.frame_s += seconds_from_microseconds(end_us - start_us)
    _count_copies(found, inside, start_us, end_us)
    return union(all_spans)


def _idle(
    trace: Trace, work: Sequence[_Work], idle: Spans, data: Spans
) -> Iterator[tuple[str, float]]:
    """Idle time by cause."""
    if not trace.has_device:
        waited_us = float(overlaps(idle, data).sum())
        yield from (("input", waited_us), ("host", length(idle) - waited_us))
        return
    queued = {w.start_us: w.launched_us for w in reversed(work) if w.launched_us is not None}
    was_queued = np.array([queued.get(end, np.inf) <= start for start, end in idle], dtype=bool)
    yield "device", length(idle[was_queued])
    late = idle[~was_queued]
    waited_us = float(overlaps(late, data).sum())
    launching = union(np.concatenate([union(trace.host, _BETWEEN_OPERATORS_US), data]))
    launching_us = float(overlaps(late, launching).sum()) - waited_us
    yield from (("input", waited_us), ("launch", launching_us))
    yield "host", length(late) - waited_us - launching_us


def _count_copies(
    found: KernelTally, work: Sequence[_Work], start_us: float, end_us: float
) -> None:
    """Copies between host and device, and how much of them kernels hide."""
    names = ("HtoD", "DtoH", "Host", "H2D", "D2H")
    copies = spans(
        (w.start_us, w.end_us) for w in work if not w.is_kernel and any(n in w.name for n in names)
    )
    kernels = union(spans((w.start_us, w.end_us) for w in work if w.is_kernel))
    inside = clipped(copies, start_us, end_us)
    found.copy_s += seconds_from_microseconds(length(inside))
    found.hidden_copy_s += seconds_from_microseconds(float(overlaps(inside, kernels).sum()))

"""Sums up traces: time by kernel and by part of the step, idle time by cause, energy by kernel.

Only whole steps are counted. The counted part of a window is called its frame. It begins when the
device starts the first work that was launched in the first recorded step. It ends when the device
starts the first work that was launched in the last recorded step. Thus n recorded steps give n - 1
whole steps, and the frame contains neither the start of the profiler nor its final synchronisation.
If no accelerator worked, the operators of the host are counted instead of kernels, and the frame
contains all recorded steps.

The measured energy of a step is attributed to kernels by their share of the device's time. The
power of a single kernel cannot be measured, so each kernel, and idle time too, is assumed to draw
the mean power of the device. In reality, idle time draws less power, and matrix products draw more.
Idle time has a row of its own, so that all rows add up to the measured energy.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from energy_callbacks.core.units import seconds_from_microseconds
from energy_callbacks.profiling.common import spans
from energy_callbacks.profiling.frameworks.kineto import Event, Trace, innermost, is_inside
from energy_callbacks.profiling.kernels.classes import IDLE, class_of, is_cudnn
from energy_callbacks.report.model.profile_kernels import KernelRow

PARTS: Final = ("forward", "backward", "optimizer")
CAUSES: Final = ("input", "launch", "host", "device")
"""Causes of a device's idle time: the host fetched a batch (``input``), launched operators
(``launch``) or did something else (``host``), or the next work was already queued (``device``)."""
# A gap of at most this length between two operators of the host still counts as launching.
_BETWEEN_OPERATORS_US: Final = 100.0
# Names of copies between host and device.
_HOST_COPY: Final = re.compile("HtoD|DtoH|Host|H2D|D2H")


@dataclass(slots=True, kw_only=True)
class KernelTally:
    """Sums over windows; times are in seconds and summed over all devices.

    For TensorFlow and JAX (see ``xplane.of_table``), ``time_s`` contains the whole duration of each
    kernel, and ``frame_s``, ``parts_s``, ``idle_s`` and the times of copies are unknown (0 or
    empty).

    Attributes:
        has_device: whether an accelerator did any work; if not, "kernels" are host operators.
        devices: number of accelerators; 1 without an accelerator.
        steps: number of whole steps.
        frame_s: duration of these steps, summed over all devices.
        time_s: time by name of the kernel. For PyTorch, time in which several kernels ran is
            divided equally among them.
        calls: number of calls by name of the kernel.
        class_of: class of each kernel by its name.
        parts_s: time by part of the step (``PARTS``); the parts add up to the sum of ``time_s``.
        idle_s: idle time by cause (``CAUSES``).
        cudnn_s: time of cuDNN's kernels.
        copy_s: time of copies between host and device.
        hidden_copy_s: part of ``copy_s`` during which kernels ran.
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
        """Sum of ``time_s``; for PyTorch, time in which at least one kernel or copy ran."""
        return sum(self.time_s.values())

    def add(self, other: "KernelTally") -> None:
        """Add the sums of another window."""
        self.has_device |= other.has_device
        self.devices = max(self.devices, other.devices)
        self.class_of |= other.class_of
        self.calls.update(other.calls)
        for name in ("time_s", "parts_s", "idle_s"):
            for key, time_s in getattr(other, name).items():
                getattr(self, name)[key] += time_s
        for name in ("steps", "frame_s", "cudnn_s", "copy_s", "hidden_copy_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def tally(trace: Trace, waits: spans.Spans = spans.EMPTY) -> KernelTally:
    """Return the sums of one window.

    Args:
        trace: trace of the window.
        waits: start and end of each wait for data, as the training loop reported it, in
            microseconds of the trace's time, (n, 2).
    """
    data = spans.union(np.concatenate([trace.data, waits]))
    sums = KernelTally(has_device=trace.has_device)
    if len(trace.steps) == 0:
        return sums
    devices = _work(trace, data)
    sums.devices = len(devices)
    for work in devices:
        start_us, end_us, steps = _frame(trace, work)
        sums.steps = max(sums.steps, steps)
        if steps:
            busy = _count(sums, trace, work, start_us, end_us)
            for cause, idle_us in _idle(trace, work, spans.gaps(busy, start_us, end_us), data):
                sums.idle_s[cause] += seconds_from_microseconds(idle_us)
    return sums


def _work(trace: Trace, data: spans.Spans) -> list[list[Event]]:
    """Return the kernels and copies of each device.

    Without a device, return one list with the operators of the host, except those that start while
    a batch is fetched.
    """
    if not trace.has_device:
        pieces = innermost(trace.operators)
        return [[one for one in pieces if not spans.holds(data, np.array([one.start_us]))[0]]]
    devices = defaultdict[int, list[Event]](list)
    for event in trace.on_device:
        devices[event.device].append(event)
    return list(devices.values())


def _frame(trace: Trace, work: Sequence[Event]) -> tuple[float, float, int]:
    """Return a device's frame: start and end in microseconds, and the number of whole steps."""
    if not trace.has_device:
        return float(trace.steps[0, 0]), float(trace.steps[-1, 1]), len(trace.steps)
    launches = sorted((w.launched_us, w.start_us) for w in work if w.launched_us is not None)
    launched_us = np.array([launch_us for launch_us, _ in launches])
    starts_us = []
    for step in trace.steps:
        low, high = np.searchsorted(launched_us, step)
        if high > low:
            starts_us.append(min(start_us for _, start_us in launches[low:high]))
    # Work on several streams may start in another order than it was launched in.
    if len(starts_us) < 2 or starts_us[-1] <= starts_us[0]:
        return 0.0, 0.0, 0
    return starts_us[0], starts_us[-1], len(starts_us) - 1


def _count(
    sums: KernelTally, trace: Trace, work: Sequence[Event], start_us: float, end_us: float
) -> spans.Spans:
    """Add the work of a device within the frame to the sums; return the spans of busy time."""
    inside = [one for one in work if one.end_us > start_us and one.start_us < end_us]
    all_spans = np.clip(spans.spans((w.start_us, w.end_us) for w in inside), start_us, end_us)
    for one, time_us in zip(inside, spans.shared_out(all_spans), strict=True):
        time_s = seconds_from_microseconds(float(time_us))
        sums.time_s[one.name] += time_s
        sums.parts_s[_part(trace, one)] += time_s
        if trace.has_device and (is_cudnn(one.name) or is_inside(trace.cudnn, one)):
            sums.cudnn_s += time_s
        sums.calls[one.name] += one.is_first and one.start_us >= start_us
        sums.class_of.setdefault(one.name, class_of(one.name))
    sums.frame_s += seconds_from_microseconds(end_us - start_us)
    is_kernel = np.array([one.category == "kernel" for one in inside], dtype=bool)
    is_copy = np.array([_is_host_copy(one) for one in inside], dtype=bool)
    copies, kernels = all_spans[is_copy], spans.union(all_spans[is_kernel])
    sums.copy_s += seconds_from_microseconds(spans.length(copies))
    sums.hidden_copy_s += seconds_from_microseconds(float(spans.overlaps(copies, kernels).sum()))
    return spans.union(all_spans)


def _is_host_copy(event: Event) -> bool:
    return event.category.startswith("gpu_mem") and bool(_HOST_COPY.search(event.name))


def _part(trace: Trace, event: Event) -> str:
    if is_inside(trace.optimizer, event):
        return "optimizer"
    return "backward" if is_inside(trace.backward, event) else "forward"


def _idle(
    trace: Trace, work: Sequence[Event], idle: spans.Spans, data: spans.Spans
) -> Iterator[tuple[str, float]]:
    """Yield each cause of idle time with its duration in microseconds."""
    if not trace.has_device:
        waited_us = float(spans.overlaps(idle, data).sum())
        yield from (("input", waited_us), ("host", spans.length(idle) - waited_us))
        return
    queued = {w.start_us: w.launched_us for w in reversed(work) if w.launched_us is not None}
    was_queued = np.array([queued.get(end, np.inf) <= start for start, end in idle], dtype=bool)
    yield "device", spans.length(idle[was_queued])
    late = idle[~was_queued]
    waited_us = float(spans.overlaps(late, data).sum())
    launching = spans.union(np.concatenate([spans.union(trace.host, _BETWEEN_OPERATORS_US), data]))
    launching_us = float(spans.overlaps(late, launching).sum()) - waited_us
    yield from (("input", waited_us), ("launch", launching_us))
    yield "host", spans.length(late) - waited_us - launching_us


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEnergySplit:
    """Time and energy of a step by kernel.

    Attributes:
        rows: all kernels by decreasing time, and ``idle``; their shares add up to 1.
        device_s: duration of a step times the number of devices, or the sum of the kernels' times
            in a step if that is larger, in seconds.
        idle_s: idle time by cause in seconds; ``None`` if unknown.
    """

    rows: tuple[KernelRow, ...]
    device_s: float
    idle_s: dict[str, float] | None

    @property
    def busy_share(self) -> float:
        """Share of the devices' time in which kernels or copies run."""
        return sum(row.share for row in self.rows if row.class_name != IDLE)


def split(sums: KernelTally, step_s: float | None, j_per_step: float | None) -> KernelEnergySplit:
    """Return time and energy of a step by kernel.

    Args:
        sums: sums over all windows, with at least one step.
        step_s: mean duration of a step outside of windows; ``None`` uses the mean in windows.
        j_per_step: energy of a step in joules; ``None`` if unknown.
    """
    steps = sums.steps
    busy_s, window_step_s = sums.busy_s / steps, sums.frame_s / steps
    device_s = max(window_step_s if step_s is None else step_s * sums.devices, busy_s)
    idle_s = device_s - busy_s

    def row(name: str, class_name: str, calls: float, time_s: float) -> KernelRow:
        share = time_s / device_s if device_s else 0.0
        return KernelRow(
            name=name,
            class_name=class_name,
            calls=calls,
            time_s=time_s,
            share=share,
            energy_j=None if j_per_step is None else share * j_per_step,
        )

    kernels = [
        row(name, sums.class_of[name], sums.calls[name] / steps, time_s / steps)
        for name, time_s in sorted(sums.time_s.items(), key=lambda pair: -pair[1])
    ]
    idle = row(IDLE, IDLE, 0.0, idle_s)
    causes_s = _causes(sums, idle_s)
    return KernelEnergySplit(rows=(*kernels, idle), device_s=device_s, idle_s=causes_s)


def _causes(sums: KernelTally, idle_s: float) -> dict[str, float] | None:
    """Return a step's idle time, divided among causes in the same proportions as in windows."""
    windows_s = sum(sums.idle_s.values())
    if not sums.frame_s or not windows_s:
        return None
    return {cause: sums.idle_s.get(cause, 0.0) / windows_s * idle_s for cause in CAUSES}

"""Parses traces of Kineto, the library behind PyTorch's profiler, in Chrome's JSON format.

The Unix time of an event in nanoseconds is ``baseTimeNanoseconds + ts * 1000``
(pytorch/kineto, libkineto/src/output_json.h). Without ``baseTimeNanoseconds``, ``ts`` is Unix time
in microseconds. In this module, spans, and values whose names end in ``_us``, are in microseconds
on the clock of the trace (``ts``).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from energy_callbacks.core.units import microseconds, seconds_from_nanoseconds
from energy_callbacks.profiling.common.spans import Spans, holds, spans, union

_ON_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_RUNTIME: Final = ("cuda_runtime", "cuda_driver", "xpu_runtime", "hip_runtime")
_STEP: Final = "ProfilerStep#"
_DATA: Final = "enumerate(DataLoader)"
_OPTIMIZER: Final = ("Optimizer.step#", "Optimizer.zero_grad#")
_BACKWARD: Final = "autograd::engine::evaluate_function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of the trace, such as an operator, a call of the GPU's runtime, or a kernel.

    Attributes:
        name: name in the trace.
        category: category in the trace, such as ``kernel``, in lower case.
        start_us: start in microseconds.
        end_us: end in microseconds.
        thread: thread of the host; for work of a device, the thread that launched the work, or
            ``None`` if unknown.
        device: number of the device; 0 if unknown.
        correlation: identifier that a launch and the launched work share; ``None`` if there is
            none.
        launched_us: for work of a device, the time at which the host launched the work; ``None`` if
            unknown, and for all other events.
        is_first: ``True`` for a whole event and for the first piece of an event that ``innermost``
            has divided; ``False`` for later pieces.
    """

    name: str
    category: str
    start_us: float
    end_us: float
    thread: object = None
    device: int = 0
    correlation: int | None = None
    launched_us: float | None = None
    is_first: bool = True


class Trace:
    """The trace of one window.

    Args:
        document: content of the trace file.

    Attributes:
        base_ns: Unix time of the trace's time zero, in nanoseconds.
        steps: spans of the training steps on the host, ordered by start, (n, 2).
        on_device: kernels, copies and memory fills on GPUs, ordered by start.
        operators: PyTorch's operators on the host, in all threads.
        host: spans in which the host runs an operator, or a call of the GPU's runtime or driver,
            (n, 2).
        data: spans in which the host fetches a batch, (n, 2).
        optimizer: spans of the optimizer's calls, by thread.
        backward: spans of operators of the backward pass, by thread.
        cudnn: spans of operators of cuDNN, by thread.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        events = list(_events(document["traceEvents"]))
        ranges = [event for event in events if event.category == "user_annotation"]
        runtime = [event for event in events if event.category in _RUNTIME]
        work = (event for event in events if event.category in _ON_DEVICE)
        steps = _spans(event for event in ranges if event.name.startswith(_STEP))
        self.base_ns = float(document.get("baseTimeNanoseconds", 0))
        self.steps = steps[np.argsort(steps[:, 0])]
        self.on_device = sorted(_launched(work, runtime), key=lambda event: event.start_us)
        self.operators = [event for event in events if event.category == "cpu_op"]
        self.host = union(_spans((*self.operators, *runtime)))
        self.data = union(_spans(event for event in ranges if event.name.startswith(_DATA)))
        backward = [event for event in self.operators if event.name.startswith(_BACKWARD)]
        self.optimizer = _by_thread(_without_closure(ranges, backward))
        self.backward = _by_thread(backward)
        self.cudnn = _by_thread(event for event in self.operators if "cudnn" in event.name)

    @property
    def has_device(self) -> bool:
        """Whether the trace contains work of a GPU."""
        return bool(self.on_device)

    @property
    def base_s(self) -> float:
        """Unix time of the trace's time zero, in seconds."""
        return seconds_from_nanoseconds(self.base_ns)

    def unix_ns(self, moment_us: float) -> float:
        """Convert a time on the trace's clock in microseconds to Unix time in nanoseconds."""
        return self.base_ns + moment_us * 1e3

    def us(self, unix_s: float) -> float:
        """Convert Unix time in seconds to a time on the trace's clock in microseconds."""
        return microseconds(unix_s - self.base_s)


def _events(lines: Sequence[Mapping[str, Any]]) -> Iterator[Event]:
    for line in lines:
        if line.get("ph") != "X" or "dur" not in line or "ts" not in line:
            continue
        arguments = line.get("args") or {}
        device, start_us = arguments.get("device"), float(line["ts"])
        yield Event(
            name=str(line.get("name", "")),
            category=str(line.get("cat", "")).lower(),
            start_us=start_us,
            end_us=start_us + float(line["dur"]),
            thread=line.get("tid"),
            device=device if isinstance(device, int) else 0,
            correlation=arguments.get("correlation"),
        )


def _launched(work: Iterable[Event], runtime: Iterable[Event]) -> Iterator[Event]:
    """Yield the events of ``work`` with ``thread`` and ``launched_us`` set from their launches."""
    launches = {event.correlation: event for event in runtime}
    for event in work:
        launch = None if event.correlation is None else launches.get(event.correlation)
        if launch is None:
            yield replace(event, thread=None)
        else:
            yield replace(event, thread=launch.thread, launched_us=launch.start_us)


def _without_closure(ranges: Sequence[Event], backward: Sequence[Event]) -> Iterator[Event]:
    """Yield the optimizer's calls without the forward and backward pass that they may contain.

    Lightning gives the optimizer a closure that runs both passes. The yielded call then begins at
    the end of the backward pass.
    """
    ends_us = np.sort(np.array([event.end_us for event in backward]))
    for event in ranges:
        if event.name.startswith(_OPTIMIZER):
            place = int(np.searchsorted(ends_us, event.end_us, side="right"))
            last_us = float(ends_us[place - 1]) if place else event.start_us
            yield replace(event, start_us=max(event.start_us, last_us))


def _spans(events: Iterable[Event]) -> Spans:
    return spans((event.start_us, event.end_us) for event in events)


def _by_thread(events: Iterable[Event]) -> dict[object, Spans]:
    return {thread: union(_spans(own)) for thread, own in _grouped(events).items()}


def _grouped(events: Iterable[Event]) -> dict[object, list[Event]]:
    threads = defaultdict[object, list[Event]](list)
    for event in events:
        threads[event.thread].append(event)
    return threads


def is_inside(cover: Mapping[object, Spans], event: Event) -> bool:
    """Return whether an event was launched inside a span of the same thread.

    For an event without a launch, such as an operator of the host, the event's start counts.

    Args:
        cover: spans by thread; those of each thread as returned by ``union``.
        event: the event.
    """
    own = cover.get(event.thread)
    at_us = event.start_us if event.launched_us is None else event.launched_us
    return own is not None and bool(holds(own, np.array([at_us]))[0])


def innermost(operators: Sequence[Event]) -> Iterator[Event]:
    """Divide host operators into pieces, and yield the pieces in which no nested operator runs.

    The pieces of one operator are in order of time.
    """
    for own in _grouped(operators).values():
        yield from _pieces(sorted(own, key=lambda event: (event.start_us, -event.end_us)))


def _pieces(ordered: Sequence[Event]) -> Iterator[Event]:
    running: list[Event] = []
    at_us, end = 0.0, float("inf")
    for event in (*ordered, Event(name="", category="", start_us=end, end_us=end)):
        while running and at_us < event.start_us:
            inner = running.pop()
            piece_end_us = min(inner.end_us, event.start_us)
            if piece_end_us > at_us:
                yield replace(inner, start_us=at_us, end_us=piece_end_us)
                inner, at_us = replace(inner, is_first=False), piece_end_us
            if inner.end_us > event.start_us:
                running.append(inner)
        at_us = event.start_us
        running.append(event)

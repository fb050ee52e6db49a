"""Parses Kineto's traces (Chrome JSON), which PyTorch's profiler writes.

Absolute time is ``baseTimeNanoseconds + ts * 1000`` in Unix nanoseconds
(pytorch/kineto, libkineto/src/output_json.h); traces without a base hold Unix microseconds.
All times here are in microseconds of the trace's own axis.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from energy_callbacks.core.units import microseconds, seconds_from_nanoseconds
from energy_callbacks.profiling.kernels.traces.spans import Spans, holds, spans, union

_ON_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_RUNTIME: Final = ("cuda_runtime", "cuda_driver", "xpu_runtime", "hip_runtime")
_STEP: Final = "ProfilerStep#"
_DATA: Final = "enumerate(DataLoader)"
_OPTIMIZER: Final = ("Optimizer.step#", "Optimizer.zero_grad#")
_BACKWARD: Final = "autograd::engine::evaluate_function"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One span of the trace; ``thread`` is of the host, ``device`` an ordinal."""

    name: str
    category: str
    start_us: float
    end_us: float
    thread: object = None
    device: int = 0
    correlation: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One window.

    Attributes:
        base_ns: Unix time of the trace's zero.
        events: how many lines the trace has.
        steps: of the training, by the host: (n, 2).
        on_device: kernels and copies, in order of their starts.
        operators: of the host, in all threads.
        launches: thread and moment at which the host asked for it, by correlation.
        host: the host was inside an operator or a call of the driver.
        data: the host was fetching a batch.
        optimizer: by thread, spans of the optimizer's calls.
        backward: operators of the backward pass.
        cudnn: operators of cuDNN.
    """

    base_ns: float
    events: int
    steps: Spans
    on_device: Sequence[Event]
    operators: Sequence[Event]
    launches: Mapping[int, tuple[object, float]]
    host: Spans
    data: Spans
    optimizer: Mapping[object, Spans]
    backward: Mapping[object, Spans]
    cudnn: Mapping[object, Spans]

    @property
    def has_device(self) -> bool:
        """Whether an accelerator did any of the work."""
        return bool(self.on_device)

    @property
    def base_s(self) -> float:
        """Unix time of the trace's zero, s."""
        return seconds_from_nanoseconds(self.base_ns)

    def unix_ns(self, moment_us: float) -> float:
        """Unix time of a moment on the trace's own axis, ns."""
        return self.base_ns + moment_us * 1e3

    def us(self, unix_s: float) -> float:
        """A moment on the trace's own axis."""
        return microseconds(unix_s - self.base_s)


def parse(document: Mapping[str, Any]) -> Trace:
    """The trace of one window.

    Args:
        document: what the file holds.
    """
    lines = document["traceEvents"]
    found = list(_events(lines))
    operators = [event for event in found if event.category == "cpu_op"]
    ranges = [event for event in found if event.category == "user_annotation"]
    runtime = [event for event in found if event.category in _RUNTIME]
    backward = [event for event in operators if event.name.startswith(_BACKWARD)]
    on_device = [event for event in found if event.category in _ON_DEVICE]
    steps = spans((e.start_us, e.end_us) for e in ranges if e.name.startswith(_STEP))
    return Trace(
        base_ns=float(document.get("baseTimeNanoseconds", 0)),
        events=len(lines),
        steps=steps[np.argsort(steps[:, 0])],
        on_device=sorted(on_device, key=lambda event: event.start_us),
        operators=operators,
        launches={
            event.correlation: (event.thread, event.start_us)
            for event in runtime
            if event.correlation is not None
        },
        host=union(spans((e.start_us, e.end_us) for e in (*operators, *runtime))),
        data=union(spans((e.start_us, e.end_us) for e in ranges if e.name.startswith(_DATA))),
        optimizer=_by_thread(_without_closure(ranges, backward)),
        backward=_by_thread(backward),
        cudnn=_by_thread(e for e in operators if "cudnn" in e.name),
    )


def _events(lines: Sequence[Mapping[str, Any]]) -> Iterator[Event]:
    for line in lines:
        if line.get("ph") != "X" or "dur" not in line or "ts" not in line:
            continue
        given = line.get("args") or {}
        start_us = float(line["ts"])
        yield Event(
            name=str(line.get("name", "")),
            category=str(line.get("cat", "")).lower(),
            start_us=start_us,
            end_us=start_us + float(line["dur"]),
            thread=line.get("tid"),
            device=_ordinal(given.get("device")),
            correlation=given.get("correlation"),
        )


def _ordinal(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _without_closure(ranges: Sequence[Event], backward: Sequence[Event]) -> Iterator[Event]:
    """The optimizers' own work: Lightning passes them forward and backward as a closure."""
    ends_us = np.sort(np.array([event.end_us for event in backward]))
    for event in ranges:
        if not event.name.startswith(_OPTIMIZER):
            continue
        place = int(np.searchsorted(ends_us, event.end_us, side="right"))
        last_us = float(ends_us[place - 1]) if place else event.start_us
        yield replace(event, start_us=max(event.start_us, last_us))


def _by_thread(events: Iterable[Event]) -> dict[object, Spans]:
    pairs: dict[object, list[tuple[float, float]]] = {}
    for event in events:
        pairs.setdefault(event.thread, []).append((event.start_us, event.end_us))
    return {thread: union(spans(of)) for thread, of in pairs.items()}


def is_inside(cover: Mapping[object, Spans], thread: object, moment_us: float) -> bool:
    """Whether a thread was inside one of the spans at a moment."""
    own = cover.get(thread)
    return own is not None and bool(holds(own, np.array([moment_us]))[0])


def innermost(events: Sequence[Event]) -> Iterator[tuple[Event, float, float, bool]]:
    """Operators of the host as pieces in which no operator inside them runs.

    Returns:
        For each piece its operator, start and end in us, and whether it is the operator's first.
    """
    threads: dict[object, list[Event]] = {}
    for event in events:
        threads.setdefault(event.thread, []).append(event)
    for own in threads.values():
        yield from _pieces(sorted(own, key=lambda event: (event.start_us, -event.end_us)))


def _pieces(ordered: Sequence[Event]) -> Iterator[tuple[Event, float, float, bool]]:
    open_ones: list[Event] = []
    at_us = 0.0
    begun: set[int] = set()

    def until(moment_us: float) -> Iterator[tuple[Event, float, float, bool]]:
        nonlocal at_us
        while open_ones and at_us < moment_us:
            inner = open_ones[-1]
            end_us = min(inner.end_us, moment_us)
            if end_us > at_us:
                yield inner, at_us, end_us, id(inner) not in begun
                begun.add(id(inner))
                at_us = end_us
            if inner.end_us <= moment_us:
                open_ones.pop()
        while open_ones and open_ones[-1].end_us <= moment_us:
            open_ones.pop()

    for event in ordered:
        yield from until(event.start_us)
        at_us = event.start_us
        open_ones.append(event)
    yield from until(float("inf"))

"""A trace and the lines of the same moments: how long the kernels of each line ran."""

from collections.abc import Callable, Mapping
from typing import Any

from energy_callbacks.core.units import seconds_from_microseconds
from energy_callbacks.profiling.kernels.traces.kineto import parse
from energy_callbacks.profiling.kernels.traces.spans import length, spans, union
from energy_callbacks.profiling.lines.source_location import Line


def kernel_times(
    document: Mapping[str, Any], line_at: Callable[[float], Line | None]
) -> tuple[dict[Line | None, float], float]:
    """Sum up a trace as PyTorch writes it.

    A kernel has the correlation id of the call that launched it; a graph's kernels have that of
    the graph's launch.

    Args:
        document: what the file holds.
        line_at: the training thread's line at a Unix time in ns.

    Returns:
        Seconds of kernels and copies by the line that launched them, ``None`` for no line of the
        user's; and the seconds in which at least one of them ran on each device, summed.
    """
    trace = parse(document)
    found: dict[Line | None, float] = {}
    by_device: dict[int, list[tuple[float, float]]] = {}
    for event in trace.on_device:
        at_us = event.launched_us
        line = None if at_us is None else line_at(trace.unix_ns(at_us))
        took_s = seconds_from_microseconds(event.end_us - event.start_us)
        found[line] = found.get(line, 0.0) + took_s
        by_device.setdefault(event.device, []).append((event.start_us, event.end_us))
    busy_us = sum(length(union(spans(ones))) for ones in by_device.values())
    return found, seconds_from_microseconds(busy_us)

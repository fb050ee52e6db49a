"""A trace and the lines of the same moments: how long the kernels of each line ran."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from energy_callbacks.profiling.lines.places import Line

_DEVICE: Final = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES: Final = ("cuda_runtime", "cuda_driver")


def kernel_times(
    trace: Mapping[str, Any], line_at: Callable[[float], Line | None]
) -> tuple[dict[Line | None, float], float]:
    """Sum up a trace as PyTorch writes it (Kineto's ``output_json.h``).

    A kernel has the correlation id of the call that launched it; a graph's kernels have that of
    the graph's launch.

    Args:
        trace: ``traceEvents`` with ``ts`` and ``dur`` in us, from ``baseTimeNanoseconds`` on.
        line_at: the training thread's line at a Unix time in ns.

    Returns:
        Seconds of kernels and copies by the line that launched them, ``None`` for no line of the
        user's; and the seconds in which at least one of them ran on each device, summed.
    """
    events = [one for one in trace["traceEvents"] if one.get("ph") == "X"]
    base_ns = float(trace.get("baseTimeNanoseconds", 0))
    launched = {
        one["args"]["correlation"]: base_ns + float(one["ts"]) * 1e3
        for one in events
        if one.get("cat") in _LAUNCHES and "correlation" in one.get("args", {})
    }
    found: dict[Line | None, float] = {}
    spans: dict[Any, list[tuple[float, float]]] = {}
    for one in events:
        if one.get("cat") not in _DEVICE:
            continue
        launch_ns = launched.get(one["args"].get("correlation"))
        line = None if launch_ns is None else line_at(launch_ns)
        start_us, took_us = float(one["ts"]), float(one["dur"])
        found[line] = found.get(line, 0.0) + took_us * 1e-6
        spans.setdefault(one["args"].get("device"), []).append((start_us, start_us + took_us))
    return found, sum(_union_us(ones) for ones in spans.values()) * 1e-6


def _union_us(spans: list[tuple[float, float]]) -> float:
    total_us, reached_us = 0.0, float("-inf")
    for start_us, end_us in sorted(spans):
        total_us += max(end_us - max(start_us, reached_us), 0.0)
        reached_us = max(reached_us, end_us)
    return total_us

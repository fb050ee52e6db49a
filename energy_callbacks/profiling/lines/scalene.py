"""The profile in the form of Scalene 2's JSON, so that ``scalene view`` shows it.

Scalene has columns for time, GPU and memory, and none for energy. Joules are in its flame chart,
whose counts are millijoules here, and as ``energy_j`` beside each line and function, which its
viewer passes over. Memory was not followed. Time is given in one of its three kinds, *Python*,
whether it was native or not; waiting is its *system* time.
"""

import json
import linecache
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from energy_callbacks.profiling.lines.listing import Listing
from energy_callbacks.profiling.lines.source_location import Line
from energy_callbacks.profiling.lines.stacks import Stack
from energy_callbacks.report.model.profile_lines import LineProfile, SourceLine

_NOTHING: Final = {
    "memory_samples": [], "n_avg_mb": 0.0, "n_copy_mb_s": 0.0, "cpu_samples_list": [],
    "n_cpu_percent_c": 0.0, "n_gpu_avg_memory_mb": 0.0, "n_gpu_peak_memory_mb": 0.0,
    "n_growth_mb": 0.0, "n_peak_mb": 0.0, "n_malloc_mb": 0.0, "n_mallocs": 0,
    "n_python_fraction": 0.0, "n_usage_fraction": 0.0,
}  # fmt: skip


def profile(listing: Listing, stacks: Sequence[Stack]) -> str:
    """The JSON; percentages of lines sum to at most 100, as Scalene checks.

    Args:
        listing: all lines.
        stacks: for the flame chart.
    """
    found = listing.profile
    by_file = sorted(listing.lines, key=lambda one: (one.file, one.line))
    files = {
        path: _file(found, path, list(lines))
        for path, lines in groupby(by_file, key=lambda one: one.file)
    }
    main = max(files, key=lambda path: files[path]["percent_cpu_time"], default="")
    has_gpu = any(one.gpu_share for one in listing.lines)
    return json.dumps(
        {
            "alloc_samples": 0,
            "args": [],
            "elapsed_time_sec": found.duration_s,
            "start_time_absolute": 0.0,
            "start_time_perf": 0.0,
            "entrypoint_dir": main.rpartition("/")[0],
            "filename": main,
            "files": files,
            "gpu": has_gpu,
            "gpu_device": "GPU" if has_gpu else "",
            "growth_rate": 0.0,
            "max_footprint_fname": None,
            "max_footprint_lineno": None,
            "max_footprint_mb": 0.0,
            "max_footprint_python_fraction": 0.0,
            "memory": False,
            "program": main,
            "samples": [],
            "stacks": [],
            "combined_stacks": [
                [[_frame(line) for line in stack.frames], round(1000.0 * stack.energy_j)]
                for stack in stacks
                if stack.frames and stack.energy_j >= 0.0005
            ],
        }
    )


def _file(found: LineProfile, path: str, lines: list[SourceLine]) -> dict[str, Any]:
    """All lines of a file, since the viewer shows what is listed; those unseen with zeros."""
    source = linecache.getlines(path)
    seen: dict[int, dict[str, Any]] = {}
    for one in lines:
        detail = _line(found, one)
        if one.line in seen:
            detail = _sum(seen[one.line], detail)
        seen[one.line] = detail
    unseen = {n: _unseen(n, text) for n, text in enumerate(source, start=1) if n not in seen}
    percent = 100.0 * sum(one.wall_s for one in lines) / found.duration_s
    return {
        "functions": [],
        "imports": [],
        "leaks": {},
        "lines": [detail for _, detail in sorted((seen | unseen).items())],
        "percent_cpu_time": percent,
    }


def _line(found: LineProfile, one: SourceLine) -> dict[str, Any]:
    waits = min(one.wait_s, one.wall_s)
    return _unseen(one.line, f"{one.source}\n") | {
        "n_cpu_percent_python": _percent(one.wall_s - waits, found.duration_s),
        "n_sys_percent": _percent(waits, found.duration_s),
        "n_core_utilization": min(one.cpu_s / one.wall_s, 1.0) if one.wall_s > 0.0 else 0.0,
        "n_gpu_percent": _percent(one.gpu_share or 0.0, 1.0),
        "energy_j": one.energy_j,
    }


def _unseen(number: int, text: str) -> dict[str, Any]:
    return _NOTHING | {
        "line": text,
        "lineno": number,
        "n_core_utilization": 0.0,
        "n_cpu_percent_python": 0.0,
        "n_sys_percent": 0.0,
        "n_gpu_percent": 0.0,
        "start_outermost_loop": max(number, 1),
        "end_outermost_loop": max(number, 1),
        "start_region_line": max(number, 1),
        "end_region_line": max(number, 1),
    }


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two functions may share a line, as a comprehension does."""
    names = ("n_cpu_percent_python", "n_sys_percent", "n_gpu_percent")
    joules = [part["energy_j"] for part in (one, other) if part["energy_j"] is not None]
    return (
        one
        | {name: one[name] + other[name] for name in names}
        | {"energy_j": sum(joules) if joules else None}
    )


def _percent(part: float, whole: float) -> float:
    return min(max(100.0 * part / whole, 0.0), 100.0)


def _frame(line: Line) -> dict[str, Any]:
    return {
        "kind": "py",
        "display_name": line.function,
        "filename_or_module": line.file,
        "line": line.line or None,
        "ip": None,
        "offset": None,
    }

"""Formats a line profile as JSON of Scalene 2, which ``scalene view`` can display.

Scalene has columns for time, GPU and memory, but none for energy. Energy is therefore given in the
flame chart, where the counts are millijoules, and in the field ``energy_j`` of each line, which
Scalene's viewer ignores. Memory is not recorded. Scalene divides time into *Python*, *native* and
*system*. Here, *system* is waiting time, *Python* is the rest, and *native* is zero.
"""

import json
import linecache
from collections.abc import Sequence
from typing import Any, Final

from energy_callbacks.core.stats import sum_known
from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.lines.listing import by_file
from energy_callbacks.profiling.lines.stacks import Stack
from energy_callbacks.report.model.profile_lines import LineProfile, SourceLine

_TIMES: Final = ("n_cpu_percent_python", "n_sys_percent", "n_gpu_percent")
_NOT_RECORDED: Final = {
    "memory_samples": [], "n_avg_mb": 0.0, "n_copy_mb_s": 0.0, "cpu_samples_list": [],
    "n_cpu_percent_c": 0.0, "n_gpu_avg_memory_mb": 0.0, "n_gpu_peak_memory_mb": 0.0,
    "n_growth_mb": 0.0, "n_peak_mb": 0.0, "n_malloc_mb": 0.0, "n_mallocs": 0,
    "n_python_fraction": 0.0, "n_usage_fraction": 0.0,
}  # fmt: skip


def profile(found: LineProfile, stacks: Sequence[Stack]) -> str:
    """Return the profile as JSON.

    The percentages of time of all lines sum to at most 100, as Scalene requires.

    Args:
        found: the profile with all lines.
        stacks: stacks with their energy, for the flame chart.
    """
    files = {path: _file(found, path, lines) for path, lines in by_file(found)}
    main = max(files, key=lambda path: files[path]["percent_cpu_time"], default="")
    has_gpu = any(line.gpu_share for line in found.lines)
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


def _file(found: LineProfile, path: str, lines: Sequence[SourceLine]) -> dict[str, Any]:
    """Return the entry of a file.

    The entry contains all lines of the file, because the viewer shows only lines in the entry. The
    times of lines without samples are zero.
    """
    details = {n: _unseen(n, text) for n, text in enumerate(linecache.getlines(path), start=1)}
    # ``lines`` has two entries for a line that belongs to two functions, such as a comprehension
    # and the function around it. Their times and energies are added; the other fields are those of
    # the entry that is handled last. The entry with more energy comes first in ``lines``, so that
    # in reversed order it is handled last.
    for line in reversed(lines):
        detail = details.setdefault(line.line, _unseen(line.line, ""))
        detail |= _seen(found, line, detail)
    return {
        "functions": [],
        "imports": [],
        "leaks": {},
        "lines": [detail for _, detail in sorted(details.items())],
        "percent_cpu_time": 100.0 * sum(line.wall_s for line in lines) / found.duration_s,
    }


def _seen(found: LineProfile, line: SourceLine, before: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a line; its times and energy are added to those in ``before``."""
    wait_s = min(line.wait_s, line.wall_s)
    shares = [(line.wall_s - wait_s) / found.duration_s, wait_s / found.duration_s]
    shares.append(line.gpu_share or 0.0)
    return {
        "line": f"{line.source}\n",
        "n_core_utilization": min(line.cpu_s / line.wall_s, 1.0) if line.wall_s > 0.0 else 0.0,
        "energy_j": sum_known((before.get("energy_j"), line.energy_j)),
    } | {
        name: before[name] + min(max(100.0 * share, 0.0), 100.0)
        for name, share in zip(_TIMES, shares, strict=True)
    }


def _unseen(number: int, text: str) -> dict[str, Any]:
    regions = ("start_outermost_loop", "end_outermost_loop", "start_region_line", "end_region_line")
    return {
        **_NOT_RECORDED,
        **dict.fromkeys(("n_core_utilization", *_TIMES), 0.0),
        **dict.fromkeys(regions, max(number, 1)),
        "line": text,
        "lineno": number,
    }


def _frame(line: Line) -> dict[str, Any]:
    return {
        "kind": "py",
        "display_name": line.function,
        "filename_or_module": line.file,
        "line": line.line or None,
        "ip": None,
        "offset": None,
    }

"""Writes a line profile: its record for the journal, and its files."""

import linecache
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import atomic_files
from energy_callbacks.core.stats import sum_known
from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.lines import listing, scalene, stacks
from energy_callbacks.profiling.lines.attribution import LineShare, Shares
from energy_callbacks.profiling.lines.stacks import Stack
from energy_callbacks.report.model.profile_lines import LineProfile, SourceLine

# Maximum numbers of lines and functions in the record, and of characters of a source line.
_MOST_LINES: Final = 100
_MOST_FUNCTIONS: Final = 50
_LONGEST: Final = 160


def write(found: LineProfile, samples: Sequence[Stack], run_folder: Path | None) -> dict[str, Any]:
    """Write the files, and return the record for the journal.

    Args:
        found: the profile with all lines and functions; the record has only the first 100 lines and
            the first 50 functions.
        samples: stacks with their time and energy.
        run_folder: files are written to its subfolder ``profile/``; ``None`` to write no files.
    """
    files: dict[str, str] = {}
    if run_folder is not None:
        files = {
            "profile/lines.html": listing.html(found),
            "profile/lines.txt": listing.text(found),
            "profile/lines.folded": stacks.folded(samples),
            "profile/lines.speedscope.json": stacks.speedscope(samples),
            "profile/lines.scalene.json": scalene.profile(found, samples),
        }
        for name, content in files.items():
            atomic_files.write(run_folder / name, content.encode("utf-8", "replace"))
    record = replace(
        found,
        lines=found.lines[:_MOST_LINES],
        functions=found.functions[:_MOST_FUNCTIONS],
        files=tuple(files),
    )
    return asdict(record)


def source_lines(shares: Shares) -> tuple[SourceLine, ...]:
    """Return the lines with their source text, highest energy first."""
    gpu_s = sum(share.gpu_s or 0.0 for share in shares.values())
    lines = [
        SourceLine(
            file=line.file,
            line=line.line,
            function=line.function,
            source=linecache.getline(line.file, line.line).rstrip("\n")[:_LONGEST],
            wall_s=share.wall_s,
            cpu_s=share.busy_s,
            wait_s=share.wait_s,
            gpu_share=None if share.gpu_s is None or not gpu_s else share.gpu_s / gpu_s,
            host_j=share.host_j,
            waiting_j=share.waiting_j,
            gpu_j=share.gpu_j,
        )
        for line, share in shares.items()
    ]
    return tuple(sorted(lines, key=lambda one: (one.energy_j or 0.0, one.wall_s), reverse=True))


def functions(shares: Shares) -> tuple[SourceLine, ...]:
    """Return the sum over the lines of each function, by decreasing energy.

    The sum of a function does not include other functions of the user that this function calls.
    """
    totals: dict[tuple[str, str], LineShare] = {}
    first: dict[tuple[str, str], int] = {}
    for line, share in shares.items():
        key = (line.file, line.function)
        first[key] = min(first.get(key, line.line), line.line)
        total = totals.setdefault(key, LineShare())
        total.merge(share)
        for name in ("work_j", "waiting_j", "gpu_s", "gpu_j"):
            setattr(total, name, sum_known(getattr(one, name) for one in (total, share)))
    by_line = {Line(file, first[file, name], name): total for (file, name), total in totals.items()}
    return tuple(replace(line, source="") for line in source_lines(by_line))

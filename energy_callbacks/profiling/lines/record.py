"""Writes a profile of lines: its record in the journal, and its files."""

import json
import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import atomic_files
from energy_callbacks.profiling.lines import listing, scalene, stacks
from energy_callbacks.profiling.lines.joules import LineShare, ScopeTotal, Shares
from energy_callbacks.profiling.lines.source_location import Line
from energy_callbacks.profiling.lines.stacks import Stack
from energy_callbacks.profiling.lines.tally import LineTally
from energy_callbacks.report.model.profile_lines import LineProfile, ScopeShare, SourceLine

_MOST_LINES: Final = 100
_MOST_FUNCTIONS: Final = 50
_LONGEST: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFindings:
    """All that a run of the profiler has found.

    Attributes:
        totals: by scope.
        stacks: seconds and joules of each.
    """

    duration_s: float
    looks: int
    cost_s: float
    windows: int
    totals: Mapping[str, ScopeTotal]
    shares: Shares
    stacks: Sequence[Stack]


def write(found: LineFindings, run_folder: Path | None) -> dict[str, Any]:
    """Write the files, and give the record for the journal.

    Args:
        found: the findings.
        run_folder: files go into ``profile/`` in it; ``None`` for none.
    """
    profile = _profile(found, ())
    whole = listing.Listing(profile=profile, lines=_lines(found.shares))
    files: dict[str, Callable[[], str]] = {
        "lines.html": lambda: listing.html(whole),
        "lines.txt": lambda: listing.text(whole),
        "lines.folded": lambda: stacks.folded(found.stacks),
        "lines.speedscope.json": lambda: stacks.speedscope(found.stacks),
        "lines.scalene.json": lambda: scalene.profile(whole, found.stacks),
    }
    if run_folder is not None:
        for name, render in files.items():
            content = render().encode("utf-8", "replace")
            atomic_files.write(run_folder / "profile" / name, content)
    names = [f"profile/{name}" for name in files] if run_folder is not None else []
    return json.loads(json.dumps(asdict(_profile(found, names))))  # type: ignore[no-any-return]


def stacks_of(tally: LineTally, shares: Shares) -> list[Stack]:
    """Each stack with its part of the joules of its line, by time."""
    found: dict[tuple[Line, ...], tuple[float, float]] = {}
    for (site, frames), wall_s in tally.stacks.items():
        share = None if site is None else shares.get(tally.line(site))
        part = wall_s / share.spent.wall_s if share is not None and share.spent.wall_s else 0.0
        energy_j = 0.0 if share is None else (share.energy_j or 0.0) * part
        lines = tuple(tally.frame_line(code, offset) for code, offset in frames)
        before_s, before_j = found.get(lines, (0.0, 0.0))
        found[lines] = (before_s + wall_s, before_j + energy_j)
    return [Stack(frames=lines, wall_s=s, energy_j=j) for lines, (s, j) in found.items()]


def _profile(found: LineFindings, files: Iterable[str]) -> LineProfile:
    lines = _lines(found.shares)
    return LineProfile(
        duration_s=found.duration_s,
        looks=found.looks,
        cost_share=found.cost_s / found.duration_s,
        windows=found.windows,
        scopes=tuple(
            ScopeShare(
                scope=scope,
                energy_j=total.energy_j,
                attributed_j=total.attributed_j,
                reason=total.reason,
            )
            for scope, total in found.totals.items()
            if total.energy_j is not None
        ),
        lines=tuple(lines[:_MOST_LINES]),
        functions=tuple(_functions(found.shares)[:_MOST_FUNCTIONS]),
        files=tuple(files),
    )


def _lines(shares: Shares) -> list[SourceLine]:
    all_s = sum(share.gpu_s or 0.0 for share in shares.values())
    found = [
        _line(line, share, linecache.getline(line.file, line.line), all_s)
        for line, share in shares.items()
    ]
    return sorted(found, key=_size, reverse=True)


def _functions(shares: Shares) -> list[SourceLine]:
    """Lines of a function together; joules of functions that it calls are theirs."""
    all_s = sum(share.gpu_s or 0.0 for share in shares.values())
    by_function: dict[tuple[str, str], tuple[int, LineShare]] = {}
    for line, share in shares.items():
        key = (line.file, line.function)
        first, whole = by_function.setdefault(key, (line.line, LineShare()))
        whole.spent.merge(share.spent)
        for name in ("work_j", "waiting_j", "gpu_s", "gpu_j"):
            parts = [
                part for part in (getattr(whole, name), getattr(share, name)) if part is not None
            ]
            setattr(whole, name, sum(parts) if parts else None)
        by_function[key] = (min(first, line.line), whole)
    found = [
        _line(Line(file, number, function), share, "", all_s)
        for (file, function), (number, share) in by_function.items()
    ]
    return sorted(found, key=_size, reverse=True)


def _line(line: Line, share: LineShare, source: str, all_s: float) -> SourceLine:
    host = [value for value in (share.work_j, share.waiting_j) if value is not None]
    return SourceLine(
        file=line.file,
        line=line.line,
        function=line.function,
        source=source.rstrip("\n")[:_LONGEST],
        wall_s=share.spent.wall_s,
        cpu_s=share.spent.cpu_s + share.spent.others_s,
        wait_s=share.spent.wait_s,
        gpu_share=None if share.gpu_s is None or not all_s else share.gpu_s / all_s,
        host_j=sum(host) if host else None,
        waiting_j=share.waiting_j,
        gpu_j=share.gpu_j,
    )


def _size(one: SourceLine) -> tuple[float, float]:
    return (one.energy_j or 0.0, one.wall_s)

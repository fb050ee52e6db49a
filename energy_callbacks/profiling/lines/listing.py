"""The user's source with what each line used beside it, as text and as a page."""

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from energy_callbacks.core import formatting
from energy_callbacks.report.model.profile_lines import LineProfile, SourceLine
from energy_callbacks.report.render.html import template

_AROUND: Final = 3
_MOST_ROWS: Final = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A profile with all of its lines.

    Attributes:
        profile: with its first lines.
        lines: all of them.
    """

    profile: LineProfile
    lines: list[SourceLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingRow:
    """One line of a file; ``spent`` is ``None`` if nothing was seen of it.

    Attributes:
        heat: its part of the hottest line, 0 to 1.
    """

    number: int
    source: str
    spent: SourceLine | None
    heat: float

    def cells(self, profile: LineProfile) -> tuple[str, ...]:
        """Time, CPU, waiting, GPU and joules, as texts; empty if nothing was seen."""
        one = self.spent
        if one is None:
            return ("",) * 5
        parts = [_percent(s, profile.duration_s) for s in (one.wall_s, one.cpu_s, one.wait_s)]
        gpu = "" if one.gpu_share is None else _percent(one.gpu_share, 1.0)
        return (*parts, gpu, "" if one.energy_j is None else formatting.joules(one.energy_j))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """Rows of one file, in the order of its lines; a gap is a row with number 0."""

    path: str
    energy_j: float
    wall_s: float
    rows: tuple[ListingRow, ...]


def files(listing: Listing) -> list[ListedFile]:
    """Files with lines that were seen, what took most first, with the lines around them."""
    hottest = max((_heat(one) for one in listing.lines), default=0.0) or 1.0
    found, left = [], _MOST_ROWS
    ordered = sorted(listing.lines, key=lambda one: (one.file, one.line))
    for path, group in groupby(ordered, key=lambda one: one.file):
        seen = _by_number(list(group))
        rows = tuple(_rows(path, seen, hottest))[:left]
        left -= len(rows)
        energy_j = sum(one.energy_j or 0.0 for one in seen.values())
        wall_s = sum(one.wall_s for one in seen.values())
        found.append(ListedFile(path=path, energy_j=energy_j, wall_s=wall_s, rows=rows))
    return sorted(found, key=lambda file: (file.energy_j, file.wall_s), reverse=True)


def _by_number(lines: list[SourceLine]) -> dict[int, SourceLine]:
    """A line may belong to two functions, as a comprehension does; the larger one is shown."""
    return {one.line: one for one in sorted(lines, key=_heat)}


def _heat(one: SourceLine) -> float:
    return one.wall_s if one.energy_j is None else one.energy_j


def _rows(path: str, seen: dict[int, SourceLine], hottest: float) -> Iterator[ListingRow]:
    source = linecache.getlines(path)
    near = {n + i for n in seen for i in range(-_AROUND, _AROUND + 1)}
    last = 0
    for number in sorted(n for n in near if n in seen or 1 <= n <= len(source)):
        if last and number > last + 1:
            yield ListingRow(number=0, source="", spent=None, heat=0.0)
        one = seen.get(number)
        text = source[number - 1].rstrip("\n") if 1 <= number <= len(source) else ""
        yield ListingRow(
            number=number,
            source=text,
            spent=one,
            heat=0.0 if one is None else _heat(one) / hottest,
        )
        last = number


_ATTRIBUTED: Final = (
    "Joules are attributed: shares of these totals. The host's go by CPU time and by time spent "
    "waiting, the GPU's by the time of the kernels that a line launched."
)
_PERCENT: Final = (
    "time, CPU and waits are percent of the time followed; CPU counts all cores, so it may exceed "
    "100 %. GPU is percent of the time of all kernels."
)
HEAD: Final = ("time", "CPU", "waits", "GPU", "attributed")


def text(listing: Listing) -> str:
    """The listing for an editor or a pager."""
    profile = listing.profile
    lines = [profile.sentence, *explanation(profile), ""]
    for file in files(listing):
        lines += [formatting.one_line(file.path), _columns(HEAD) + "   line  source"]
        for row in file.rows:
            cells = _columns(row.cells(profile))
            source = formatting.one_line(row.source.expandtabs(4))
            lines.append(f"{cells}  {row.number:5d}  {source}".rstrip() if row.number else "...")
        lines.append("")
    return "\n".join(lines) + "\n"


def html(listing: Listing) -> str:
    """The listing as a page of its own."""
    return template("lines.html").render(
        profile=listing.profile,
        files=files(listing),
        head=HEAD,
        explanation=explanation(listing.profile),
    )


def explanation(profile: LineProfile) -> list[str]:
    """How to read it, a sentence each."""
    told = [
        f"{one.scope}: {formatting.joules(one.energy_j)}, "
        f"{formatting.joules(one.attributed_j or 0.0)} of it attributed"
        for one in profile.scopes
    ]
    return [*told, _ATTRIBUTED, _PERCENT]


def _percent(value: float, whole: float) -> str:
    return f"{100.0 * value / whole:.1f} %" if whole and value >= 0.0005 * whole else ""


def _columns(cells: tuple[str, ...]) -> str:
    return "".join(f"{cell:>9}" for cell in cells[:-1]) + f"{cells[-1]:>12}"

"""Renders the user's source code with the time and energy of each line, as text and as HTML."""

import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from energy_callbacks.core import formatting
from energy_callbacks.report.model.profile_lines import LineProfile, SourceLine
from energy_callbacks.report.render.html import template

# Number of lines that are shown before and after each line of the profile.
_AROUND: Final = 3
# Maximum number of rows of all files together.
_MOST_ROWS: Final = 5000
_ATTRIBUTED: Final = (
    "The energies of lines are attributed, as shares of these totals: those of the host by CPU "
    "time and waiting time, those of the GPU by the time of the kernels that a line launched."
)
_PERCENT: Final = (
    "time, CPU and waits are percentages of the recorded time; CPU counts all cores, so it may "
    "exceed 100 %. GPU is the percentage of the time of all kernels."
)
HEAD: Final = ("time", "CPU", "waits", "GPU", "attributed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingRow:
    """One line of a file, or a mark for omitted lines.

    Attributes:
        number: number of the line; 0 in a row that marks omitted lines.
        source: text of the line.
        spent: time and energy of the line; ``None`` if the line is not in the profile.
        heat: energy of the line, or its time if its energy is unknown, divided by the largest of
            these values in the profile; 0 to 1.
    """

    number: int = 0
    source: str = ""
    spent: SourceLine | None = None
    heat: float = 0.0

    def cells(self, profile: LineProfile) -> tuple[str, ...]:
        """Return the texts of the columns in ``HEAD``.

        The text is empty for an unknown value and for a share below 0.05 %.
        """
        line = self.spent
        if line is None:
            return ("",) * len(HEAD)
        times = [_percent(s, profile.duration_s) for s in (line.wall_s, line.cpu_s, line.wait_s)]
        gpu = "" if line.gpu_share is None else _percent(line.gpu_share, 1.0)
        return (*times, gpu, "" if line.energy_j is None else formatting.joules(line.energy_j))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """The listing of one file.

    Attributes:
        path: path of the file.
        energy_j: sum of the known energies of the file's lines in joules.
        wall_s: sum of the times of the file's lines in seconds.
        rows: rows in the order of the lines.
    """

    path: str
    energy_j: float
    wall_s: float
    rows: Sequence[ListingRow]


def by_file(profile: LineProfile) -> Iterator[tuple[str, list[SourceLine]]]:
    """Yield each file's path and its lines in the profile, sorted by path and line number."""
    ordered = sorted(profile.lines, key=lambda line: (line.file, line.line))
    for path, lines in groupby(ordered, key=lambda line: line.file):
        yield path, list(lines)


def _files(profile: LineProfile) -> list[ListedFile]:
    """Return the listings of a profile's files, by decreasing energy."""
    hottest = max((_heat(line) for line in profile.lines), default=0.0) or 1.0
    files, left = [], _MOST_ROWS
    for path, lines in by_file(profile):
        # A line may belong to two functions, for example to a comprehension and the function around
        # it. The profile then has two entries for the line. The entry with more energy (or time, if
        # its energy is unknown) is shown.
        seen = {line.line: line for line in sorted(lines, key=_heat)}
        rows = list(_rows(path, seen, hottest))[:left]
        left -= len(rows)
        energy_j = sum(line.energy_j or 0.0 for line in seen.values())
        wall_s = sum(line.wall_s for line in seen.values())
        files.append(ListedFile(path=path, energy_j=energy_j, wall_s=wall_s, rows=rows))
    return sorted(files, key=lambda file: (file.energy_j, file.wall_s), reverse=True)


def _heat(line: SourceLine) -> float:
    return line.wall_s if line.energy_j is None else line.energy_j


def _rows(path: str, seen: Mapping[int, SourceLine], hottest: float) -> Iterator[ListingRow]:
    """Yield rows for lines in the profile, lines near them, and gaps between these lines."""
    source = dict(enumerate(linecache.getlines(path), start=1))
    near = {number + i for number in seen for i in range(-_AROUND, _AROUND + 1)}
    last = 0
    for number in sorted(near & source.keys() | seen.keys()):
        if last and number > last + 1:
            yield ListingRow()
        last, spent = number, seen.get(number)
        heat = 0.0 if spent is None else _heat(spent) / hottest
        text = source.get(number, "").rstrip("\n")
        yield ListingRow(number=number, source=text, spent=spent, heat=heat)


def text(profile: LineProfile) -> str:
    """Return the listing as plain text."""
    lines = [profile.sentence, *_explanation(profile), ""]
    for file in _files(profile):
        lines += [formatting.one_line(file.path), _columns(HEAD) + "   line  source"]
        for row in file.rows:
            cells = _columns(row.cells(profile))
            source = formatting.one_line(row.source.expandtabs(4))
            lines.append(f"{cells}  {row.number:5d}  {source}".rstrip() if row.number else "...")
        lines.append("")
    return "\n".join(lines) + "\n"


def html(profile: LineProfile) -> str:
    """Return the listing as an HTML page."""
    return template("lines.html").render(
        profile=profile, files=_files(profile), head=HEAD, explanation=_explanation(profile)
    )


def _explanation(profile: LineProfile) -> list[str]:
    totals = [
        f"{scope.scope}: {formatting.joules(scope.energy_j)}, "
        f"{formatting.joules(scope.attributed_j or 0.0)} of it attributed"
        for scope in profile.scopes
    ]
    return [*totals, _ATTRIBUTED, _PERCENT]


def _percent(value: float, whole: float) -> str:
    return f"{100.0 * value / whole:.1f} %" if whole and value >= 0.0005 * whole else ""


def _columns(cells: tuple[str, ...]) -> str:
    return "".join(f"{cell:>9}" for cell in cells[:-1]) + f"{cells[-1]:>12}"

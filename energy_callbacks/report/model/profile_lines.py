"""The records of a profile by lines of source, and their tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from typing import Final

from energy_callbacks.core import formatting

HEAD = ("line of source", "time", "CPU", "waiting", "GPU", "attributed", "share")
FUNCTION_HEAD = ("function", *HEAD[1:])
MOST_ROWS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """One line, or one function with all lines of its own.

    Attributes:
        file: path, as the interpreter knew it.
        line: number of the line; of a function the first one seen.
        function: qualified name.
        source: the line's text; ``""`` if it cannot be read, and of a function.
        wall_s: that the training thread spent there, calls to libraries included.
        cpu_s: CPU time of that thread, and of others while it was in a call.
        wait_s: time in which no thread of the process ran.
        gpu_share: of the time of kernels in the windows; ``None`` if there was no window.
        host_j: attributed, by CPU time and by waiting; ``None`` if not known.
        waiting_j: of it, while it waited.
        gpu_j: attributed, by the time of the kernels that it launched; ``None`` if not known.
    """

    file: str
    line: int
    function: str
    source: str
    wall_s: float
    cpu_s: float
    wait_s: float
    gpu_share: float | None
    host_j: float | None
    waiting_j: float | None
    gpu_j: float | None

    @property
    def energy_j(self) -> float | None:
        """Attributed energy of all scopes; ``None`` if not known."""
        known = [value for value in (self.host_j, self.gpu_j) if value is not None]
        return sum(known) if known else None

    @property
    def place(self) -> str:
        """Name of the file and number of the line."""
        return f"{PurePath(self.file).name}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeShare:
    """Energy of a scope while lines were followed, and how much of it they got.

    Attributes:
        scope: ``gpu`` or ``host``.
        energy_j: by the sensors or a model of them.
        attributed_j: to lines; ``None`` if none could be.
        reason: why not all, if known.
    """

    scope: str
    energy_j: float
    attributed_j: float | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineProfile:
    """Where in the user's source the energy went.

    Attributes:
        duration_s: that was followed.
        looks: how many times the stack was read.
        cost_share: of the time that reading took, of the thread that trains and one of ours.
        windows: in which kernels were recorded.
        scopes: totals, each with its unattributed part.
        lines: what took most first.
        functions: the one that took most first.
        files: written into the run folder.
    """

    duration_s: float
    looks: int
    cost_share: float
    windows: int
    scopes: tuple[ScopeShare, ...]
    lines: tuple[SourceLine, ...]
    functions: tuple[SourceLine, ...]
    files: tuple[str, ...]

    @property
    def energy_j(self) -> float | None:
        """Energy of all scopes; ``None`` if not known."""
        return sum(one.energy_j for one in self.scopes) if self.scopes else None

    @property
    def attributed_j(self) -> float | None:
        """Energy that is attributed to lines; ``None`` if not known."""
        known = [one.attributed_j for one in self.scopes if one.attributed_j is not None]
        return sum(known) if known else None

    @property
    def unattributed_j(self) -> float | None:
        """Energy that is not attributed; ``None`` if not known."""
        if self.energy_j is None:
            return None
        return max(self.energy_j - (self.attributed_j or 0.0), 0.0)

    @property
    def sentence(self) -> str:
        """What was measured, and how much of the energy is attributed."""
        head = f"{self.looks} looks at the stack in {formatting.duration(self.duration_s)}"
        if not self.energy_j:
            return f"{head}; no sensor told of energy: joules are not known"
        got = (self.attributed_j or 0.0) / self.energy_j
        parts = [head, f"{formatting.percent(got)} of the energy is attributed to lines"]
        parts += [f"{one.scope}: {one.reason}" for one in self.scopes if one.reason]
        return "; ".join(parts)


def tables(profile: LineProfile) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Returns title, head and rows of each table."""
    return [
        ("Energy by lines of source", HEAD, rows(profile)),
        ("Energy by functions", FUNCTION_HEAD, function_rows(profile)),
    ]


def rows(profile: LineProfile) -> list[tuple[str, ...]]:
    """Returns the table of the first lines with the columns ``HEAD``, and a row for the rest."""
    names = (f"{line.place} {line.source.strip()}".strip() for line in profile.lines)
    return _rows(profile, zip(names, profile.lines, strict=True))


def function_rows(profile: LineProfile) -> list[tuple[str, ...]]:
    """Returns the same table of functions, with the columns ``FUNCTION_HEAD``."""
    names = (f"{function.function} {function.place}" for function in profile.functions)
    return _rows(profile, zip(names, profile.functions, strict=True))


def _rows(profile: LineProfile, named: Iterable[tuple[str, SourceLine]]) -> list[tuple[str, ...]]:
    rows = [_row(profile, name, line) for name, line in islice(named, MOST_ROWS)]
    rest_j = profile.unattributed_j
    if rows and rest_j is not None:
        rest = (formatting.joules(rest_j), _percent(rest_j, profile.energy_j))
        rows.append(("unattributed", *["-"] * 4, *rest))
    return rows


def _row(profile: LineProfile, name: str, line: SourceLine) -> tuple[str, ...]:
    times_s = (line.wall_s, line.cpu_s, line.wait_s)
    return (
        name,
        *(_percent(time_s, profile.duration_s) for time_s in times_s),
        "-" if line.gpu_share is None else formatting.percent(line.gpu_share),
        formatting.scaled(line.energy_j, formatting.JOULE_UNITS),
        _percent(line.energy_j, profile.energy_j),
    )


def _percent(value: float | None, whole: float | None) -> str:
    return "-" if value is None or not whole else f"{100.0 * value / whole:.1f} %"

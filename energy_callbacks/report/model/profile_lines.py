"""Joules by line and function of the user's source, as a part of the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from energy_callbacks.core import formatting

HEAD = ("line of source", "time", "CPU", "waiting", "GPU", "attributed", "share")
FUNCTION_HEAD = ("function", "time", "CPU", "waiting", "GPU", "attributed", "share")
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
        """All that was attributed."""
        known = [value for value in (self.host_j, self.gpu_j) if value is not None]
        return sum(known) if known else None

    @property
    def place(self) -> str:
        """File and line, in short."""
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
        """Of all scopes."""
        return sum(one.energy_j for one in self.scopes) if self.scopes else None

    @property
    def attributed_j(self) -> float | None:
        """Of it, what lines got."""
        known = [one.attributed_j for one in self.scopes if one.attributed_j is not None]
        return sum(known) if known else None

    @property
    def unattributed_j(self) -> float | None:
        """The rest."""
        if self.energy_j is None:
            return None
        return max(self.energy_j - (self.attributed_j or 0.0), 0.0)

    @property
    def sentence(self) -> str:
        """What was done, and what belongs to no line."""
        head = f"{self.looks} looks at the stack in {formatting.duration(self.duration_s)}"
        if not self.energy_j:
            return f"{head}; no sensor told of energy: joules are not known"
        got = (self.attributed_j or 0.0) / self.energy_j
        parts = [head, f"{formatting.percent(got)} of the energy is attributed to lines"]
        parts += [f"{one.scope}: {one.reason}" for one in self.scopes if one.reason]
        return "; ".join(parts)


def tables(
    found: LineProfile | None,
) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Title, head and rows of each table; none if lines were not followed."""
    if found is None:
        return []
    return [
        ("Energy by lines of source", HEAD, rows(found)),
        ("Energy by functions", FUNCTION_HEAD, function_rows(found)),
    ]


def rows(found: LineProfile) -> list[tuple[str, ...]]:
    """A row for each of the first lines, as ``HEAD`` names them, and one for the rest."""
    return _rows(found, found.lines, lambda one: f"{one.place} {one.source.strip()}".strip())


def function_rows(found: LineProfile) -> list[tuple[str, ...]]:
    """The same of functions, as ``FUNCTION_HEAD`` names them."""
    return _rows(found, found.functions, lambda one: f"{one.function} {one.place}")


def _rows(found: LineProfile, ones: Sequence[SourceLine], name: Any) -> list[tuple[str, ...]]:
    shown = [_row(found, one, name(one)) for one in ones[:MOST_ROWS]]
    if shown and found.unattributed_j is not None:
        rest = (
            formatting.joules(found.unattributed_j),
            _part(found.unattributed_j, found.energy_j),
        )
        shown.append(("unattributed", *["-"] * 4, *rest))
    return shown


def _row(found: LineProfile, one: SourceLine, name: str) -> tuple[str, ...]:
    return (
        name,
        _part(one.wall_s, found.duration_s),
        _part(one.cpu_s, found.duration_s),
        _part(one.wait_s, found.duration_s),
        "-" if one.gpu_share is None else formatting.percent(one.gpu_share),
        formatting.UNKNOWN if one.energy_j is None else formatting.joules(one.energy_j),
        _part(one.energy_j, found.energy_j),
    )


def _part(value: float | None, whole: float | None) -> str:
    return "-" if value is None or not whole else f"{100.0 * value / whole:.1f} %"

"""Records of the line profile, and its tables."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePath
from typing import Final

from energy_callbacks.core import formatting
from energy_callbacks.core.stats import sum_known

HEAD = ("source line", "time", "CPU", "waiting", "GPU", "attributed", "share")
FUNCTION_HEAD = ("function", *HEAD[1:])
MOST_ROWS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """Time and energy of one line of source, or of all lines of one function without its callees.

    Attributes:
        file: path of the file, as the interpreter reports it.
        line: line number; for a function, its lowest line number in the profile.
        function: qualified name of the function.
        source: text of the line; ``""`` for a function, or if the file cannot be read.
        wall_s: time that the training thread spent in the line, including calls to libraries.
        cpu_s: CPU time of all threads of the process while the training thread was in the line.
        wait_s: waiting time. For each span between two readings of the stack, it is the wall time
            minus the CPU time, but at least 0; ``wait_s`` is the sum over these spans.
        gpu_share: time of the kernels that the line launched, as a share of the time of all kernels
            in the recorded steps, 0 to 1; ``None`` if no step was recorded.
        host_j: energy of the host, attributed by CPU time and by waiting time; ``None`` if not
            known.
        waiting_j: part of ``host_j`` that is attributed by waiting time; ``None`` if not known.
        gpu_j: energy of the GPUs, attributed by the time of the kernels that the line launched;
            ``None`` if not known.
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
        """Sum of the known values of ``host_j`` and ``gpu_j``; ``None`` if both are unknown."""
        return sum_known((self.host_j, self.gpu_j))

    @property
    def place(self) -> str:
        """Name of the file without its folder, and line number."""
        return f"{PurePath(self.file).name}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeShare:
    """Energy of one scope during the profiled time, and the part that is attributed to lines.

    Attributes:
        scope: ``gpu`` or ``host``.
        energy_j: energy of the scope, measured or estimated.
        attributed_j: part that is attributed to lines; ``None`` if no energy could be attributed.
        reason: why energy is not attributed; ``None`` if no reason is known.
    """

    scope: str
    energy_j: float
    attributed_j: float | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineProfile:
    """Energy by line of the user's source.

    Attributes:
        duration_s: profiled time.
        looks: number of times that the call stack was read.
        cost_share: time for reading the stack, on the training thread and on the profiler's thread,
            as a share of the profiled time.
        windows: number of windows of training steps in which kernels were recorded.
        scopes: energy of each scope with its attributed part.
        lines: lines of source, highest energy first.
        functions: functions, highest energy first.
        files: files written into the run folder.
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
        return sum_known(one.energy_j for one in self.scopes)

    @property
    def attributed_j(self) -> float | None:
        """Energy that is attributed to lines; ``None`` if not known."""
        return sum_known(one.attributed_j for one in self.scopes)

    @property
    def unattributed_j(self) -> float | None:
        """Energy that is not attributed to lines; ``None`` if not known."""
        if self.energy_j is None:
            return None
        return max(self.energy_j - (self.attributed_j or 0.0), 0.0)

    @property
    def sentence(self) -> str:
        """Sentence that states the profiled time, and the attributed part of the energy."""
        head = f"{self.looks} readings of the stack in {formatting.duration(self.duration_s)}"
        if not self.energy_j:
            return f"{head}; the energy is not known"
        got = (self.attributed_j or 0.0) / self.energy_j
        parts = [head, f"{formatting.percent(got)} of the energy is attributed to lines"]
        parts += [f"{one.scope}: {one.reason}" for one in self.scopes if one.reason]
        return "; ".join(parts)


def tables(profile: LineProfile) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Return title, head and rows of each table."""
    return [
        ("Energy by source line", HEAD, rows(profile)),
        ("Energy by function", FUNCTION_HEAD, function_rows(profile)),
    ]


def rows(profile: LineProfile) -> list[tuple[str, ...]]:
    """Return the table of the lines with the most energy, with the columns ``HEAD``.

    A last row, ``unattributed``, has the energy that is attributed to no line. It is left out if
    that energy is unknown or if the table has no other rows.
    """
    names = (f"{line.place} {line.source.strip()}".strip() for line in profile.lines)
    return _rows(profile, zip(names, profile.lines, strict=True))


def function_rows(profile: LineProfile) -> list[tuple[str, ...]]:
    """Return the table of the functions with the most energy, with the columns ``FUNCTION_HEAD``.

    The last row is the same as in ``rows``.
    """
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

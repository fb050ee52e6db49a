"""The records of a profile of the host: Python calls, memory and workers; their tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from energy_callbacks.core import formatting

HEAD = ("function", "calls", "own time", "share", "host, attributed")
CALLEES_HEAD = ("function", "calls", "with callees", "own time")

_ROWS = 15
KNOWS_BY_FUNCTION = (
    "cProfile knows callers by function only: what a function called is drawn in the same "
    "proportions wherever that function stands"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFunction:
    """One function, over the whole window.

    Attributes:
        name: with its file and line.
        calls: of it.
        own_s: in it, without what it called.
        all_s: with what it called.
    """

    name: str
    calls: int
    own_s: float
    all_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpan:
    """A rectangle of the icicle: a function below those that called it.

    Attributes:
        depth: number of callers above.
        start_s: from the left; order is by duration, not by time.
        width_s: seconds with callees.
    """

    name: str
    depth: int
    start_s: float
    width_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls:
    """A window of Python calls.

    Attributes:
        file: for SnakeViz and pstats, in the run folder's ``profile``.
        steps: that the window held.
        first_step: steps before it.
        duration_s: of the window.
        own_s: of all functions together.
        energy_j: of the host in the window; ``None`` if not known.
        all_threads: whether calls of other threads are among them, as from Python 3.12 on.
        functions: those with most time, most own time first.
        tree: callers first.
    """

    file: str
    steps: int
    first_step: int
    duration_s: float
    own_s: float
    energy_j: float | None
    all_threads: bool
    functions: tuple[HostFunction, ...]
    tree: tuple[HostSpan, ...]

    @property
    def sentence(self) -> str:
        """What was measured, and the energy of the host."""
        place = f"after {self.first_step} steps" if self.first_step else "from the beginning"
        threads = "all threads" if self.all_threads else "the training thread"
        joules = (
            "its energy is not known"
            if self.energy_j is None
            else f"the host used {formatting.joules(self.energy_j)}, attributed here by own time"
        )
        time = formatting.duration(self.duration_s)
        return f"{self.steps} steps in {time} {place}, {threads}; {joules}"

    @property
    def whole_s(self) -> float:
        """The time that is distributed over functions; more than ``duration_s`` for threads."""
        return max(self.duration_s, self.own_s)

    def attributed_j(self, own_s: float) -> float | None:
        """Returns the host's energy in proportion to a time; ``None`` if not known."""
        if self.energy_j is None or self.whole_s <= 0.0:
            return None
        return self.energy_j * own_s / self.whole_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLines:
    """Memory line by line, by memory_profiler.

    Attributes:
        file: with the whole table.
        lines: its first ones.
        left_out: how many more there are.
    """

    file: str
    lines: tuple[str, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWorkers:
    """Worker processes of data loaders, all together.

    Attributes:
        processes: that have written something.
        files: theirs, the first ones.
        functions: those with most time, most own time first.
        lines: the beginning of their memory tables.
    """

    processes: int
    files: tuple[str, ...]
    functions: tuple[HostFunction, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile:
    """What was found on the host; ``None`` if that was not looked at."""

    calls: HostCalls | None
    memory: MemoryLines | None
    workers: HostWorkers | None


def rows(calls: HostCalls) -> list[tuple[str, ...]]:
    """Returns the table of functions by own time, with rows for all others and for the rest."""
    shown = calls.functions[:_ROWS]
    others_s = max(calls.own_s - sum(one.own_s for one in shown), 0.0)
    rest_s = max(calls.duration_s - calls.own_s, 0.0)
    return [
        *(_row(calls, one.name, formatting.grouped(one.calls), one.own_s) for one in shown),
        _row(calls, "other functions", "", others_s),
        _row(calls, "unattributed", "", rest_s),
    ]


def _row(calls: HostCalls, name: str, count: str, own_s: float) -> tuple[str, ...]:
    energy_j = calls.attributed_j(own_s)
    share = formatting.percent(own_s / calls.whole_s) if calls.whole_s > 0.0 else "-"
    joules = "unknown" if energy_j is None else formatting.joules(energy_j)
    return (name, count, formatting.duration(own_s), share, joules)


def callee_rows(functions: Sequence[HostFunction]) -> list[tuple[str, ...]]:
    """Returns the table of functions by time with callees, with the columns ``CALLEES_HEAD``."""
    longest = sorted(functions, key=attrgetter("all_s"), reverse=True)[:_ROWS]
    return [
        (one.name, formatting.grouped(one.calls), *map(formatting.duration, (one.all_s, one.own_s)))
        for one in longest
    ]

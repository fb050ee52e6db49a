"""Where the training thread's time went, as a part of the report."""

from collections.abc import Sequence
from dataclasses import dataclass

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
        """What was followed, and what its joules are."""
        place = f"after {self.first_step} steps" if self.first_step else "from the beginning"
        threads = "all threads" if self.all_threads else "the training thread"
        joules = (
            "its energy is not known"
            if self.energy_j is None
            else f"the host used {formatting.joules(self.energy_j)}, attributed here by own time"
        )
        time = formatting.duration(self.duration_s)
        return f"{self.steps} steps in {time} {place}, {threads}; {joules}"

    def attributed_j(self, own_s: float) -> float | None:
        """The host's energy in proportion to a time; the rest is unattributed."""
        whole_s = max(self.duration_s, self.own_s)
        if self.energy_j is None or whole_s <= 0.0:
            return None
        return self.energy_j * own_s / whole_s


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
    """The functions with most own time, then all others, then the unattributed rest."""
    shown = calls.functions[:_ROWS]
    others_s = calls.own_s - sum(one.own_s for one in shown)
    nobody_s = max(calls.duration_s - calls.own_s, 0.0)
    return [
        *(_row(calls, one) for one in shown),
        ("other functions", "", formatting.duration(max(others_s, 0.0)), *_part(calls, others_s)),
        ("unattributed", "", formatting.duration(nobody_s), *_part(calls, nobody_s)),
    ]


def _row(calls: HostCalls, one: HostFunction) -> tuple[str, ...]:
    own = formatting.duration(one.own_s)
    return (one.name, formatting.grouped(one.calls), own, *_part(calls, one.own_s))


def _part(calls: HostCalls, own_s: float) -> tuple[str, str]:
    """Share of the window, and of its joules."""
    whole_s = max(calls.duration_s, calls.own_s)
    energy_j = calls.attributed_j(max(own_s, 0.0))
    share = formatting.percent(max(own_s, 0.0) / whole_s) if whole_s > 0.0 else "-"
    return share, "unknown" if energy_j is None else formatting.joules(energy_j)


def callee_rows(functions: Sequence[HostFunction]) -> list[tuple[str, ...]]:
    """The functions with most time in them and in what they called."""
    longest = sorted(functions, key=lambda one: one.all_s, reverse=True)[:_ROWS]
    return [
        (
            one.name,
            formatting.grouped(one.calls),
            formatting.duration(one.all_s),
            formatting.duration(one.own_s),
        )
        for one in longest
    ]

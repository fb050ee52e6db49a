"""Records and tables of the host profile: Python calls, memory by line, data-loader workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from energy_callbacks.core import formatting

HEAD = ("function", "calls", "own time", "share", "host, attributed")
CALLEES_HEAD = ("function", "calls", "with callees", "own time")

# Maximum number of functions in a table.
_ROWS = 15
KNOWS_BY_FUNCTION = (
    "cProfile records callers by function only. Therefore the chart divides the time of a function "
    "among its callees in the same proportions wherever the function appears."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFunction:
    """Number of calls of one function and the time spent in it, during the profiled time.

    Attributes:
        name: name of the function with its file and line.
        calls: number of calls, including recursive calls.
        own_s: time in the function itself, without the functions that it called, in seconds.
        all_s: time in the function and in the functions that it called, in seconds.
    """

    name: str
    calls: int
    own_s: float
    all_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSpan:
    """A rectangle of the icicle chart: one function, drawn below its chain of callers.

    Attributes:
        name: name of the function with its file and line.
        depth: number of callers in the chain.
        start_s: left edge, in seconds. Functions with the same caller are ordered by their time,
            longest first, not by the moment at which they were called.
        width_s: estimated time of the calls through this chain, including callees, in seconds.
    """

    name: str
    depth: int
    start_s: float
    width_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCalls:
    """Python calls in a window of training steps.

    Attributes:
        file: name of the file for SnakeViz and ``pstats`` in the folder ``profile`` of the run.
        steps: number of steps in the window.
        first_step: number of steps of the attempt before the window.
        duration_s: duration of the window, in seconds.
        own_s: sum of the own times of all functions, in seconds.
        energy_j: energy of the host in the window; ``None`` if not known or not resolved.
        all_threads: whether the calls of all threads are included (from Python 3.12 on), or only
            those of the training thread.
        functions: the functions with the longest own times, and those with the longest times
            including callees; all in descending order of own time.
        tree: rectangles of the icicle chart, callers first.
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
        """Sentence with the steps and the duration of the window, and the energy of the host."""
        place = f"after the first {self.first_step} steps" if self.first_step else "from the start"
        threads = "all threads" if self.all_threads else "the training thread"
        joules = (
            "The energy of the host is not known"
            if self.energy_j is None
            else f"The host used {formatting.joules(self.energy_j)}, attributed by own time"
        )
        time = formatting.duration(self.duration_s)
        return f"Recorded: {threads} in {self.steps} steps ({time}) {place}. {joules}."

    @property
    def whole_s(self) -> float:
        """The larger of ``duration_s`` and ``own_s``; shares of functions are relative to it."""
        return max(self.duration_s, self.own_s)

    def attributed_j(self, own_s: float) -> float | None:
        """Return the energy of the host that is attributed to a given own time.

        Args:
            own_s: own time of one or more functions.

        Returns:
            ``energy_j * own_s / whole_s``, in joules; ``None`` if ``energy_j`` is ``None`` or
            ``whole_s`` is 0.
        """
        if self.energy_j is None or self.whole_s <= 0.0:
            return None
        return self.energy_j * own_s / self.whole_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLines:
    """Memory by line of source, measured by memory_profiler.

    Attributes:
        file: name of the file with the whole table, in the folder ``profile`` of the run.
        lines: first lines of the table, as text.
        left_out: number of lines of the table that are not in ``lines``.
    """

    file: str
    lines: tuple[str, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWorkers:
    """Calls, summed over all data-loader workers, and the memory tables of the workers.

    Attributes:
        processes: number of workers that have written a file.
        files: names of the files that workers have written; if there are many, only the first 32.
        functions: the functions with the longest own times, and those with the longest times
            including callees; all in descending order of own time.
        lines: the memory tables of all workers, one after the other, each below the name of its
            file; only the first 40 lines in total.
    """

    processes: int
    files: tuple[str, ...]
    functions: tuple[HostFunction, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfile:
    """The host profile of an attempt; a part that was not profiled is ``None``.

    Attributes:
        calls: Python calls of rank 0.
        memory: memory of rank 0 by line of source.
        workers: calls and memory of the data-loader workers.
    """

    calls: HostCalls | None
    memory: MemoryLines | None
    workers: HostWorkers | None


def rows(calls: HostCalls) -> list[tuple[str, ...]]:
    """Return the rows of a table of functions by own time, with the columns ``HEAD``.

    The last two rows are the sum over all other functions, and the time outside all functions.
    """
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
    joules = formatting.UNKNOWN if energy_j is None else formatting.joules(energy_j)
    return (name, count, formatting.duration(own_s), share, joules)


def callee_rows(functions: Sequence[HostFunction]) -> list[tuple[str, ...]]:
    """Return table rows with columns ``CALLEES_HEAD``, longest time including callees first."""
    longest = sorted(functions, key=attrgetter("all_s"), reverse=True)[:_ROWS]
    return [
        (one.name, formatting.grouped(one.calls), *map(formatting.duration, (one.all_s, one.own_s)))
        for one in longest
    ]

"""Profiles Python calls with cProfile, and summarises them as a table of functions and a call tree.

cProfile records the direct callers of a function, but not whole call stacks. In the call tree, the
times of a function's callees are therefore estimates: wherever the function appears, its time is
divided among its callees in the same proportions.
"""

import cProfile
import marshal
import pstats
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from energy_callbacks.core import atomic_files, forks
from energy_callbacks.profiling.common.main_thread import on_thread

Function = tuple[str, int, str]
"""File, line and name of a function, as in ``pstats``; the file of functions in C is ``~``."""

# The table in the report contains this number of functions with the most own time (time in callees
# excluded), and the same number of functions with the most cumulative time (callees included).
_FUNCTIONS: Final = 20
# Limits of the icicle chart: maximum number of rectangles, maximum number of levels, and minimum
# width of a rectangle as a share of the total.
_NODES, _DEPTH, _NARROWEST_SHARE = 300, 24, 0.004


class ProfileWindow:
    """A period in which cProfile profiles the calling thread (Python 3.12 or later: all threads).

    The period begins when the object is created.

    Raises:
        ValueError: if another profiler is active.
    """

    _open: ClassVar["set[ProfileWindow]"] = set()

    def __init__(self) -> None:
        if (other := _active_profiler()) is not None:
            raise ValueError(
                f"another profiler is active ({other}), and Python allows only one; stop it "
                "before the training, or leave HostProfiler out"
            )
        self._thread = threading.get_ident()
        self._profile = cProfile.Profile()
        self._profile.enable()
        self._open.add(self)

    def end(self) -> None:
        """End the period, if it has not ended yet.

        Before Python 3.12, only the profiled thread itself can end the period. If another thread
        calls this method, the main thread soon ends its own period; a period of any other thread
        does not end.
        """
        if self not in self._open:
            return
        self._open.discard(self)
        if sys.version_info >= (3, 12):
            self._profile.disable()
        else:
            on_thread(self._thread, self._disable)

    def _disable(self) -> None:
        # Before Python 3.12, disabling any profiler ends the active one, which may be the user's.
        active: object = sys.getprofile()
        if active is self._profile:
            self._profile.disable()

    @classmethod
    def end_all(cls) -> None:
        """End all periods that have not ended yet."""
        for window in tuple(cls._open):
            window.end()

    def save(self, path: Path) -> "Calls":
        """End the period, write its calls to a file for SnakeViz and pstats, and return them.

        Raises:
            OSError: if the file cannot be written.
        """
        self.end()
        self._profile.snapshot_stats()  # unlike create_stats, it does not disable a profiler
        atomic_files.write(path, marshal.dumps(vars(self._profile)["stats"]))
        return Calls.read(path)


# A forked child process would continue the profile of its parent.
forks.call_in_children(ProfileWindow.end_all)


def _active_profiler() -> str | None:
    """Return a description of the active profiler; ``None`` if no profiler is active.

    Before Python 3.12, only the profiler of this thread is found.
    """
    if (function := sys.getprofile()) is not None:
        return repr(function)
    if sys.version_info >= (3, 12):
        return sys.monitoring.get_tool(sys.monitoring.PROFILER_ID)
    return None


class Calls:
    """The statistics of finished profiles.

    Args:
        stats: ``pstats.Stats(...).stats``: for each function the number of primitive (not
            recursive) calls, the number of all calls, own seconds, cumulative seconds, and the same
            four numbers by caller.
    """

    def __init__(self, stats: Mapping[Function, Any]) -> None:
        self._stats = stats
        self._callees: dict[Function, list[tuple[Function, float]]] = defaultdict(list)
        for function, line in stats.items():
            for caller, edge in line[4].items():
                self._callees[caller].append((function, edge[3]))

    @classmethod
    def read(cls, *paths: Path) -> "Calls":
        """Return the sum of the profiles in some files."""
        return cls(vars(pstats.Stats(*map(str, paths)))["stats"])

    @property
    def own_s(self) -> float:
        """Total own time of all functions in seconds (time in callees excluded)."""
        return float(sum(own_s for _, _, own_s, _, _ in self._stats.values()))

    def top(self) -> list[dict[str, Any]]:
        """Return the 20 functions with the most own time and the 20 with the most cumulative time.

        The functions are in descending order of own time; each is listed once.
        """
        by_own, by_cumulative = (
            sorted(self._stats, key=lambda function: self._stats[function][column], reverse=True)
            for column in (2, 3)
        )
        chosen = {*by_own[:_FUNCTIONS], *by_cumulative[:_FUNCTIONS]}
        lines = [(label(one), *self._stats[one][1:4]) for one in by_own if one in chosen]
        return [dict(zip(("name", "calls", "own_s", "all_s"), line, strict=True)) for line in lines]

    def tree(self) -> list[dict[str, Any]]:
        """Return the rectangles of an icicle chart: name, depth, start and width in seconds."""
        roots = [(function, self._uncalled_s(function)) for function in self._stats]
        least_s = _NARROWEST_SHARE * sum(width_s for _, width_s in roots)
        nodes = self._nodes(roots, 0.0, (), least_s)
        return sorted(nodes, key=lambda node: (node["depth"], node["start_s"]))[:_NODES]

    def _uncalled_s(self, function: Function) -> float:
        """Return the cumulative seconds of a function's calls that have no recorded caller."""
        *_, cumulative_s, callers = self._stats[function]
        called_s = sum(line[3] for caller, line in callers.items() if caller != function)
        return max(float(cumulative_s - called_s), 0.0)

    def _nodes(
        self,
        siblings: Sequence[tuple[Function, float]],
        start_s: float,
        above: tuple[Function, ...],
        least_s: float,
    ) -> Iterator[dict[str, Any]]:
        depth = len(above)
        for function, width_s in sorted(siblings, key=lambda one: one[1], reverse=True):
            if width_s <= least_s or function in above or depth >= _DEPTH:
                continue
            name = label(function)
            yield {"name": name, "depth": depth, "start_s": start_s, "width_s": width_s}
            path = (*above, function)
            yield from self._nodes(self._below(function, width_s), start_s, path, least_s)
            start_s += width_s

    def _below(self, function: Function, width_s: float) -> list[tuple[Function, float]]:
        """Return the callees of a function that takes ``width_s`` seconds, with their seconds."""
        callees = [(callee, s) for callee, s in self._callees[function] if callee != function]
        total_s = max(self._stats[function][3], sum(s for _, s in callees))
        return [(callee, s * width_s / total_s) for callee, s in callees] if total_s > 0.0 else []


def label(function: Function) -> str:
    """Return the label of a function: name, last two parts of the file's path, and line.

    Functions written in C have neither file nor line; their label is based on the description that
    cProfile gives as their name.

    >>> label(("/home/me/project/data.py", 12, "load"))
    'load (project/data.py:12)'
    >>> label(("~", 0, "<built-in method time.sleep>"))
    'time.sleep (built-in)'
    >>> label(("~", 0, "<method 'sum' of 'torch._C.TensorBase' objects>"))
    'torch._C.TensorBase.sum (built-in)'
    """
    file, line, name = function
    if file == "~":
        name = re.sub(r"<method '(.*)' of '(.*)' objects>", r"\2.\1", name)
        return re.sub(r"<built-in method (.*)>", r"\1", name) + " (built-in)"
    return f"{name} ({'/'.join(Path(file).parts[-2:])}:{line})"

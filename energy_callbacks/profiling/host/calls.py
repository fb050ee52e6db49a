"""Results of cProfile: functions, and the tree of callers.

cProfile knows of a function by whom it was called, but not from where those were called in turn.
The tree below a function is therefore the same, in its proportions, wherever the function stands.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

Function = tuple[str, int, str]
"""File, line and name, as in ``pstats``; the file of what is written in C is ``~``."""

# All that a report shows: a table of some functions, a picture of at most this many rectangles.
_FUNCTIONS: Final = 20
_NODES, _DEPTH, _NARROWEST_SHARE = 300, 24, 0.004


class Calls:
    """The statistics of a profile that has ended.

    Args:
        stats: ``pstats.Stats(...).stats``: for each function the calls (twice), own and cumulative
            seconds, and the same by caller.
    """

    def __init__(self, stats: Mapping[Function, Any]) -> None:
        self._stats = stats
        self._callees: dict[Function, list[tuple[Function, float]]] = defaultdict(list)
        for function, line in stats.items():
            for caller, edge in line[4].items():
                self._callees[caller].append((function, edge[3]))

    @property
    def own_s(self) -> float:
        """Own time of all functions together."""
        return float(sum(own_s for _, _, own_s, _, _ in self._stats.values()))

    def top(self) -> list[dict[str, Any]]:
        """The functions with most own or most cumulative time, most own time first."""
        by_own, by_cumulative = (
            sorted(self._stats, key=lambda one: self._stats[one][column], reverse=True)
            for column in (2, 3)
        )
        chosen = dict.fromkeys([*by_own[:_FUNCTIONS], *by_cumulative[:_FUNCTIONS]])
        found = [self._line(one) for one in chosen]
        return sorted(found, key=lambda one: one["own_s"], reverse=True)

    def _line(self, function: Function) -> dict[str, Any]:
        _, calls, own_s, cumulative_s, _ = self._stats[function]
        return {"name": label(function), "calls": calls, "own_s": own_s, "all_s": cumulative_s}

    def tree(self) -> list[dict[str, Any]]:
        """Rectangles of an icicle: name, depth, start and width in seconds; callers first."""
        roots = [(one, self._uncalled_s(one)) for one in self._stats]
        least_s = _NARROWEST_SHARE * sum(width_s for _, width_s in roots)
        return sorted(
            self._nodes(roots, 0.0, (), least_s), key=lambda node: (node["depth"], node["start_s"])
        )[:_NODES]

    def _uncalled_s(self, function: Function) -> float:
        """Time of those calls whose caller was not seen."""
        *_, cumulative_s, callers = self._stats[function]
        known_s = sum(line[3] for caller, line in callers.items() if caller != function)
        return max(float(cumulative_s - known_s), 0.0)

    def _nodes(
        self,
        siblings: Sequence[tuple[Function, float]],
        start_s: float,
        above: tuple[Function, ...],
        least_s: float,
    ) -> Iterator[dict[str, Any]]:
        for function, width_s in sorted(siblings, key=lambda one: one[1], reverse=True):
            if width_s <= least_s or function in above or len(above) >= _DEPTH:
                continue
            yield {
                "name": label(function),
                "depth": len(above),
                "start_s": start_s,
                "width_s": width_s,
            }
            path = (*above, function)
            yield from self._nodes(self._below(function, width_s), start_s, path, least_s)
            start_s += width_s

    def _below(self, function: Function, width_s: float) -> list[tuple[Function, float]]:
        """The callees of a function, in proportion to the considered part of its time."""
        found = [(one, s) for one, s in self._callees[function] if one != function]
        whole_s = max(self._stats[function][3], sum(s for _, s in found))
        return [(one, s * width_s / whole_s) for one, s in found] if whole_s > 0.0 else []


def label(function: Function) -> str:
    """A function in a table: name, then the last two parts of its file and the line.

    What is written in C has neither, and a name in words of cProfile.

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

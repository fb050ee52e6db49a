"""Stacks with their joules, for flame graphs: folded lines and speedscope's JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from energy_callbacks.profiling.common.speedscope import document, sampled
from energy_callbacks.profiling.lines.source_location import Line

_POOLED = Line("", 0, "(other stacks)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One stack.

    Attributes:
        frames: outermost first; libraries' have line 0. Empty if stacks were pooled.
        wall_s: seconds.
        energy_j: attributed to its innermost line of the user's.
    """

    frames: tuple[Line, ...]
    wall_s: float
    energy_j: float


def folded(stacks: Sequence[Stack]) -> str:
    r"""A line for each stack and its millijoules, as ``flamegraph.pl`` reads them.

    >>> frames = (Line("a/train.py", 3, "main"), Line("a/data;1.py", 9, "load"))
    >>> folded([Stack(frames=frames, wall_s=1.0, energy_j=0.25)])
    'main (train.py:3);load (data,1.py:9) 250\n'
    """
    lines = [
        f"{';'.join(name(one).replace(';', ',') for one in _frames(stack))} {round(unit)}\n"
        for stack in stacks
        if (unit := 1000.0 * stack.energy_j) >= 0.5
    ]
    return "".join(sorted(lines))


def name(line: Line) -> str:
    """A frame in a few words."""
    file = line.file.replace("\\", "/").rpartition("/")[2]
    place = f"{file}:{line.line}" if line.line else file
    return f"{line.function} ({place})" if place else line.function


def speedscope(stacks: Sequence[Stack]) -> str:
    """Joules, and seconds beside them, for speedscope."""
    frames: dict[Line, int] = {}
    samples = [[frames.setdefault(one, len(frames)) for one in _frames(s)] for s in stacks]
    joules = [1e3 * stack.energy_j for stack in stacks]
    seconds = [stack.wall_s for stack in stacks]
    return document(
        "energy by lines of source, attributed",
        [_frame(line) for line in frames],
        [
            sampled("millijoules, attributed", "none", samples, joules),
            sampled("time", "seconds", samples, seconds),
        ],
    )


def _frames(stack: Stack) -> tuple[Line, ...]:
    return stack.frames or (_POOLED,)


def _frame(line: Line) -> dict[str, Any]:
    found: dict[str, Any] = {"name": line.function, "file": line.file}
    return found | {"line": line.line} if line.line else found

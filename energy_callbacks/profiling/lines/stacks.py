"""Formats stacks with their energy for flame graphs: as folded lines, and as speedscope's JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from energy_callbacks.profiling.common import speedscope as speedscope_file
from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.lines.attribution import Shares
from energy_callbacks.profiling.lines.tally import LineTally

_POOLED = (Line("", 0, "(other stacks)"),)


@dataclass(slots=True, kw_only=True)
class Stack:
    """Time and energy of one stack.

    Attributes:
        frames: frames, outermost first; library frames have line 0. Empty for the sum of all
            stacks after the first ``tally.MOST_STACKS``.
        wall_s: time in this stack in seconds.
        energy_j: energy in joules: this stack's part of the energy of its innermost line of the
            user's code.
    """

    frames: tuple[Line, ...]
    wall_s: float = 0.0
    energy_j: float = 0.0


def stacks_of(tally: LineTally, shares: Shares) -> list[Stack]:
    """Return the stacks; the energy of each line is divided among its stacks by their time."""
    stacks: dict[tuple[Line, ...], Stack] = {}
    for (site, codes), wall_s in tally.stacks.items():
        frames = tuple(tally.frame_line(*code) for code in codes)
        stack = stacks.setdefault(frames, Stack(frames=frames))
        stack.wall_s += wall_s
        share = None if site is None else shares.get(tally.line(site))
        if share is not None and share.wall_s:
            stack.energy_j += (share.energy_j or 0.0) * wall_s / share.wall_s
    return list(stacks.values())


def folded(stacks: Sequence[Stack]) -> str:
    r"""Return one line of text per stack, with the stack's energy in mJ, for ``flamegraph.pl``.

    Stacks with less than 0.5 mJ are left out.

    >>> frames = (Line("a/train.py", 3, "main"), Line("a/data;1.py", 9, "load"))
    >>> folded([Stack(frames=frames, wall_s=1.0, energy_j=0.25)])
    'main (train.py:3);load (data,1.py:9) 250\n'
    """
    lines = []
    for stack in stacks:
        names = [_name(line).replace(";", ",") for line in stack.frames or _POOLED]
        energy_mj = 1000.0 * stack.energy_j
        if energy_mj >= 0.5:
            lines.append(f"{';'.join(names)} {round(energy_mj)}\n")
    return "".join(sorted(lines))


def _name(line: Line) -> str:
    file = line.file.replace("\\", "/").rpartition("/")[2]
    place = f"{file}:{line.line}" if line.line else file
    return f"{line.function} ({place})" if place else line.function


def speedscope(stacks: Sequence[Stack]) -> str:
    """Return energy and time of stacks as JSON for speedscope."""
    return speedscope_file.document(
        "energy by lines of source, attributed",
        [stack.frames or _POOLED for stack in stacks],
        _frame,
        {
            "millijoules, attributed": ("none", [1e3 * stack.energy_j for stack in stacks]),
            "time": ("seconds", [stack.wall_s for stack in stacks]),
        },
    )


def _frame(line: Line) -> dict[str, Any]:
    number = {"line": line.line} if line.line else {}
    return {"name": line.function, "file": line.file, **number}

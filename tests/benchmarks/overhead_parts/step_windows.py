"""Measures what other tools cost a loop with one window per step, each in its own process.

``python -m tests.benchmarks.overhead_parts.step_windows NAME PAIRS OUT [--fake]`` measures one tool
with the interpreter that has it; OUT gets a JSON list with an entry for each loop.
"""

import argparse
import json
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.common.loops import Loop, fake_loops, gpu_loops
from tests.benchmarks.common.pairs import Change, interleaved
from tests.benchmarks.common.tools import CODECARBON, MAKERS, Tool, closed, interpreter
from tests.benchmarks.overhead_parts.hook_costs import HookCost, of_windows

TOOLS: Final = ("Zeus", CODECARBON)
_ROOT: Final = Path(__file__).parents[3]
_PEER_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The cost of a peer with one window per step in one loop."""

    tool: str
    loop: str
    hook: HookCost
    change: Change


def measured(name: str, loop: Loop, pairs: int, *, is_fake: bool) -> Peer:
    """Run steps with and without a window in turn, in short rounds, as some take 10 ms a step."""
    tool: Tool = MAKERS[name](sync=not is_fake)

    def step() -> None:
        tool.begin()
        loop.step()
        tool.end()

    cost = of_windows(loop, tool, max(round(_PEER_S / loop.step_s / 4.0), 20))
    found = interleaved(loop, pairs, step, half_s=_PEER_S)
    closed(tool)
    return Peer(tool=name, loop=loop.name, hook=cost, change=found)


def measured_beside(
    peers: str | None, pairs: int, unknown: dict[str, str], *, is_fake: bool
) -> list[Peer]:
    """Measure all available tools; the reason why one has no figures is written to ``unknown``.

    A tool that fails does not affect our figures, as time on a GPU is scarce.
    """
    found: list[Peer] = []
    for name in TOOLS:
        python = interpreter(name, peers)
        if python is None:
            unknown[name] = "not here (--peers)"
            continue
        try:
            found += _in_a_process(python, name, pairs, is_fake=is_fake)
        except (RuntimeError, ValueError, OSError) as error:
            unknown[name] = f"failed: {error}"
    return found


def _in_a_process(python: str, name: str, pairs: int, *, is_fake: bool) -> list[Peer]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [
            python,
            "-m",
            "tests.benchmarks.overhead_parts.step_windows",
            name,
            str(pairs),
            str(out),
        ]
        answer = subprocess.run(
            [*command, "--fake"] if is_fake else command,
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise RuntimeError(answer.stderr[-500:])
        rows = json.loads(out.read_text(encoding="utf-8"))
    return [
        Peer(**{**row, "hook": HookCost(**row["hook"]), "change": Change(**row["change"])})
        for row in rows
    ]


def main() -> None:
    """Measure one tool in both loops."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=TOOLS)
    parser.add_argument("pairs", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--fake", action="store_true")
    told = parser.parse_args()
    loops = fake_loops() if told.fake else gpu_loops()
    found = [measured(told.name, loop, told.pairs, is_fake=told.fake) for loop in loops]
    told.out.write_text(json.dumps([asdict(one) for one in found]), encoding="utf-8")


if __name__ == "__main__":
    main()

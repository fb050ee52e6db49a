"""Measures what our hooks take from the training thread: ``python -m tests.benchmarks.hooks``.

Each framework trains twice on the CPU, in its own process, with a logger:

* with the default rows: the bars for steps without a row are 5 us for all hooks of a step together
  (median) and 50 us (99th percentile);
* with a row at every tenth step: the bar for our own part of a row is 100 us (median). The time of
  the loggers is shown beside it.

Methods that we replace, such as Lightning's ``save_checkpoint``, count without the original method.
Every timed call contains about 0.1 us of reading the clock. The first 20 steps are left out.
"""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.hook_times import Costs, HookTimes

# The module of each framework in ``hook_trainings``, and the package that it needs.
FRAMEWORKS: Final = {"lightning": "lightning"}
STEPS, QUICK_STEPS = 6_000, 1_500
EVERY: Final = 10
MEDIAN_US, P99_US, ROW_US, ROWS_PER_S = 5.0, 50.0, 100.0, 1.0


def measured(framework: str, steps: int, every: int | None) -> Costs:
    """Train in a new process, and return what the hooks cost."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "costs.json"
        options = ["--child", framework, "--steps", str(steps), "--json", str(file)]
        rows = [] if every is None else ["--every", str(every)]
        command = [sys.executable, "-m", "tests.benchmarks.hooks", *options, *rows]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the training with {framework} failed:\n{done.stderr[-3000:]}")
        return Costs(**json.loads(file.read_text(encoding="utf-8")))


def child(framework: str, steps: int, every: int | None, file: Path) -> int:
    """Train in this process, and write the costs to a file."""
    times = HookTimes()
    training = importlib.import_module(f"tests.benchmarks.hook_trainings.{framework}")
    training.train(times, steps=steps, every=every)
    file.write_text(json.dumps(asdict(times.costs())), encoding="utf-8")
    return 0


def judged(framework: str, default: Costs, often: Costs) -> list[Bar]:
    """Return the bars of one framework."""
    return [
        Bar(
            name=f"{framework}: us of all hooks of a step, median",
            value=default.median_us,
            at_most=MEDIAN_US,
        ),
        Bar(
            name=f"{framework}: us of all hooks of a step, 99 %",
            value=default.p99_us,
            at_most=P99_US,
        ),
        Bar(name=f"{framework}: us of our part of a row", value=often.row_us, at_most=ROW_US),
    ]


def table(found: dict[str, tuple[Costs, Costs]]) -> str:
    """Return all measurements as text."""
    lines = [
        f"{'us on the training thread':<44}{'median':>9}{'99 %':>9}{'row':>9}{'logger':>9}"
        f"{'rows/s':>9}{'steps':>8}{'rows':>6}"
    ]
    for framework, both in found.items():
        for name, costs in zip(("default rows", f"a row every {EVERY} steps"), both, strict=True):
            lines.append(
                f"{f'{framework}, {name}':<44}{costs.median_us:>9.1f}{costs.p99_us:>9.1f}"
                f"{costs.row_us:>9.1f}{costs.logger_us:>9.1f}{costs.rows_per_s:>9.2f}"
                f"{costs.steps:>8}{costs.rows:>6}"
            )
        lines += [f"  {name:<42}{us:>9.1f}" for name, us in both[0].hooks_us.items() if us]
    return "\n".join(lines)


def main() -> int:
    """Measure all frameworks, print the table, and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--only", choices=FRAMEWORKS, help="measure one framework")
    parser.add_argument("--child", choices=FRAMEWORKS, help="internal: train in this process")
    parser.add_argument("--steps", type=int, help="number of steps of each training")
    parser.add_argument("--every", type=int, help="internal: steps between two rows")
    arguments = parser.parse_args()
    steps = arguments.steps or (QUICK_STEPS if arguments.quick else STEPS)
    if arguments.child:
        return child(arguments.child, steps, arguments.every, arguments.json)
    wanted = [arguments.only] if arguments.only else list(FRAMEWORKS)
    unknown = [name for name in wanted if importlib.util.find_spec(FRAMEWORKS[name]) is None]
    found = {
        name: (measured(name, steps, None), measured(name, steps, EVERY))
        for name in wanted
        if name not in unknown
    }
    if not found:
        return bars.skip(arguments, f"not installed: {', '.join(unknown)}")
    print(f"load {os.getloadavg()[0]:.1f}\n{table(found)}")
    figures: dict[str, Any] = {
        name: {"default": asdict(default), "often": asdict(often)}
        for name, (default, often) in found.items()
    }
    all_bars = [bar for name, both in found.items() for bar in judged(name, *both)]
    return bars.finish("hooks", arguments, all_bars, frameworks=figures, not_installed=unknown)


if __name__ == "__main__":
    sys.exit(main())

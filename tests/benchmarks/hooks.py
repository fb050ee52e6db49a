"""Measures what our hooks take from the training thread: ``python -m tests.benchmarks.hooks``.

Each framework trains twice on the CPU, in its own process, with a logger:

* with the default rows, by the wall clock. All hooks of a step without a row together: the median
  must be at most 5 us, the 99th percentile at most 50 us. The percentile is not judged if other
  programs use the machine's cores.
* with a row at every tenth step, by the processor time of the training thread. Our own part of a
  row (median) must be at most 100 us, and the 99th percentile of steps without a row at most 50 us.
  The time of the loggers is shown beside it.

Methods that we replace, such as Lightning's ``save_checkpoint``, count without the original method.
The first 20 steps are left out.
"""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.hook_times import Costs, HookTimes

# The module of each framework in ``hook_trainings``, and the package that it needs.
FRAMEWORKS: Final = {"lightning": "lightning", "huggingface": "transformers", "keras": "keras"}
STEPS, QUICK_STEPS = 6_000, 1_000
EVERY: Final = 10
MEDIAN_US, P99_US, ROW_US = 5.0, 50.0, 100.0


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
    times = HookTimes(time.perf_counter_ns if every is None else time.thread_time_ns)
    training = importlib.import_module(f"tests.benchmarks.hook_trainings.{framework}")
    training.train(times, steps=steps, every=every)
    file.write_text(json.dumps(asdict(times.costs())), encoding="utf-8")
    return 0


def judged(framework: str, default: Costs, often: Costs) -> list[Bar]:
    """Return the bars of one framework."""
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1)
    steps = f"{framework}: us of all hooks in a step without a row"
    return [
        Bar(name=f"{steps}, median", value=default.median_us, at_most=MEDIAN_US),
        Bar(name=f"{steps}, 99 %", value=default.p99_us, at_most=P99_US, is_judged=not is_busy),
        Bar(name=f"{steps}, 99 %, processor time", value=often.p99_us, at_most=P99_US),
        Bar(
            name=f"{framework}: us of our part of a row, processor time",
            value=often.row_us,
            at_most=ROW_US,
        ),
    ]


def table(found: dict[str, tuple[Costs, Costs]]) -> str:
    """Return all measurements as text."""
    heads = ("median", "99 %", "row", "logger", "rows/s", "step", "steps", "rows")
    lines = [f"{'us on the training thread':<44}" + "".join(f"{head:>9}" for head in heads)]
    for framework, (default, often) in found.items():
        for name, costs in (("default rows", default), ("row every 10, processor time", often)):
            lines.append(
                f"{f'{framework}, {name}':<44}{costs.median_us:>9.1f}{costs.p99_us:>9.1f}"
                f"{costs.row_us:>9.1f}{costs.logger_us:>9.1f}{costs.rows_per_s:>9.2f}"
                f"{costs.step_ms:>6.1f} ms{costs.steps:>9}{costs.rows:>9}"
            )
        for name, us in default.hooks_us.items():
            row_us = often.row_hooks_us[name]
            if us or row_us:
                lines.append(f"  {name:<42}{us:>9.1f}{'':9}{row_us:>9.1f}")
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

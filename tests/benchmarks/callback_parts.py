"""Finds which part of the callback makes the steps of a Lightning training longer.

``python -m tests.benchmarks.callback_parts [--quick] [--gpu] [--json FILE]``

One training in one process, whose single steps are compared, so that other programs of the machine
affect all parts alike:

* *hooks*: our callback and the methods that it replaces are left out of every second step, at
  random. The part is the median of steps with them less that of steps without, in wall time and in
  the processor time of the training thread. Steps with a row or with work of a thread are left out.
* *rows*: steps in which we log a row, less other steps with hooks.
* *threads*: for every turn of a thread of ours, how much longer the steps were that overlap with it
  than the median of the steps around them. Beside it stands the processor time of the turn: a ratio
  of 1 means that the training waits for as long as the thread computes, as it does where both need
  Python's interpreter.

Each part is also given as a share: of all time, if the part occurs as often as in this training
(rows at the default rate). There are no bars.
"""

import logging
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.sensing.clock import Periodic, SystemClock
from tests.benchmarks import bars
from tests.benchmarks.common.played_card import played_card
from tests.benchmarks.common.trainings import ON_CPU, ON_GPU, Ticks, Training

LENGTH_S, QUICK_LENGTH_S = 60.0, 15.0
_SETTLED_S: Final = 3.0
_AROUND: Final = 20
_CHILD: Final = "TESTS_BENCHMARKS_ON_PLAYED_CARD"


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a periodic job: its thread, begin, end and processor time, s."""

    thread: str
    start_s: float
    end_s: float
    cpu_s: float


class NotingClock(SystemClock):
    """The real clock, which notes every turn of every job."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:
        """See ``Clock``."""

        def noted() -> float | None:
            start_s, cpu_s = time.perf_counter(), time.thread_time()
            try:
                return job()
            finally:
                spent_s = time.thread_time() - cpu_s
                self.turns.append(Turn(name, start_s, time.perf_counter(), spent_s))

        return super().every(interval_s, noted, name)


@dataclass(slots=True)
class Steps:
    """What is noted at the end of each step.

    Attributes:
        end_s: monotonic time.
        cpu_s: processor time of the training thread.
        has_hooks: whether our hooks were called in the step.
        has_row: whether a row was logged in it.
    """

    end_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    has_hooks: list[bool] = field(default_factory=list)
    has_row: list[bool] = field(default_factory=list)


def _driver(ours: Any, steps: Steps) -> Any:
    """Return a callback that ends each step, and decides whether the next one has our hooks."""
    from lightning.pytorch import Callback

    rows = [0]
    log = ours._meter.log

    def counted(step: int) -> Any:
        rows[0] += 1
        return log(step)

    ours._meter.log = counted
    dice = random.Random(0)

    class Driver(Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            plugin = trainer.precision_plugin
            self.with_, self.without = list(trainer.callbacks), [self]
            self.replaced = vars(plugin).get("convert_input")
            self.is_on, self.rows = True, rows[0]

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            steps.end_s.append(time.perf_counter())
            steps.cpu_s.append(time.thread_time())
            steps.has_hooks.append(self.is_on)
            steps.has_row.append(rows[0] > self.rows)
            self.rows = rows[0]
            self.is_on = dice.random() < 0.5
            trainer.callbacks = self.with_ if self.is_on else self.without
            if self.is_on and self.replaced is not None:
                trainer.precision_plugin.convert_input = self.replaced
            else:
                vars(trainer.precision_plugin).pop("convert_input", None)

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.callbacks = self.with_

    return Driver()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one part adds to the steps.

    Attributes:
        name: name of the part.
        per_s: how often it occurs in a second.
        longer_us: how much longer it makes a step, median, us.
        mean_us: the same, mean; NaN for hooks.
        cpu_us: processor time of the part, median, us.
    """

    name: str
    per_s: float
    longer_us: float
    mean_us: float
    cpu_us: float

    @property
    def share(self) -> float:
        """Share of all time."""
        return self.per_s * self.longer_us / 1e6


def parts(steps: Steps, turns: Sequence[Turn]) -> list[Part]:
    """Return the parts of a training after its first 3 s."""
    end_s, cpu_s = np.array(steps.end_s), np.array(steps.cpu_s)
    wall_us, own_us = 1e6 * np.diff(end_s), 1e6 * np.diff(cpu_s)
    hooks, rows = np.array(steps.has_hooks)[1:], np.array(steps.has_row)[1:]
    busy, of_turns = np.zeros(len(hooks), dtype=bool), []
    for turn in turns:
        first = max(bisect_left(steps.end_s, turn.start_s) - 1, 0)
        last = min(bisect_left(steps.end_s, turn.end_s), len(hooks))
        busy[first:last] = True
        of_turns.append((turn, first, last))
    is_late = end_s[1:] > end_s[0] + _SETTLED_S
    plain = is_late & ~busy & ~rows
    length_s = end_s[-1] - end_s[0] - _SETTLED_S

    def added(some: Any, others: Any, what: Any) -> float:
        return float(np.median(what[some]) - np.median(what[others]))

    on, off, with_row = plain & hooks, plain & ~hooks, is_late & rows & ~busy
    # Every second step has no hooks here: in a training there are twice as many with hooks.
    found = [
        Part(
            name="hooks of a step without a row",
            per_s=len(wall_us[is_late]) / length_s,
            longer_us=added(on, off, wall_us),
            mean_us=float("nan"),
            cpu_us=added(on, off, own_us),
        )
    ]
    if with_row.any():
        found.append(
            Part(
                name="a row",
                per_s=2.0 * rows[is_late].sum() / length_s,
                longer_us=added(with_row, on, wall_us),
                mean_us=float(wall_us[with_row].mean() - np.median(wall_us[on])),
                cpu_us=added(with_row, on, own_us),
            )
        )
    late = [(turn, a, b) for turn, a, b in of_turns if turn.start_s > end_s[0] + _SETTLED_S]
    for name in dict.fromkeys(turn.thread for turn, _, _ in late):
        excess, cpu = [], []
        for turn, first, last in late:
            if turn.thread != name or last <= first:
                continue
            around = np.arange(max(first - _AROUND, 0), min(last + _AROUND, len(plain)))
            usual = wall_us[around][plain[around]]
            if len(usual):
                excess.append(wall_us[first:last].sum() - (last - first) * np.median(usual))
                cpu.append(1e6 * turn.cpu_s)
        found.append(
            Part(
                name=f"thread {name.removeprefix('energy_callbacks ')}",
                per_s=len(excess) / length_s,
                longer_us=float(np.median(excess)),
                mean_us=float(np.mean(excess)),
                cpu_us=float(np.median(cpu)),
            )
        )
    return found


def measured(training: Training, length_s: float) -> tuple[float, list[Part]]:
    """Return the median step without hooks, s, and the parts."""
    from energy_callbacks.lightning import GpuEnergyCallback

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work, step_s = training.calibrated(folder)
        clock, steps = NotingClock(), Steps()
        config = EnergyConfig(report_dir=folder / "energy", devices="all")
        ours = GpuEnergyCallback(meter=EnergyMeter(config=config, clock=clock))
        callbacks = [ours, _driver(ours, steps)]
        training.fit(work, round(length_s / step_s), Ticks(), callbacks, folder)()
    wall_s = np.diff(steps.end_s)
    return float(np.median(wall_s[~np.array(steps.has_hooks)[1:]])), parts(steps, clock.turns)


def table(step_s: float, found: Sequence[Part]) -> str:
    """Return the parts as text."""
    heads = ("per s", "longer, us", "mean, us", "CPU, us", "share")
    lines = [f"{f'step of {1e3 * step_s:.2f} ms':<36}" + "".join(f"{head:>12}" for head in heads)]
    lines += [
        f"{one.name:<36}{one.per_s:>12.2f}{one.longer_us:>12.1f}{one.mean_us:>12.1f}"
        f"{one.cpu_us:>12.1f}{one.share:>12.3%}"
        for one in found
    ]
    return "\n".join([*lines, f"{'together':<84}{sum(one.share for one in found):>12.3%}"])


def main() -> int:
    """Print the table of each training, and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--gpu", action="store_true", help="two trainings on a GPU with CUDA")
    arguments = parser.parse_args()
    if not arguments.gpu and _CHILD not in os.environ:
        with played_card():
            command = [sys.executable, "-m", "tests.benchmarks.callback_parts", *sys.argv[1:]]
            environment = os.environ | {_CHILD: "1"}
            return subprocess.run(command, env=environment, check=False).returncode
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    length_s = QUICK_LENGTH_S if arguments.quick else LENGTH_S
    figures = {}
    for training in ON_GPU if arguments.gpu else ON_CPU[:1]:
        step_s, found = measured(training, length_s)
        print(f"{training.name}\n{table(step_s, found)}\n", flush=True)
        figures[training.name] = {"step_s": step_s, "parts": [asdict(one) for one in found]}
    return bars.finish("callback_parts", arguments, [], trainings=figures)


if __name__ == "__main__":
    sys.exit(main())

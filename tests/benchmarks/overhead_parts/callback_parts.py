"""Finds which part of the callback makes the steps of a Lightning training longer.

``python -m tests.benchmarks.overhead_parts.callback_parts [--quick] [--gpu] [--json FILE]``

One training in one process, whose single steps are compared, so that other programs of the machine
affect all parts alike:

* *hooks*: our callback and the methods that it replaces are left out of two steps in three, at
  random, and one of these two has an empty callback instead, as Lightning itself takes time for
  every callback. The part is the median of steps with them less that of steps without. Steps with a
  row or with work of a thread are left out.
* *rows*: steps in which we log a row, less other steps with hooks.
* *threads*: for every turn of a thread of ours, how much longer the steps were that overlap with it
  than the median of the steps around them. Beside it stands an idle thread, which wakes every
  0.8 s and does nothing: on a machine whose cores are busy, every thread that wakes takes the place
  of the training thread for some milliseconds.

Wall time is that of the steps, processor time that of the training thread in the step, and for
threads that of their turns. A share is that of all time, if each part occurs as often as in a
training with all hooks. There are no bars.
"""

import json
import logging
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.sensing.clock import Periodic, SystemClock
from energy_callbacks.sensing.schedule import BEAT_S
from tests.benchmarks import bars
from tests.benchmarks.overhead_parts.played_card import played_card
from tests.benchmarks.overhead_parts.trainings import ON_CPU, ON_GPU, Ticks, Training

LENGTH_S, QUICK_LENGTH_S = 60.0, 15.0
SETTLED_S: Final = 3.0
_AROUND: Final = 20  # steps on either side of a turn
_IDLE: Final = "(an idle thread)"
# What a step may have: our hooks, those of an empty callback, or none.
KINDS: Final = ("ours", "empty", "none")
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
        hooks: which callback the step had, one of ``KINDS``.
        has_row: whether a row was logged in it.
    """

    end_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    has_row: list[bool] = field(default_factory=list)


def driver(ours: Any, steps: Steps) -> Any:
    """Return a callback that ends each step, and decides which callbacks the next one has."""
    from lightning.pytorch import Callback

    rows: list[int] = []
    log = ours._meter.log

    def noted(step: int) -> Any:
        rows.append(step)
        return log(step)

    ours._meter.log = noted
    dice = random.Random(0)

    class Driver(Callback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.hooks = KINDS[0]
            loop = trainer.fit_loop.epoch_loop
            self.fetches = {
                is_ours: [
                    getattr(loop, name) if is_ours else getattr(type(loop), name).__get__(loop)
                    for name in ("_on_before_fetch", "_on_after_fetch")
                ]
                for is_ours in (True, False)
            }
            self.callbacks = dict(
                zip(KINDS, ([ours, self], [Callback(), self], [self]), strict=True)
            )

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
        ) -> None:
            steps.end_s.append(time.perf_counter())
            steps.cpu_s.append(time.thread_time())
            steps.hooks.append(self.hooks)
            steps.has_row.append(bool(rows))
            rows.clear()
            self.choose(trainer, dice.choice(KINDS))

        def choose(self, trainer: Any, hooks: str) -> None:
            self.hooks = hooks
            trainer.callbacks = self.callbacks[hooks]
            # Lightning has copied the methods of its epoch loop to this object.
            fetcher = trainer.fit_loop._data_fetcher
            fetcher._start_profiler, fetcher._stop_profiler = self.fetches[hooks == KINDS[0]]

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            self.choose(trainer, KINDS[0])

    return Driver()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one part adds to the steps.

    Attributes:
        name: name of the part.
        per_s: how often it occurs in a second.
        longer_us: how much longer it makes the steps in which it occurs, median, us.
        cpu_us: its processor time, median, us.
    """

    name: str
    per_s: float
    longer_us: float
    cpu_us: float


class Comparison:
    """Compares steps of one training, after its first 3 s."""

    def __init__(self, steps: Steps, turns: Sequence[Turn]) -> None:
        self._end_s = steps.end_s
        late_s = steps.end_s[0] + SETTLED_S
        self._wall_us = 1e6 * np.diff(steps.end_s)
        self._cpu_us = 1e6 * np.diff(steps.cpu_s)
        self._hooks, self._has_row = np.array(steps.hooks)[1:], np.array(steps.has_row)[1:]
        self._is_late = np.array(steps.end_s)[1:] > late_s
        self._seconds = steps.end_s[-1] - late_s
        self._turns: dict[str, list[tuple[slice, float]]] = {}
        is_busy = np.zeros(len(self._hooks), dtype=bool)
        for turn in turns:
            during = self._during(turn)
            is_busy[during] = True
            if turn.start_s > late_s and is_busy[during].size:
                self._turns.setdefault(turn.thread, []).append((during, 1e6 * turn.cpu_s))
        self._is_quiet = self._is_late & ~is_busy
        self._is_plain = self._is_quiet & ~self._has_row

    def _during(self, turn: Turn) -> slice:
        """Return the steps that overlap with a turn."""
        first = max(bisect_left(self._end_s, turn.start_s) - 1, 0)
        return slice(first, min(bisect_left(self._end_s, turn.end_s), len(self._hooks)))

    def _added(self, name: str, per_s: float, some: Any, others: Any) -> Part:
        """Return the difference of the medians of some steps and of others."""
        wall, cpu = (
            [float(np.median(of[which])) if which.any() else math.nan for which in (some, others)]
            for of in (self._wall_us, self._cpu_us)
        )
        return Part(name=name, per_s=per_s, longer_us=wall[0] - wall[1], cpu_us=cpu[0] - cpu[1])

    def parts(self) -> Iterator[Part]:
        """Return all parts."""
        ours, empty, none = (self._is_plain & (self._hooks == kind) for kind in KINDS)
        per_s = self._is_late.sum() / self._seconds
        yield self._added("hooks of a step without a row", per_s, ours, none)
        yield self._added("(an empty callback)", per_s, empty, none)
        has_row = self._is_quiet & self._has_row
        # A training with our hooks in every step has as many rows per step with hooks.
        share = (self._hooks == KINDS[0]).mean()
        yield self._added(
            "a row", (self._has_row & self._is_late).sum() / self._seconds / share, has_row, ours
        )
        for thread, turns in self._turns.items():
            excess = [self._excess_us(during) for during, _ in turns]
            yield Part(
                name=f"thread {thread.removeprefix('energy_callbacks ')}",
                per_s=len(turns) / self._seconds,
                longer_us=float(np.nanmedian(excess)),
                cpu_us=float(np.median([cpu_us for _, cpu_us in turns])),
            )

    def _excess_us(self, during: slice) -> float:
        """Return how much longer some steps are than the median of the plain steps around them."""
        around = slice(max(during.start - _AROUND, 0), during.stop + _AROUND)
        usual = self._wall_us[around][self._is_plain[around]]
        steps = during.stop - during.start
        return (
            float(self._wall_us[during].sum() - steps * np.median(usual))
            if len(usual)
            else math.nan
        )


def measured(training: Training, length_s: float) -> tuple[float, list[Part]]:
    """Return the duration of a step without a callback, s, and the parts."""
    from energy_callbacks.lightning import GpuEnergyCallback

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work, step_s = training.calibrated(folder)
        clock, steps = NotingClock(), Steps()
        config = EnergyConfig(report_dir=folder / "energy", devices="all")
        ours = GpuEnergyCallback(meter=EnergyMeter(config=config, clock=clock))
        callbacks = [ours, driver(ours, steps)]
        idle = clock.every(BEAT_S, lambda: None, _IDLE)
        training.fit(work, round(length_s / step_s), Ticks(), callbacks, folder)()
        idle.ask_to_stop()
    return step_s, list(Comparison(steps, clock.turns).parts())


def table(step_s: float, found: Sequence[Part]) -> str:
    """Return the parts as text."""
    heads = ("per s", "wall, us", "share", "CPU, us", "share")
    lines = [f"{f'step of {1e3 * step_s:.2f} ms':<36}" + "".join(f"{head:>12}" for head in heads)]
    lines += [
        f"{one.name:<36}{one.per_s:>12.2f}"
        f"{one.longer_us:>12.1f}{one.per_s * one.longer_us / 1e6:>12.3%}"
        f"{one.cpu_us:>12.1f}{one.per_s * one.cpu_us / 1e6:>12.3%}"
        for one in found
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the table of each training, and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--gpu", action="store_true", help="two trainings on a GPU with CUDA")
    arguments = parser.parse_args()
    if not arguments.gpu and _CHILD not in os.environ:
        with played_card():
            command = [
                sys.executable,
                "-m",
                "tests.benchmarks.overhead_parts.callback_parts",
                *sys.argv[1:],
            ]
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
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Fits with and without the callback in turn, in one process, and the ratio of their times.

A fit without the callback has no meter or thread of ours. The order is ABBA (with, without,
without, with, ...), so that a drift affects both equally. Every fit has a new trainer. Ten pairs
share one model and its data in memory, because the place of a model in memory may change its speed;
the next ten pairs have another model.

A fit gives two blocks of steps: from the call of ``fit`` to the step that begins about 3 s later
without the callback (start-up), and the next 200 steps or more, which take about 2.4 s or longer
(steady state). What ``fit`` does after its last step is in neither. The change is the median over
pairs of (time with) / (time without), with a bootstrap interval of 95 %. No pair is left out. The
mean is given, too, because a median does not show what happens in few blocks.
"""

import gc
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.benchmarks.overhead_parts.trainings import Prepare, Ticks, Training

START_S: Final = 3.0
BLOCK_STEPS: Final = 200
# Three periods of our threads (BEAT_S in sensing/schedule.py), so that each block has the same work
# of them.
BLOCK_S: Final = 2.4
PAIRS_PER_MODEL: Final = 10
BLOCKS: Final = ("first 3 s", "steady state")
_LAST_STEPS: Final = 5  # a framework may prefetch, so that the last steps begin early
_RESAMPLES: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Clocks at one moment of a fit, s.

    Attributes:
        wall_s: monotonic time.
        process_s: processor time of all threads of the process.
        ours_s: processor time of the threads of ours that are alive, by name and identifier.
    """

    wall_s: float
    process_s: float
    ours_s: dict[tuple[str, int], float]

    @classmethod
    def now(cls) -> "Moment":
        """Read the clocks."""
        return cls(
            wall_s=time.perf_counter(), process_s=time.process_time(), ours_s=own_threads_s()
        )


def own_threads_s() -> dict[tuple[str, int], float]:
    """Return the processor time of each thread of ours that is alive, s, by name and identifier.

    The journal's thread of one fit may still be alive in the next fit, whose thread has the same
    name.
    """
    found = {}
    for thread in threading.enumerate():
        if thread.name.startswith("energy_callbacks") and thread.ident is not None:
            clock = time.pthread_getcpuclockid(thread.ident)
            name = thread.name.removeprefix("energy_callbacks ")
            found[name, thread.ident] = time.clock_gettime(clock)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many steps a fit has, and how much work a step.

    Attributes:
        work: see ``Training``.
        start: steps of the block of the first seconds.
        block: steps of the block of the steady state.
    """

    work: int
    start: int
    block: int

    @property
    def edges(self) -> tuple[int, int]:
        """Steps at whose beginning the steady state begins and ends."""
        return self.start, self.start + self.block

    @property
    def steps(self) -> int:
        """All steps of a fit."""
        return self.start + self.block + _LAST_STEPS

    @classmethod
    def of(cls, training: Training, folder: Path) -> "Plan":
        """Calibrate a training."""
        work, step_s = training.calibrated(folder)
        block = max(BLOCK_STEPS, round(BLOCK_S / step_s))
        return cls(work=work, start=round(START_S / step_s), block=block)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One fit.

    Attributes:
        moments: before it, at both edges of the steady state, and after it.
    """

    moments: tuple[Moment, ...]

    @property
    def total_s(self) -> float:
        """Duration of the call of ``fit``, s."""
        return self.moments[3].wall_s - self.moments[0].wall_s

    def wall_s(self, block: int) -> float:
        """Return the duration of a block; 0 is that of the start-up."""
        return self.moments[block + 1].wall_s - self.moments[block].wall_s

    def process_s(self, block: int) -> float:
        """Return the processor time of the process in a block."""
        return self.moments[block + 1].process_s - self.moments[block].process_s

    def threads_s(self, block: int) -> dict[str, float]:
        """Return the processor time of our threads in a block, by name.

        Threads that began in the block count from their beginning, and those that ended in it do
        not count. No thread of ours ends during a training.
        """
        before_s, after_s = (self.moments[block + i].ours_s for i in (0, 1))
        found: dict[str, float] = {}
        for thread, at_s in after_s.items():
            found[thread[0]] = found.get(thread[0], 0.0) + at_s - before_s.get(thread, 0.0)
        return found


# The fits of a pair: with the callback, and without it.
Pair = tuple[Fit, Fit]


def run(
    training: Training, prepare: Prepare, plan: Plan, callbacks: list[Any], folder: Path
) -> Fit:
    """Run one fit of a model; the device is waited for at both edges of the steady state."""

    def note() -> Moment:
        training.wait()
        return Moment.now()

    ticks = Ticks(frozenset(plan.edges), note)
    fit = prepare(plan.steps, ticks, callbacks, folder)
    gc.collect()
    before = Moment.now()
    fit()
    return Fit(moments=(before, *ticks.noted, Moment.now()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A change of times with the callback over times without it; 0.01 is 1 % longer.

    Attributes:
        median: median over the pairs, minus 1.
        low: lower end of its interval.
        high: upper end.
        mean: mean of the logarithms over the pairs, as a change.
        pairs: number of pairs.
        each: changes of all pairs in the order of time.
        without_s: median time without the callback.
    """

    median: float
    low: float
    high: float
    mean: float
    pairs: int
    each: tuple[float, ...]
    without_s: float

    @property
    def half_width(self) -> float:
        """Half of the width of the interval."""
        return (self.high - self.low) / 2.0


def ratio(with_s: Sequence[float], without_s: Sequence[float], seed: int = 1) -> Ratio:
    """Return the change that pairs show."""
    found = np.asarray(with_s) / np.asarray(without_s) - 1.0
    drawn = np.random.default_rng(seed).choice(found, size=(_RESAMPLES, len(found)))
    low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
    return Ratio(
        median=float(np.median(found)),
        low=float(low),
        high=float(high),
        mean=float(np.expm1(np.log1p(found).mean())),
        pairs=len(found),
        each=tuple(map(float, found)),
        without_s=float(np.median(without_s)),
    )


def in_turn(
    training: Training, plan: Plan, pairs: int, callback: Callable[[Path], Any]
) -> Iterator[Pair]:
    """Run pairs of fits, in the order ABBA, and yield each.

    Each model first has a short pair, which is not yielded: it imports modules, and compiles.

    Args:
        training: the training.
        plan: its steps.
        pairs: number of pairs.
        callback: returns a callback that writes into the given folder.
    """
    short = replace(plan, start=min(50, plan.start), block=min(50, plan.block))
    for first in range(0, pairs, PAIRS_PER_MODEL):
        prepare = training.build(plan.work, plan.steps)
        pair = partial(_pair, training, prepare, callback)
        pair(short, (True, False))
        for number in range(first, min(first + PAIRS_PER_MODEL, pairs)):
            yield pair(plan, (True, False) if number % 2 == 0 else (False, True))


def _pair(
    training: Training,
    prepare: Prepare,
    callback: Callable[[Path], Any],
    plan: Plan,
    order: tuple[bool, bool],
) -> Pair:
    """Run two fits of a model; the order says which of them has the callback."""
    found = {}
    for is_with in order:
        with tempfile.TemporaryDirectory() as name:
            callbacks = [callback(Path(name))] if is_with else []
            found[is_with] = run(training, prepare, plan, callbacks, Path(name))
    return found[True], found[False]


def ratios(pairs: Sequence[Pair]) -> dict[str, Ratio]:
    """Return the changes of wall time and of the process's processor time, by block."""
    clocks: tuple[tuple[str, Callable[[Fit, int], float]], ...] = (
        ("wall time", Fit.wall_s),
        ("processor time", Fit.process_s),
    )
    return {
        f"{block}, {name}": ratio([of(a, i) for a, _ in pairs], [of(b, i) for _, b in pairs])
        for (name, of), (i, block) in itertools.product(clocks, enumerate(BLOCKS))
    }

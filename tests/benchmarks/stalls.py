"""Measures for how long our threads keep the interpreter from the training, and the start.

Only one thread at a time runs Python code. A *hold* is the processor time that one of our threads
uses between two moments at which it waits or pauses (``core/yielding.py``): the training may have
to wait that long. Parts of a hold in which NumPy has released the interpreter are included.
Processor time does not include that of other programs, but with them it may be longer.

Eight scripted cards behave as an H200. A loop trains, with a validation every few seconds, in
virtual time; every 30 s a report of the running meter is asked for, which fits the energies of the
phases. The start is timed in new processes, with the sensors of this machine.

``python -m tests.benchmarks.stalls [--quick] [--json FILE]``
"""

import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core import yielding
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.clock import Periodic
from energy_callbacks.testing import FakeClock
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.import_time import COMPILING
from tests.benchmarks.longrun import CARDS, Card

DURATION_S, QUICK_S = 600.0, 150.0
STEP_S, TRAIN_S, VALIDATION_S, REPORT_S = 0.05, 4.0, 0.5, 30.0
BEGINNING_S: Final = 3.0
STARTS, QUICK_STARTS = 10, 5
P99_MS, LONGEST_MS = 1.0, 3.0
START_MS, START_CPU_MS = 200.0, 150.0
# A process that used its core for a smaller share of the time was disturbed by others.
IDLE_SHARE: Final = 0.6

# NumPy's threads are busy for 50 ms after its import, which every training makes much earlier.
START: Final = """
import numpy, os, tempfile, time
time.sleep(0.2)
from energy_callbacks import EnergyConfig, EnergyMeter
cpu_s = lambda: sum(os.times()[:4])
with tempfile.TemporaryDirectory() as folder:
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder))
    start_s, start_cpu_s = time.perf_counter(), cpu_s()
    meter.start()
    print(time.perf_counter() - start_s, cpu_s() - start_cpu_s)
    meter.stop()
"""


@dataclass
class Holds:
    """The holds of each group of threads, in milliseconds.

    Attributes:
        by_group: (time since the start, hold) by group.
    """

    by_group: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    group: str = ""
    _began_ns: int = 0

    def begin(self) -> None:
        """Begin a hold."""
        yielding.begin()
        self._began_ns = time.thread_time_ns()

    def end(self) -> None:
        """End the present hold."""
        self.by_group[self.group].append((time.thread_time_ns() - self._began_ns) / 1e6)

    def pause(self) -> None:
        """End the present hold and begin the next; stands in for ``yielding.pause``."""
        self.end()
        self.begin()

    @contextmanager
    def measured(self, group: str) -> Iterator[None]:
        """Measure the block, as if it ran on a thread of its own."""
        self.group, pause, yielding.pause = group, yielding.pause, self.pause
        self.begin()
        try:
            yield
        finally:
            self.end()
            yielding.pause = pause
            yielding.leave()


class MeasuredClock(FakeClock):
    """A fake clock that measures the holds of its jobs."""

    def __init__(self, holds: Holds) -> None:
        super().__init__()
        self._holds = holds
        self._start_s = self.monotonic_s()

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:
        """See ``Clock``; jobs in the beginning are a group of their own."""
        thread = "journal" if "journal" in name else "sensors"

        def measured() -> float | None:
            is_early = self.monotonic_s() - self._start_s < BEGINNING_S
            with self._holds.measured(f"{thread}, first 3 s" if is_early else thread):
                return job()

        return super().every(interval_s, measured, name)


class MeasuredCard(Card):
    """A card, whose reading does not belong to a hold: a real driver releases the interpreter."""

    def __init__(self, clock: FakeClock, number: int, holds: Holds) -> None:
        super().__init__(clock, number)
        self._holds = holds

    def read(self) -> Sequence[Reading]:
        """Return new readings."""
        self._holds.end()
        readings = super().read()
        self._holds.begin()
        return readings


def trained(duration_s: float, folder: Path) -> Holds:
    """Run a training in virtual time and return the holds of our threads."""
    holds = Holds()
    clock = MeasuredClock(holds)
    cards = [MeasuredCard(clock, number, holds) for number in range(CARDS)]
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder), sources=cards, clock=clock)
    meter.start()
    gc.collect()
    gc.freeze()  # full collections then do not include what other modules have created
    start_s = report_s = clock.monotonic_s()
    while clock.monotonic_s() < start_s + duration_s:
        with meter.phase("train"):
            for _ in range(round(TRAIN_S / STEP_S)):
                meter.data_ready()
                clock.advance(STEP_S)
                meter.step(samples=64, tokens=65_536)
            meter.log(0)
        with meter.phase("validation"):
            clock.advance(VALIDATION_S)
        if clock.monotonic_s() > report_s + REPORT_S:
            report_s = clock.monotonic_s()
            with holds.measured("journal, for a report"):
                ask_for_phases(meter)
    gc.unfreeze()
    meter.stop()
    return holds


def ask_for_phases(meter: EnergyMeter) -> None:
    """Make the journal's job write the energies of phases, as a report of a running meter does."""
    attempt = meter._lifecycle.running
    assert attempt is not None
    attempt.recorder.is_asked = True
    attempt.thread._update()


def first_starts_ms(count: int) -> list[tuple[float, float]]:
    """Return durations and processor times of the first ``start`` of new processes."""

    def once() -> tuple[float, float]:
        command = [sys.executable, "-c", START]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=COMPILING)
        wall_s, cpu_s = map(float, done.stdout.split()[:2])
        return 1e3 * wall_s, 1e3 * cpu_s

    once()  # compiles, and fills the file cache
    return [once() for _ in range(count)]


def hold_bars(holds: dict[str, list[float]]) -> Iterator[Bar]:
    """Print the table of holds and yield its bars."""
    print(f"{'holds, ms':<26}{'count':>8}{'median':>8}{'99 %':>8}{'longest':>9}{'sum':>9}")
    for group, each in sorted(holds.items()):
        p99_ms, longest_ms = float(np.quantile(each, 0.99)), max(each)
        print(
            f"{group:<26}{len(each):>8}{statistics.median(each):>8.2f}{p99_ms:>8.2f}"
            f"{longest_ms:>9.2f}{sum(each):>9.0f}"
        )
        yield Bar(name=f"{group}: hold, 99 %, ms", value=p99_ms, at_most=P99_MS)
        yield Bar(name=f"{group}: longest hold, ms", value=longest_ms, at_most=LONGEST_MS)


def start_bars(starts_ms: Sequence[tuple[float, float]]) -> Iterator[Bar]:
    """Print the durations of the first start and yield their bars.

    The duration is judged only if the processes had a core for themselves.
    """
    wall_ms, cpu_ms = (statistics.median(column) for column in zip(*starts_ms, strict=True))
    print(f"\nfirst start() of {len(starts_ms)} processes, medians:")
    print(f"{wall_ms:.0f} ms, of which {cpu_ms:.0f} ms are processor time")
    is_idle = cpu_ms > IDLE_SHARE * wall_ms
    name = "first start(), median, ms"
    yield Bar(name=name, value=wall_ms, at_most=START_MS, is_judged=is_idle)
    yield Bar(name="first start(), processor time, ms", value=cpu_ms, at_most=START_CPU_MS)


def main() -> int:
    """Print the tables and return the exit status."""
    arguments = bars.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        holds = trained(QUICK_S if arguments.quick else DURATION_S, Path(folder)).by_group
    found = [*hold_bars(holds)]
    starts_ms = first_starts_ms(QUICK_STARTS if arguments.quick else STARTS)
    found += start_bars(starts_ms)
    figures = {group: len(each) for group, each in holds.items()}
    return bars.finish("stalls", arguments, found, holds=figures, starts_ms=starts_ms)


if __name__ == "__main__":
    sys.exit(main())

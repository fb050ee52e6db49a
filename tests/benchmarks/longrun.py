"""Measures a day of training on eight GPUs, in virtual time: memory, journal, report and joules.

Eight scripted cards behave as an H200 (50 power samples a second in reads of half a second, a
bracketed tick of the energy counter and five gauges every second). A loop of four steps a second
trains, validates and saves. The power is known in closed form, so every joule can be checked.

The bars: memory grows by less than 64 MiB over a meter that has just started, of which 24 MiB
are reached after the first ten minutes and 40 MiB come with the hours; the report of a day is
built and saved in under 5 s of processor time, half of it for imports and charts; totals are
correct to 0.1 %; windows of the last ten minutes have full resolution, older ones seconds.
"""

import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.records import Channel, Device, Quantity, Reading, Sensor
from energy_callbacks.testing import FakeClock
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar

Array = NDArray[np.float64]

CARDS = 8
DAY_S, QUICK_S = 86_400.0, 2_400.0
STEP_S, EPOCH_S, VALIDATION_S, CHECKPOINT_S = 0.25, 600.0, 25.0, 5.0
FIXED_MIB, DAILY_MIB = 24.0, 40.0
REPORT_FIXED_S, REPORT_DAILY_S = 2.5, 2.5
PAGE_KB, TOTAL_PERCENT = 400.0, 0.1
# Knots a second apart would be wrong by a third in 60 ms, those a minute apart by 10 % in 5 s.
RECENT_PERCENT, OLD_5_S_PERCENT, OLD_60_S_PERCENT = 5.0, 1.0, 0.1

# Values of an H200 (docs/how-it-measures.md).
PERIOD_S, LAG_S, RESPONSE_S, DRAIN_S = 0.02, 0.005, 0.015, 0.5
TICK_S, TICK_ERROR_S = 0.1, 0.002
SAMPLES = Sensor(
    name="samples", period_s=PERIOD_S, lag_s=LAG_S, response_s=RESPONSE_S, is_buffered=True
)
GAUGES: tuple[tuple[Quantity, Callable[[float], float]], ...] = (
    ("temperature", lambda t_s: 60.0 + 5.0 * math.sin(t_s / 300.0)),
    ("memory_used", lambda t_s: 1e11 + 1e9 * math.sin(t_s / 30.0)),
    ("utilisation", lambda t_s: 0.95 + 0.05 * math.sin(t_s)),
    ("clock", lambda t_s: 1.8e9 + 1e8 * math.sin(t_s / 7.0)),
    ("throttled", lambda t_s: 0.01 * t_s),
)


@dataclass(frozen=True)
class Load:
    """Power as a sum of sine waves: the period of the steps, and a slow change."""

    mean_w: float
    waves: tuple[tuple[float, float, float], ...]  # amplitude W, period s, phase

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the exact integral."""
        swings = (
            amplitude_w * period_s / math.tau * (self._cos(start_s, period_s, phase))
            - amplitude_w * period_s / math.tau * (self._cos(end_s, period_s, phase))
            for amplitude_w, period_s, phase in self.waves
        )
        return self.mean_w * (end_s - start_s) + math.fsum(swings)

    @staticmethod
    def _cos(t_s: float, period_s: float, phase: float) -> float:
        return math.cos(math.tau * math.fmod(t_s, period_s) / period_s + phase)

    def samples_w(self, t_s: Array) -> Array:
        """Return what a sensor with an H200's lag and first-order response shows."""
        shown = np.full(len(t_s), self.mean_w)
        for amplitude_w, period_s, phase in self.waves:
            turn = math.tau / period_s
            shown += (
                amplitude_w
                / math.hypot(1.0, turn * RESPONSE_S)
                * np.sin(turn * (t_s - LAG_S) + phase - math.atan(turn * RESPONSE_S))
            )
        return shown


class Card:
    """A source with the sensors of an H200."""

    interval_s = DRAIN_S

    def __init__(self, clock: FakeClock, number: int) -> None:
        self.name = f"card {number}"
        self.load = Load(400.0, ((150.0, STEP_S, number), (100.0, EPOCH_S, 2.0 * number)))
        self.cpu_s = 0.0
        self._clock = clock
        key = f"gpu{number}"
        device = Device(key=key, kind="gpu", scope="gpu", name="NVIDIA H200", uuid=f"GPU-{number}")
        self._device = device
        self._power = Channel(device=device, quantity="power", kind="gauge", sensor=SAMPLES)
        self._energy = Channel(
            device=device, quantity="energy", kind="counter", sensor=Sensor(name="counter")
        )
        self._gauges = tuple(
            (Channel(device=device, quantity=quantity, kind="gauge"), value)
            for quantity, value in GAUGES
        )
        self._next_sample = self._next_second = 0

    def open(self) -> Sequence[Channel]:
        """Start; the buffer of the driver reaches back before the start."""
        now_s = self._clock.monotonic_s()
        self._next_sample = math.ceil((now_s - DRAIN_S) / PERIOD_S)
        self._next_second = math.ceil(now_s)
        return (self._power, self._energy, *(channel for channel, _ in self._gauges))

    def read(self) -> Sequence[Reading]:
        """Return new readings; notes the processor time of generating them."""
        before_s = time.thread_time()
        readings = list(self._new(self._clock.monotonic_s()))
        self.cpu_s += time.thread_time() - before_s
        return readings

    def _new(self, now_s: float) -> Iterator[Reading]:
        if now_s >= self._next_second:
            self._next_second = math.floor(now_s) + 1
            tick_s = math.floor(now_s / TICK_S) * TICK_S - TICK_S
            value_j = round(self.load.energy_j(0.0, tick_s), 3)
            seen_s = tick_s + TICK_ERROR_S * math.sin(now_s)
            yield Reading(self._energy, seen_s, value_j, TICK_ERROR_S)
            for channel, value in self._gauges:
                yield Reading(channel, now_s, value(now_s))
        end = math.floor((now_s - 0.003) / PERIOD_S) + 1
        t_s: Array = np.arange(self._next_sample, end, dtype=float) * PERIOD_S
        self._next_sample = end
        for at_s, power_w in zip(t_s.tolist(), self.load.samples_w(t_s).tolist(), strict=True):
            yield Reading(self._power, at_s, power_w)

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    what: str
    value: float
    unit: str
    bar: float | None = None


def rss_mib() -> float:
    """Return the resident memory of this process."""
    return float(psutil.Process().memory_info().rss) / 2**20


def train(meter: EnergyMeter, clock: FakeClock, end_s: float) -> float:
    """Run epochs until ``end_s``; returns the highest memory on the way, MiB."""
    highest_mib = rss_mib()
    epoch = 0
    while clock.monotonic_s() < end_s - 1e-6:
        begin_s = clock.monotonic_s()
        with meter.phase("train"):
            while clock.monotonic_s() < begin_s + EPOCH_S - VALIDATION_S - CHECKPOINT_S - 1e-6:
                steps(meter, clock)
                highest_mib = max(highest_mib, rss_mib())
        with meter.phase("validation"):
            clock.advance(VALIDATION_S)
        with meter.phase("checkpoint"):
            clock.advance(CHECKPOINT_S)
        meter.epoch(epoch)
        epoch += 1
    return highest_mib


def steps(meter: EnergyMeter, clock: FakeClock, count: int = 40) -> None:
    """Run some optimizer steps with waits for data, and read the figures once."""
    for _ in range(count):
        meter.data_ready()
        clock.advance(STEP_S)
        meter.step(samples=64, tokens=65_536)
    meter.log(0)


def starts(first_s: float, last_s: float) -> Array:
    """Return the starts of two hundred windows."""
    return np.random.default_rng(0).uniform(first_s, last_s, 200)


def worst(meter: EnergyMeter, cards: Sequence[Card], starts_s: Array, width_s: float) -> float:
    """Return the largest relative error of some windows."""
    errors = []
    for number, start_s in enumerate(starts_s.tolist()):
        card = cards[number % len(cards)]
        found = meter.energy(start_s, start_s + width_s, f"gpu{number % len(cards)}")
        truth_j = card.load.energy_j(start_s, start_s + width_s)
        errors.append(abs((found.energy_j or 0.0) / truth_j - 1.0))
    return max(errors)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The measurements before the report."""

    growth_mib: float
    recent: float
    old_seconds: float
    old_minutes: float
    truths_j: list[float]
    made_s: float
    duration_s: float
    simulated_s: float


def trained(duration_s: float, folder: Path) -> Trained:
    """Run the training in virtual time, with windows while it is measured."""
    clock = FakeClock()
    cards = [Card(clock, number) for number in range(CARDS)]
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder), sources=cards, clock=clock)
    began_s, start_s = time.process_time(), clock.monotonic_s()
    meter.start()
    steps(meter, clock)
    idle_mib = rss_mib()
    highest_mib = train(meter, clock, start_s + duration_s)
    now_s = clock.monotonic_s()
    old_s = starts(start_s + duration_s / 6.0, start_s + duration_s / 6.0 + 300.0)
    recent = worst(meter, cards, starts(now_s - 595.0, now_s - 5.0), 0.06)
    old_seconds, old_minutes = worst(meter, cards, old_s, 5.0), worst(meter, cards, old_s, 60.0)
    meter.stop()
    return Trained(
        growth_mib=highest_mib - idle_mib,
        recent=recent,
        old_seconds=old_seconds,
        old_minutes=old_minutes,
        truths_j=[card.load.energy_j(start_s, clock.monotonic_s()) for card in cards],
        made_s=sum(card.cpu_s for card in cards),
        duration_s=clock.monotonic_s() - start_s,
        simulated_s=time.process_time() - began_s,
    )


def run(duration_s: float, folder: Path) -> list[Row]:
    """Run the training, its journal and its report, and return their bars."""
    done = trained(duration_s, folder)
    [journal] = folder.glob("attempts/*/*.jsonl")
    with journal.open("rb") as lines:
        *_, last = lines
    totals = json.loads(last)
    known_j = [totals["energy"][f"gpu{number}"]["energy_j"] for number in range(CARDS)]
    off = max(abs(k / t - 1.0) for k, t in zip(known_j, done.truths_j, strict=True))
    report = reported(folder)
    report_off = abs(report["gpu_j"] / sum(done.truths_j) - 1.0)
    days = duration_s / DAY_S
    memory_bar_mib = FIXED_MIB + DAILY_MIB * days
    report_bar_s = REPORT_FIXED_S + REPORT_DAILY_S * days
    cost_ms = 1e3 * (totals["sampler_cpu_s"] - done.made_s) / (CARDS * done.duration_s)
    return [
        Row("memory over idle", done.growth_mib, "MiB", memory_bar_mib),
        Row("report, processor time", report["cpu_s"], "s", report_bar_s),
        Row("report, wall time", report["wall_s"], "s"),
        Row("report, memory", report["rss_mib"], "MiB"),
        Row("report, page", report["html_bytes"] / 1e3, "kB", PAGE_KB),
        Row("journal", journal.stat().st_size / 1e6, "MB"),
        Row("error of a card's total", 100 * off, "%", TOTAL_PERCENT),
        Row("error of the report's total", 100 * report_off, "%", TOTAL_PERCENT),
        Row("worst 60 ms of the last 10 min", 100 * done.recent, "%", RECENT_PERCENT),
        Row("worst 5 s of a sixth of the run", 100 * done.old_seconds, "%", OLD_5_S_PERCENT),
        Row("worst 60 s of a sixth of the run", 100 * done.old_minutes, "%", OLD_60_S_PERCENT),
        Row("measuring, per GPU and second", cost_ms, "ms"),
        Row("simulation", done.simulated_s, "s"),
    ]


REPORT = """
import json, resource, sys, time
from pathlib import Path
begin_s = time.perf_counter()
from energy_callbacks.report import build, save
report = build(Path(sys.argv[1]))
paths = save(report, Path(sys.argv[1]))
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "cpu_s": usage.ru_utime + usage.ru_stime,
    "wall_s": time.perf_counter() - begin_s,
    "rss_mib": usage.ru_maxrss / 1024,
    "html_bytes": paths[0].stat().st_size,
    "gpu_j": report.energy.gpu.energy_j,
}))
"""


def reported(folder: Path) -> dict[str, float]:
    """Build and save the report of a run folder in its own process; returns the best of three.

    Other load of the machine can only increase the processor time.
    """
    answers = [
        subprocess.run(
            [sys.executable, "-c", REPORT, str(folder)], capture_output=True, text=True, check=True
        )
        for _ in range(3)
    ]
    found: list[dict[str, float]] = [json.loads(answer.stdout) for answer in answers]
    return min(found, key=lambda one: one["cpu_s"])


def main() -> int:
    """Print the table and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--keep", type=Path, help="a folder for the run, to look at afterwards")
    arguments = parser.parse_args()
    duration_s = QUICK_S if arguments.quick else DAY_S
    with tempfile.TemporaryDirectory() as scratch:
        rows = run(duration_s, arguments.keep or Path(scratch))
    print(f"{f'{duration_s / 3600.0:g} h, {CARDS} GPUs':<34}{'value':>10}{'bar':>10}")
    for row in rows:
        bar = "" if row.bar is None else f"{row.bar:.4g}"
        print(f"{row.what:<34}{row.value:>10.4g}{bar:>10} {row.unit}")
    found = [
        Bar(name=f"{row.what}, {row.unit}", value=row.value, at_most=row.bar)
        for row in rows
        if row.bar is not None
    ]
    return bars.finish("longrun", arguments, found, rows=[asdict(row) for row in rows])


if __name__ == "__main__":
    sys.exit(main())

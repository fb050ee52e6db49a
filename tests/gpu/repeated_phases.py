"""Compares the energy of repeated phases with long runs of the same loads on a real GPU.

``python -m tests.gpu.repeated_phases --out DIR [--json FILE] [--quick]`` (about 9 minutes of one
GPU): phases ``train`` and ``validation`` follow each other 40 times, one with matrix products and
the other at rest, with validations of 50 ms to 1 s. The energy that the report states for each
phase is compared with the power of the same load in long runs, times the time that the load took on
the GPU. The power in the long runs is that of the GPU's energy counter, which the meter uses too,
so an error of the counter's gain cancels. The table also shows the sum over the single spans, in
which energy is interpolated at the edges, and each phase alone without the systematic error.

In the last cases the GPU is behind the host: when ``validation`` begins, work that ``train`` has
queued still runs. This work counts for ``train``. With ``late: start``, only that edge is late;
with ``late: both``, the host also enters ``train`` some time before its first work. They are
measured with CUDA events at the edges, and without (``phase_events=False``). Without, the time
before the first work seems to be a part of ``validation``.

Exits with 1 if an energy is outside its interval by more than the spread of the long runs.
"""

import argparse
import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml
import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.report.collect.process import load as load_journal

REPEATS = 40
# Products of this size take half of each unit of 1 ms, the other half is a pause. Without pauses an
# H100 draws 600 W: near the limit, a short burst draws more than a long run, which then is no
# reference.
SIZE = 1024
UNIT_S = 0.001
PAUSE_CYCLES = 900_000
MOST_OF_LIMIT = 0.8
WARM_UP_S = 10.0
# Before a long run is read, and before the first and after the last phase.
SETTLE_S = 1.5
REST_S = 0.5
PARTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Lengths of the phases, the phase with the products, and how late the GPU is.

    Attributes:
        heavy: name of the phase with the products; the GPU is at rest in the other one.
        late: edges at which the GPU is late by ``late_s``: ``none``, ``start`` or ``both``.
        has_events: whether CUDA events measure the edges.
    """

    train_s: float
    validation_s: float
    heavy: str = "train"
    late: str = "none"
    late_s: float = 0.0
    has_events: bool = True

    @property
    def name(self) -> str:
        late = f", late: {self.late} {1e3 * self.late_s:g} ms" if self.late_s else ""
        late += "" if self.has_events else ", no events"
        return f"{1e3 * self.train_s:g}/{1e3 * self.validation_s:g} ms, heavy: {self.heavy}{late}"


LENGTHS_S = ((0.3, 0.05), (0.3, 0.1), (0.3, 0.3), (0.3, 1.0))
CASES = (
    *(Case(train_s=t, validation_s=v) for t, v in LENGTHS_S),
    *(Case(train_s=t, validation_s=v, heavy="validation") for t, v in LENGTHS_S),
    *(
        Case(train_s=0.3, validation_s=v, late=late, late_s=late_s, has_events=has_events)
        for v, late, late_s in ((0.1, "start", 0.03), (0.3, "start", 0.1), (0.3, "both", 0.1))
        for has_events in (True, False)
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Queued products: events at the start, some time before the end, and at the end."""

    start: torch.cuda.Event
    near_end: torch.cuda.Event
    end: torch.cuda.Event

    @property
    def busy_s(self) -> float:
        return self.start.elapsed_time(self.end) / 1e3


class Load:
    """Matrix products in fp32 and pauses, in units that are launched as one CUDA graph."""

    def __init__(self) -> None:
        torch.set_float32_matmul_precision("highest")
        left = torch.randn(SIZE, SIZE, device="cuda")
        product = torch.empty_like(left)
        self._multiply = lambda: torch.mm(left, left, out=product)
        for _ in range(100):
            self._multiply()
        self._graph = self._captured(100, 0)
        self.products = max(round(100 * UNIT_S / 2.0 / self._unit_s()), 1)
        self._graph = self._captured(self.products, PAUSE_CYCLES)
        self.unit_s = self._unit_s()

    def _captured(self, products: int, pause_cycles: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for _ in range(products):
                self._multiply()
            if pause_cycles:
                torch.cuda._sleep(pause_cycles)
        return graph

    def _unit_s(self, units: int = 200) -> float:
        self.queue(units).end.synchronize()
        burst = self.queue(units)
        burst.end.synchronize()
        return burst.busy_s / units

    def queue(self, units: int, units_late: int = 0) -> Burst:
        """Queue units; ``near_end`` comes ``units_late`` before their end."""
        start, near_end, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        start.record()
        for number in range(units):
            if number == units - units_late:
                near_end.record()
            self._graph.replay()
        end.record()
        return Burst(start=start, near_end=near_end if units_late else end, end=end)

    def queue_s(self, duration_s: float, late_s: float = 0.0) -> Burst:
        """Queue units for a duration."""
        return self.queue(round(duration_s / self.unit_s), round(late_s / self.unit_s))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep the GPU busy, from another thread."""
        stop = threading.Event()

        def run() -> None:
            queued = [self.queue(50) for _ in range(4)]
            while not stop.is_set():
                queued.append(self.queue(50))
                queued.pop(0).end.synchronize()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            torch.cuda.synchronize()


class Counter:
    """The energy counter of the GPU that PyTorch uses."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(0).uuid)
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.removeprefix('GPU-')}")
        self.limit_w = pynvml.nvmlDeviceGetEnforcedPowerLimit(self._handle) / 1e3
        self.driver = str(pynvml.nvmlSystemGetDriverVersion())

    def tick(self) -> tuple[float, float]:
        """Wait for the next rise; return its time, between two calls, and the energy in J."""
        first = value = pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        after_s = time.monotonic()
        while value == first:
            before_s = after_s
            value = pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
            after_s = time.monotonic()
        return (before_s + after_s) / 2.0, value / 1e3

    def temperature_c(self) -> int:
        return int(pynvml.nvmlDeviceGetTemperature(self._handle, pynvml.NVML_TEMPERATURE_GPU))


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """Mean power of one load, also of each quarter of the time."""

    load: str
    power_w: float
    parts_w: list[float]
    temperature_c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Power of a load, and half of the range of its long runs."""

    power_w: float
    spread_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One phase of one case.

    Attributes:
        error_j: half-width of the 95 % interval.
        shape_j: part of it without the systematic error.
        reference_j: power of the long runs times the time on the GPU.
        spread_j: uncertainty of it due to the spread of the long runs.
        spans_j: sum over the spans.
    """

    case: str
    phase: str
    found_j: float
    error_j: float
    shape_j: float
    reference_j: float
    spread_j: float
    spans_j: float

    @property
    def off_j(self) -> float:
        return self.found_j - self.reference_j

    @property
    def is_inside(self) -> bool:
        return abs(self.off_j) <= self.error_j + self.spread_j

    @property
    def is_inside_shape(self) -> bool:
        return abs(self.off_j) <= self.shape_j + self.spread_j


def main() -> int:
    """Measure the references and all cases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="run folders")
    parser.add_argument("--json", type=Path, help="write all figures")
    parser.add_argument("--quick", action="store_true", help="shortest validation, in a minute")
    arguments = parser.parse_args()
    cases = [case for case in CASES if not arguments.quick or case.validation_s == LENGTHS_S[0][1]]
    seconds = 5.0 if arguments.quick else 20.0
    counter, load = Counter(), Load()
    with load.running():
        time.sleep(WARM_UP_S)
    runs = long_runs(load, counter, seconds)
    trained = [train(case, load, arguments.out / str(n)) for n, case in enumerate(cases)]
    runs += long_runs(load, counter, seconds)
    levels = {name: level([r for r in runs if r.load == name]) for name in ("products", "rest")}
    rows = [
        row
        for n, (case, busy_s) in enumerate(zip(cases, trained, strict=True))
        for row in compared(case, busy_s, levels, arguments.out / str(n))
    ]
    tell(load, counter, runs, levels, rows)
    if arguments.json:
        found = as_record(load, counter, runs, levels, rows)
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if levels["products"].power_w > MOST_OF_LIMIT * counter.limit_w:
        print("the products draw too much: near the limit, long runs are no reference")
        return 1
    return 0 if all(row.is_inside for row in rows) else 1


def long_runs(load: Load, counter: Counter, seconds: float) -> list[LongRun]:
    """Return the power of the products and, after them, of rest."""
    with load.running():
        products = long_run("products", counter, seconds)
    return [products, long_run("rest", counter, seconds)]


def long_run(name: str, counter: Counter, seconds: float) -> LongRun:
    """Return the power of what is running."""
    time.sleep(SETTLE_S)
    ticks = [counter.tick()]
    for _ in range(PARTS):
        time.sleep(seconds / PARTS)
        ticks.append(counter.tick())
    return LongRun(
        load=name,
        power_w=power_w(ticks[0], ticks[-1]),
        parts_w=[power_w(*ticks[n : n + 2]) for n in range(PARTS)],
        temperature_c=counter.temperature_c(),
    )


def power_w(first: tuple[float, float], last: tuple[float, float]) -> float:
    """Return the mean power between two ticks."""
    return (last[1] - first[1]) / (last[0] - first[0])


def level(runs: Sequence[LongRun]) -> Level:
    """Return the mean of the runs, and half of their range."""
    powers_w = [run.power_w for run in runs]
    return Level(
        power_w=sum(powers_w) / len(powers_w), spread_w=(max(powers_w) - min(powers_w)) / 2.0
    )


def train(case: Case, load: Load, out: Path) -> float:
    """Run all repetitions under a meter; return the time of the products on the GPU."""
    repeat = heavy_validation if case.heavy == "validation" else heavy_training
    config = EnergyConfig(report_dir=out, raw_readings=True, phase_events=case.has_events)
    with EnergyMeter(config=config) as meter:
        end_s = time.monotonic() + 5.0
        while not meter.devices and time.monotonic() < end_s:
            time.sleep(0.05)
        time.sleep(REST_S)
        meter.enter("train")
        bursts = [repeat(case, load, meter) for _ in range(REPEATS)]
        meter.leave("train")
        time.sleep(REST_S)
    return sum(burst.busy_s for burst in bursts)


def heavy_training(case: Case, load: Load, meter: EnergyMeter) -> Burst:
    """Train with products, and rest in the validation."""
    early_s = case.late_s if case.late == "both" else 0.0
    time.sleep(early_s)
    burst = load.queue_s(case.train_s, case.late_s)
    burst.near_end.synchronize()
    meter.enter("validation")
    burst.end.synchronize()
    time.sleep(case.validation_s - early_s)
    meter.leave("validation")
    return burst


def heavy_validation(case: Case, load: Load, meter: EnergyMeter) -> Burst:
    """Rest in the training, and validate with products."""
    time.sleep(case.train_s)
    meter.enter("validation")
    burst = load.queue_s(case.validation_s)
    burst.end.synchronize()
    meter.leave("validation")
    return burst


def times_s(case: Case, busy_s: float, phases_s: Mapping[str, float]) -> dict[str, Any]:
    """Return the time of products and of rest in each phase, on the GPU.

    Args:
        case: the phases; if an edge is late, all of the products count for their phase.
        busy_s: time of the products, by CUDA events.
        phases_s: time in each phase, by the host.
    """
    other = "train" if case.heavy == "validation" else "validation"
    if case.late_s:
        early_s = REPEATS * case.late_s if case.late == "both" and case.has_events else 0.0
        rest_s = sum(phases_s.values()) - busy_s
        return {case.heavy: (busy_s, early_s), other: (0.0, rest_s - early_s)}
    return {case.heavy: (busy_s, phases_s[case.heavy] - busy_s), other: (0.0, phases_s[other])}


def compared(case: Case, busy_s: float, levels: Mapping[str, Level], out: Path) -> list[Row]:
    """Return both phases beside the reference."""
    from energy_callbacks.report.build import build

    [path] = out.glob("attempts/*/*.jsonl")
    spans = [span for span in load_journal(path).spans if span.name != "idle"]
    phases_s: dict[str, float] = defaultdict(float)
    spans_j: dict[str, float] = defaultdict(float)
    for span in spans:
        phases_s[span.name] += span.end_s - span.start_s
        spans_j[span.name] += sum(
            energy.energy_j or 0.0 for key, energy in span.energy.items() if key.startswith("gpu")
        )
    products, rest = levels["products"], levels["rest"]
    found = {phase.name: phase.gpu for phase in build(out).phases}
    return [
        Row(
            case=case.name,
            phase=phase,
            found_j=found[phase].energy_j or 0.0,
            error_j=found[phase].error_j,
            shape_j=found[phase].error_j - found[phase].systematic_j,
            reference_j=heavy_s * products.power_w + rest_s * rest.power_w,
            spread_j=heavy_s * products.spread_w + rest_s * rest.spread_w,
            spans_j=spans_j[phase],
        )
        for phase, (heavy_s, rest_s) in times_s(case, busy_s, phases_s).items()
    ]


def tell(
    load: Load,
    counter: Counter,
    runs: Sequence[LongRun],
    levels: Mapping[str, Level],
    rows: Sequence[Row],
) -> None:
    """Print the table."""
    print(f"{torch.cuda.get_device_name()}, driver {counter.driver}, limit {counter.limit_w:g} W")
    print(f"{load.products} products of {SIZE} x {SIZE} in fp32, pause: {1e3 * load.unit_s:.3f} ms")
    for run in runs:
        parts = " ".join(f"{part:.1f}" for part in run.parts_w)
        print(
            f"long run, {run.load}: {run.power_w:.2f} W (quarters {parts}), {run.temperature_c} C"
        )
    for name, one in levels.items():
        print(f"reference, {name}: {one.power_w:.2f} W, spread +-{one.spread_w:.2f} W")
    print(
        "case | phase | found J | +- | without gain | reference J | +- spread | off | spans off |"
    )
    for row in rows:
        print(
            f"{row.case} | {row.phase} | {row.found_j:.1f} | {row.error_j:.1f} | "
            f"{row.shape_j:.1f} | {row.reference_j:.1f} | {row.spread_j:.1f} | "
            f"{row.off_j / row.reference_j:+.2%} | {row.spans_j / row.reference_j - 1.0:+.2%} | "
            f"{'inside' if row.is_inside else 'OUTSIDE'}"
            f"{'' if row.is_inside_shape else ', outside without gain'}"
        )
    for name in dict.fromkeys(row.case for row in rows):
        both = [row for row in rows if row.case == name]
        ratio = sum(row.found_j for row in both) / sum(row.reference_j for row in both)
        print(f"sum of both phases over reference: {ratio:.4f} ({name})")


def as_record(
    load: Load,
    counter: Counter,
    runs: Sequence[LongRun],
    levels: Mapping[str, Level],
    rows: Sequence[Row],
) -> dict[str, Any]:
    """Return everything for the JSON file."""
    return {
        "device": torch.cuda.get_device_name(),
        "driver": counter.driver,
        "torch": torch.__version__,
        "unix_s": datetime.now(UTC).timestamp(),
        "limit_w": counter.limit_w,
        "products": load.products,
        "unit_s": load.unit_s,
        "long_runs": [asdict(run) for run in runs],
        "levels": {name: asdict(one) for name, one in levels.items()},
        "rows": [
            asdict(row) | {"is_inside": row.is_inside, "is_inside_shape": row.is_inside_shape}
            for row in rows
        ],
    }


if __name__ == "__main__":
    sys.exit(main())

"""Measures the ends of steps with CUDA events on a real GPU, and compares them with host marks.

``python -m tests.gpu.step_events --out DIR`` (about 40 s of one GPU) prints and writes
``step_events.json``:

- ``truth``: the GPU writes the number of each step into pinned memory behind the step's event, and
  the host watches that memory; the distance of the dated end from the moment it saw the number.
- ``synchronised``: the same if the host waits for each step.
- ``ahead``: how early host marks are in a loop whose host runs ahead.
- ``anchors``: how narrow they are, idle, under load, and beside a busy Python thread.
- ``drift``: of the card's clock against the host's, ppm.
- ``cost``: microseconds of ``meter.step`` with and without events, rounds in turn, and the change
  of a launch-bound loop.
- ``synchronisations``: a loop with events under ``set_sync_debug_mode("error")``.
- ``captures``: CUDA graphs that were captured while events were pending, and their results.

Exits with 1 if a bound is broken.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.frameworks import work_ends
from energy_callbacks.sensing.frameworks.cuda_events import CudaEvents, open_events
from energy_callbacks.sensing.frameworks.work_ends import WorkEnd, WorkEnds
from tests.gpu.in_turn import compared

STEP_S = 0.02
# The time to write four bytes to the host and see them there; between an event and its number.
SEEN_S = 100e-6
# The settling thread sometimes delays the thread that watches.
FEW_EARLY = 0.05


def main() -> int:
    """Run all parts in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for step_events.json")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.zeros(1, device="cuda")
    cycles = cycles_of(STEP_S)
    events = open_events()
    assert events is not None
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "truth": truth(cycles),
        "synchronised": synchronised(cycles),
        "ahead": ahead(cycles, out),
        "anchors": anchors(events),
        "drift": drift(events),
        "cost": cost(out),
        "synchronisations": synchronisations(cycles, out),
        "captures": captures(cycles),
    }
    found["broken"] = broken(found)
    text = json.dumps(found, indent=2)
    (out / "step_events.json").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if found["broken"] else 0


def broken(found: dict[str, Any]) -> list[str]:
    """Return the bounds that do not hold."""
    limits = {
        "an end lies after it was seen": found["truth"]["after"] + found["synchronised"]["after"],
        "ends are early": max(found[n]["early"] for n in ("truth", "synchronised")) > FEW_EARLY,
        "a step was not dated": found["truth"]["host_marks"] + found["synchronised"]["host_marks"],
        "meter.step costs over 20 us more": found["cost"]["step_us"]["more"] > 20.0,
        "a synchronisation": found["synchronisations"]["failed"],
        "a capture failed": found["captures"]["failed"],
        "the clocks drift by over 300 ppm": abs(found["drift"]["ppm"]) > 300.0,
    }
    return [name for name, is_broken in limits.items() if is_broken]


def cycles_of(duration_s: float) -> int:
    """Return the cycles of ``torch.cuda._sleep`` for a duration at the clock of this load."""
    cycles = 10_000_000
    for _ in range(3):
        torch.cuda.synchronize()
        start_s = time.monotonic()
        torch.cuda._sleep(cycles)
        torch.cuda.synchronize()
        cycles = int(cycles * duration_s / (time.monotonic() - start_s))
    return cycles


def quantiles_us(values_s: Sequence[float]) -> dict[str, float]:
    """Return median, 99 % quantile and extremes."""
    us = np.array(values_s) * 1e6
    return {
        "least": float(us.min()),
        "median": float(np.median(us)),
        "p99": float(np.quantile(us, 0.99)),
        "most": float(us.max()),
    }


def truth(cycles: int, steps: int = 300, batch: int = 10) -> dict[str, Any]:
    """Queue ten steps at a time, while the host watches pinned memory for their numbers."""
    flag = torch.zeros(1, dtype=torch.int32).pin_memory()
    watched = flag.numpy()
    numbers = torch.arange(1, steps + 1, dtype=torch.int32, device="cuda")
    ends, seen_s = WorkEnds(SystemClock()), np.zeros(steps)
    marked: list[WorkEnd] = []
    torch.cuda.synchronize()
    with settling(ends):
        for first in range(0, steps, batch):
            for number in range(first, first + batch):
                torch.cuda._sleep(cycles)
                marked.append(ends.mark(time.monotonic()))
                flag.copy_(numbers[number : number + 1], non_blocking=True)
            reached = first
            while reached < first + batch:
                now, now_s = int(watched[0]), time.monotonic()
                seen_s[reached:now] = now_s
                reached = max(reached, now)
    return compared_with(marked, seen_s, ends)


def synchronised(cycles: int, steps: int = 100) -> dict[str, Any]:
    """Wait for each step on the host: its end is just before."""
    ends, seen_s = WorkEnds(SystemClock()), np.zeros(steps)
    marked: list[WorkEnd] = []
    with settling(ends):
        for number in range(steps):
            torch.cuda._sleep(cycles // 4)
            marked.append(ends.mark(time.monotonic()))
            torch.cuda.synchronize()
            seen_s[number] = time.monotonic()
    return compared_with(marked, seen_s, ends)


def compared_with(marked: Sequence[WorkEnd], seen_s: Any, ends: WorkEnds) -> dict[str, Any]:
    """Return how long before it was seen each step ended, and how often its bounds are broken."""
    ends.close()
    timed = [(e, s) for e, s in zip(marked, seen_s, strict=True) if e.error_s is not None]
    early_s = [float(seen) - (end.end_s or 0.0) for end, seen in timed]
    errors_s = [end.error_s or 0.0 for end, _ in timed]
    both = list(zip(early_s, errors_s, strict=True))
    return {
        "seen_after_end_us": quantiles_us(early_s),
        "stated_error_us": quantiles_us(errors_s),
        "host_mark_early_us": quantiles_us([float(s) - e.queued_s for e, s in timed]),
        "after": sum(early < -error for early, error in both),
        "early": statistics.mean(early > error + SEEN_S for early, error in both),
        "steps": len(marked),
        "host_marks": ends.host_marks,
    }


class settling:  # noqa: N801 - reads as a word
    """A thread that settles every half second, as that of the journal does."""

    def __init__(self, ends: WorkEnds) -> None:
        self._over = threading.Event()
        self._ends = ends
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.5):
            self._ends.settle()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        torch.cuda.synchronize()
        self._over.set()
        self._thread.join()


def ahead(cycles: int, out: Path, steps: int = 150, depth: int = 5) -> dict[str, Any]:
    """Run a loop whose host may be five steps ahead, with a meter with and without events."""
    found: dict[str, Any] = {}
    for with_events in (False, True):
        config = EnergyConfig(report_dir=out / f"ahead_{with_events}", step_events=with_events)
        waiting: list[Any] = []
        lags_s: list[float] = []
        with EnergyMeter(config=config) as meter, meter.phase("train"):
            for _ in range(steps):
                torch.cuda._sleep(cycles)
                meter.step(samples=1)
                queued_s = time.monotonic()
                waiting.append((queued_s, torch.cuda.Event()))
                waiting[-1][1].record()
                if len(waiting) > depth:
                    before_s, event = waiting.pop(0)
                    event.synchronize()
                    lags_s.append(time.monotonic() - before_s)
            torch.cuda.synchronize()
        figures = meter.totals()
        found["with_events" if with_events else "host_marks"] = {
            "mark_to_end_ms": statistics.median(lags_s) * 1e3,
            "gpu_j_per_step": figures.get("efficiency/gpu_j_per_step"),
            "samples_per_s": figures.get("throughput/samples_per_s"),
        }
    return found


def anchors(events: CudaEvents, count: int = 200) -> dict[str, Any]:
    """Return half-widths of anchors on an idle card, under queued work, and beside busy Python."""
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)

    def queue_work() -> None:
        for _ in range(100):
            matrix @ matrix

    over = threading.Event()

    def be_busy() -> None:
        while not over.is_set():
            sum(range(100))

    found = {"idle": half_widths(events, count), "loaded": half_widths(events, count, queue_work)}
    thread = threading.Thread(target=be_busy)
    thread.start()
    found["beside_python"] = half_widths(events, count // 4)
    over.set()
    thread.join()
    torch.cuda.synchronize()
    return found


def half_widths(
    events: CudaEvents, count: int, before: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Return the half-widths of anchors that were seen in time, and the number of the others."""
    ends = WorkEnds(SystemClock(), lambda: events)
    event = events.create()
    found: list[float] = []
    with events.attached():
        for number in range(count):
            if before is not None and number % 20 == 0:
                before()
            anchor = ends._anchor(events, event)
            if anchor is not None:
                found.append(anchor.error_s)
        events.destroy(event)
    torch.cuda.synchronize()
    return {
        "half_width_us": quantiles_us(found) if found else None,
        "good": sum(error_s < work_ends._GOOD_S for error_s in found) / count,
        "late": count - len(found),
    }


def drift(events: CudaEvents, duration_s: float = 5.0) -> dict[str, Any]:
    """Return device time over host time between two narrow anchors, minus one."""
    ends = WorkEnds(SystemClock(), lambda: events)

    def best() -> Any:
        with events.attached():
            placed = [ends._anchor(events, events.create()) for _ in range(50)]
        return min((a for a in placed if a), key=lambda anchor: anchor.error_s)

    first = best()
    time.sleep(duration_s)
    last = best()
    with events.attached():
        device_s = events.elapsed_s(first.event, last.event)
        backwards_s = events.elapsed_s(last.event, first.event)
    assert device_s is not None
    host_s = (last.low_s + last.high_s - first.low_s - first.high_s) / 2.0
    return {
        "ppm": (device_s / host_s - 1.0) * 1e6,
        "uncertainty_ppm": (first.error_s + last.error_s) / host_s * 1e6,
        "is_antisymmetric": backwards_s == -device_s,
    }


def cost(out: Path, steps: int = 1000, rounds: int = 5) -> dict[str, Any]:
    """Run a launch-bound loop with and without events, rounds in turn."""
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)]).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(32, 64, device="cuda")
    loop_ms: dict[bool, list[float]] = {False: [], True: []}
    step_us: dict[bool, list[float]] = {False: [], True: []}
    for number in range(2 * rounds):
        with_events = number % 2 == 1
        config = EnergyConfig(report_dir=out / f"cost_{number}", step_events=with_events)
        with EnergyMeter(config=config) as meter, meter.phase("train"):
            start_s = time.perf_counter()
            for _ in range(steps):
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                before_s = time.perf_counter()
                meter.step(samples=32)
                step_us[with_events].append((time.perf_counter() - before_s) * 1e6)
            torch.cuda.synchronize()
            loop_ms[with_events].append((time.perf_counter() - start_s) / steps * 1e3)
    medians = {key: statistics.median(values) for key, values in step_us.items()}
    return {
        "step_us": {
            "without": medians[False],
            "with": medians[True],
            "more": medians[True] - medians[False],
            "p99_with": float(np.quantile(step_us[True], 0.99)),
            "p99_without": float(np.quantile(step_us[False], 0.99)),
        },
        "loop": compared(loop_ms),
    }


def synchronisations(cycles: int, out: Path) -> dict[str, Any]:
    """Run a loop in which PyTorch raises if anything waits for the device."""
    torch.cuda.synchronize()
    config = EnergyConfig(report_dir=out / "synchronisations", step_events=True)
    error = None
    with EnergyMeter(config=config) as meter, meter.phase("train"):
        torch.cuda.set_sync_debug_mode("error")
        start_s = time.monotonic()
        try:
            for _ in range(100):
                torch.cuda._sleep(cycles)
                meter.step(samples=1)
        except RuntimeError as raised:
            error = str(raised)
        finally:
            queued_s = time.monotonic() - start_s
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
    # The debug mode covers PyTorch's calls; that 2 s of work were queued at once covers all.
    return {"failed": error is not None or queued_s > 0.5, "error": error, "queued_s": queued_s}


def captures(cycles: int, count: int = 40) -> dict[str, Any]:
    """Capture graphs in the global mode while another thread polls pending events.

    Those events are on another stream than the captured one.
    """
    ends, beside = WorkEnds(SystemClock()), torch.cuda.Stream()
    static = torch.zeros(1024, device="cuda")
    failed: list[str] = []
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            ends.settle()

    ends.mark(time.monotonic())
    looking = threading.Thread(target=look)
    looking.start()
    inside = 0
    for number in range(count):
        graph = torch.cuda.CUDAGraph()
        before = static.clone()
        try:
            with torch.cuda.graph(graph):
                static += 1.0
                inside += ends.mark(time.monotonic()).end_s is not None
                with torch.cuda.stream(beside):
                    torch.cuda._sleep(cycles)
                    ends.mark(time.monotonic())
                time.sleep(STEP_S / 2)
            graph.replay()
            if not torch.equal(static, before + 1.0):
                failed.append(f"{number}: the replay did not add one")
        except RuntimeError as raised:
            failed.append(f"{number}: {raised}")
    torch.cuda.synchronize()
    over.set()
    looking.join()
    ends.close()
    return {
        "failed": len(failed) + (inside != count),
        "messages": failed[:3],
        "captures": count,
        "host_marks_inside": inside,
        "dated_outside": ends.marked - ends.host_marks,
    }


if __name__ == "__main__":
    raise SystemExit(main())

"""``python -m tests.profiling.kernels.torch_script FOLDER CASE...``: trainings of PyTorch on a CPU.

Each case has a folder with its name. The last line of the output is one JSON object with an entry
for each case.
"""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.profiling.kernels import KernelProfiler
from tests.charts import leave_out_charts


class Noise(Dataset):
    """A data set whose images take some time to fetch."""

    def __init__(self, count: int, wait_s: float) -> None:
        self.count, self.wait_s = count, wait_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.wait_s:
            time.sleep(self.wait_s)
        return torch.randn(1, 16, 16), index % 10


def steps(count: int, wait_s: float = 0.0) -> Iterator[int]:
    """Trains, and yields the number of steps after each optimizer step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 14 * 14, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 10),
    )
    optimizer = torch.optim.Adam(net.parameters())
    for step, (images, labels) in enumerate(DataLoader(Noise(16 * count, wait_s), 16), start=1):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        yield step


def train(folder: Path, profiler: KernelProfiler, count: int, wait_s: float = 0.0) -> EnergyMeter:
    """Runs a whole training that is measured."""
    config = EnergyConfig(report_dir=folder)
    with EnergyMeter(config=config, profilers=[profiler]) as meter, meter.phase("train"):
        for _ in steps(count, wait_s):
            meter.step(samples=16)
    return meter


def told(meter: EnergyMeter) -> dict[str, Any]:
    """Returns the kernel profile in the report."""
    report = meter.report()
    assert report.profile is not None
    assert report.profile.kernels is not None
    found = report.profile.kernels
    return {
        "windows": found.windows,
        "measured_steps": found.measured_steps,
        "steps": found.steps,
        "classes": {row.name: row.share for row in found.classes},
        "joules": {row.name: row.energy_j for row in found.classes},
        "j_per_step": found.j_per_step,
        "kernels": {row.name: row.calls for row in found.kernels},
        "parts": found.parts,
        "idle_s": found.idle_s,
        "device_s": found.device_s,
        "step_s": found.step_s,
        "overhead": found.overhead,
        "bound": found.bound,
        "notes": found.notes,
        "traces": found.traces,
        "is_profiling": torch.autograd._profiler_enabled(),
        "advice": [one.code for one in report.advice],
    }


def plain(folder: Path) -> dict[str, Any]:
    """Records three windows of a training."""
    profiler = KernelProfiler(windows_after=(10, 50, 100), max_overhead=1.0)
    return told(train(folder, profiler, 130))


def slow_loader(folder: Path) -> dict[str, Any]:
    """Trains with a loader that takes 128 ms per step."""
    return told(train(folder, KernelProfiler(windows_after=(10,)), 25, wait_s=0.008))


def caps(folder: Path) -> dict[str, Any]:
    """Limits the number of events to less than a window has."""
    return told(train(folder, KernelProfiler(windows_after=(10, 20), max_events=100), 50))


def small_files(folder: Path) -> dict[str, Any]:
    """Limits the size of traces to less than a window has."""
    profiler = KernelProfiler(windows_after=(10, 20), max_trace_bytes=20_000)
    return told(train(folder, profiler, 50))


def meets_another(folder: Path) -> dict[str, Any]:
    """Starts a profiler of the user within a window."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    counts = []
    for number, at in enumerate((11, 12, 13, 14, 15)):
        profiler = KernelProfiler(windows_after=(10,))
        config = EnergyConfig(report_dir=folder / str(number))
        meter = EnergyMeter(config=config, profilers=[profiler])
        theirs = None
        with meter, meter.phase("train"):
            for step in steps(30):
                if step == at:
                    theirs = torch.profiler.profile(activities=activities)
                    theirs.start()
                if step == at + 5 and theirs is not None:
                    theirs.stop()
                meter.step(samples=16)
        counts.append(_count(theirs))
        del theirs
    return {"theirs": counts, "is_profiling": torch.autograd._profiler_enabled()}


def fails(folder: Path) -> dict[str, Any]:
    """Raises an exception of the training within a window."""
    meter = EnergyMeter(
        config=EnergyConfig(report_dir=folder),
        profilers=[KernelProfiler(windows_after=(10,))],
    )
    try:
        with meter, meter.phase("train"):
            for step in steps(50):
                meter.step()
                torch.zeros(4)[0 if step < 13 else 4]
    except IndexError:
        return told(meter)
    raise AssertionError("it did not raise")


def ends_elsewhere(folder: Path) -> dict[str, Any]:
    """Closes the meter on another thread within a window."""
    meter = EnergyMeter(
        config=EnergyConfig(report_dir=folder),
        profilers=[KernelProfiler(windows_after=(10,))],
    )
    meter.start()
    with meter.phase("train"):
        for _ in steps(13):
            meter.step()
        other = threading.Thread(target=meter.stop)
        other.start()
        other.join()
    return told(meter)


def beside_another(folder: Path) -> dict[str, Any]:
    """Profiles the same steps with the user's profiler, which must continue."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    ours = KernelProfiler(windows_after=(10,))
    with torch.profiler.profile(activities=activities) as theirs:
        meter = train(folder / "1", ours, 30)
        is_running = torch.autograd._profiler_enabled()
    found = {"is_running": is_running, "theirs": _count(theirs), "steps": 30}
    throughput, notes = meter.report().throughput.steps, [told(meter)["notes"]]
    del theirs
    turn = torch.profiler.schedule(wait=12, warmup=1, active=3, repeat=1)
    config = EnergyConfig(report_dir=folder / "2")
    with (
        torch.profiler.profile(activities=activities, schedule=turn) as theirs,
        EnergyMeter(config=config, profilers=[ours]) as meter,
    ):
        for _ in steps(30):
            meter.step()
            theirs.step()
    notes.append(told(meter)["notes"])
    return {**found, "scheduled": _count(theirs), "throughput": throughput, "notes": notes}


def _count(theirs: torch.profiler.profile) -> int:
    return {one.key: one.count for one in theirs.key_averages()}["aten::addmm"]


def memory(folder: Path) -> dict[str, Any]:
    """Returns the memory of the process after 500 steps with four windows, and after 4000."""
    profiler = KernelProfiler(windows_after=(10, 20, 30, 40), max_overhead=1.0)
    rss = []
    config = EnergyConfig(report_dir=folder)
    with EnergyMeter(config=config, profilers=[profiler]) as meter, meter.phase("train"):
        for step in steps(4000):
            meter.step()
            if step in (500, 4000):
                rss.append(psutil.Process().memory_info().rss)
    return {**told(meter), "rss": rss}


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {
    case.__name__: case
    for case in (
        plain,
        slow_loader,
        caps,
        small_files,
        fails,
        ends_elsewhere,
        meets_another,
        beside_another,
        memory,
    )
}


def main(folder: Path, *cases: str) -> None:
    """Runs the cases one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        leave_out_charts(patch)
        found = {case: CASES[case](folder / case) for case in cases}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

"""Runs trainings with a known fault and without it: is it reported, and what does the fix save?

``python -m tests.gpu.advice --out DIR [--seconds 12]``: ResNet-50 in bf16 whose copies block (from
pageable memory) or overlap (pinned, on their own stream); whose loader decodes on the training
thread or in eight workers; a small network in launches of batch 8 or 512. Prints for each the
bottleneck, the advice of the report, samples a second and joules a sample. Then a square wave of
kernels runs under the profiler, to find the delay of the power track of the trace against the
kernels in it. Exits with 1 if a fault is not reported, or is reported for the fixed training.
"""

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.profiling.kernels import KernelProfiler

BATCH: Final = 256
Step = Callable[[EnergyMeter], int]
# For each: the advice that its fault should cause, and the training without the fault.
FAULTS: Final = {
    "pageable copies": ("copies", "copies that hide"),
    "one process decodes": ("input", "eight workers decode"),
    "batch of 8": ("launch_bound", "batch of 512"),
}
# Waiting for data is found by the marks of the loop or by the idle time of the kernels.
SAME: Final = {"data_wait": "input", "input_bound": "input"}


class Images(Dataset[Any]):
    """Images of 224 x 224 that take some milliseconds to create."""

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        pixels = torch.randint(0, 256, (3, 256, 256), dtype=torch.uint8)
        small = torchvision.transforms.functional.resize(pixels, [224, 224], antialias=True)
        return small.to(torch.float32).div_(255.0), number % 1000


class Training:
    """A network in bf16."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model.to("cuda", memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> int:
        x = x.to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return len(x)


def host_batches(*, pinned: bool) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return the same four batches again and again."""
    made = [(torch.randn(BATCH, 3, 224, 224), torch.randint(1000, (BATCH,))) for _ in range(4)]
    if pinned:
        made = [(x.pin_memory(), y.pin_memory()) for x, y in made]
    while True:
        yield from made


def copying() -> Step:
    """Copy each batch from pageable memory when it is needed."""
    training, batches = Training(torchvision.models.resnet50()), host_batches(pinned=False)

    def step(meter: EnergyMeter) -> int:
        x, y = next(batches)
        meter.data_ready()
        return training.step(x.to("cuda"), y.to("cuda"))

    return step


def prefetching() -> Step:
    """Copy the next batch on its own stream while this one is computed."""
    training, batches = Training(torchvision.models.resnet50()), host_batches(pinned=True)
    stream = torch.cuda.Stream()

    def fetch() -> tuple[torch.Tensor, torch.Tensor]:
        x, y = next(batches)
        with torch.cuda.stream(stream):
            return x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)

    ready = [fetch()]

    def step(meter: EnergyMeter) -> int:
        torch.cuda.current_stream().wait_stream(stream)
        x, y = ready.pop()
        for one in (x, y):
            one.record_stream(torch.cuda.current_stream())
        ready.append(fetch())
        meter.data_ready()
        return training.step(x, y)

    return step


def decoding(workers: int) -> Step:
    """Return a loader whose images take time."""
    training = Training(torchvision.models.resnet50())
    loader = DataLoader(Images(), BATCH, num_workers=workers, pin_memory=workers > 0)
    batches = iter(loader)

    def step(meter: EnergyMeter) -> int:
        x, y = next(batches)
        meter.data_ready()
        return training.step(x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True))

    return step


def small(batch: int) -> Step:
    """Return forty small convolutions on data that is on the device."""
    layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, 64, 3, padding=1)]
    for _ in range(40):
        layers += [torch.nn.Conv2d(64, 64, 3, padding=1), torch.nn.ReLU()]
    network = torch.nn.Sequential(
        *layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10)
    )
    training = Training(network)
    x = torch.randn(batch, 3, 32, 32, device="cuda")
    y = torch.randint(10, (batch,), device="cuda")
    return lambda _: training.step(x, y)


TRAININGS: Final[dict[str, Callable[[], Step]]] = {
    "pageable copies": copying,
    "copies that hide": prefetching,
    "one process decodes": lambda: decoding(0),
    "eight workers decode": lambda: decoding(8),
    "batch of 8": lambda: small(8),
    "batch of 512": lambda: small(512),
}


def trained(name: str, out: Path, seconds: float) -> dict[str, Any]:
    """Run one of them; returns the figures of its report."""
    step = TRAININGS[name]()
    config = EnergyConfig(report_dir=out / name.replace(" ", "-"))
    profilers = [KernelProfiler(windows_after=(4, 20, 60))]
    with EnergyMeter(config=config, profilers=profilers) as meter, meter.phase("train"):
        for _ in range(3):
            step(meter)
        torch.cuda.synchronize()
        started_s = time.monotonic()
        while time.monotonic() - started_s < seconds:
            meter.step(samples=step(meter))
        torch.cuda.synchronize()
    report = meter.report()
    kernels = None if report.profile is None else report.profile.kernels
    per_sample = report.efficiency.gpu.j_per_sample
    return {
        "name": name,
        "samples_per_s": report.throughput.samples_per_s,
        "j_per_sample": None if per_sample is None else per_sample.value_j,
        "bound": None if kernels is None else kernels.bound,
        "sentence": None if kernels is None else kernels.sentence,
        "busy": None if kernels is None else kernels.busy_share,
        "idle_s": None if kernels is None else dict(kernels.idle_s or {}),
        "copy_s": None if kernels is None else kernels.copy_s,
        "copy_overlap": None if kernels is None else kernels.copy_overlap,
        "advice": [(one.code, one.message, one.saves_j) for one in report.advice],
        "energy_j": None if report.energy.gpu is None else report.energy.gpu.energy_j,
    }


def track_lag_s(out: Path) -> dict[str, float]:
    """Return the delay of the power track behind kernels that run 0.3 s and pause 0.3 s."""
    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    product = torch.empty_like(left)
    profiler = KernelProfiler(windows_after=(4,), warm_up_steps=1, active_steps=8, max_overhead=0.9)
    config = EnergyConfig(report_dir=out / "square")
    with EnergyMeter(config=config, profilers=[profiler]) as meter, meter.phase("train"):
        for _ in range(20):
            started_s = time.monotonic()
            while time.monotonic() - started_s < 0.3:
                torch.mm(left, left, out=product)
                torch.cuda.synchronize()
            time.sleep(0.3)
            meter.step()
    [path] = (out / "square" / "profile").glob("kernels-*.json.gz")
    with gzip.open(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    power = [e for e in events if e.get("ph") == "C" and e["name"] == "gpu0 power (W)"]
    t_us = np.array([e["ts"] for e in power])
    seen_w = np.array([next(iter(e["args"].values())) for e in power])
    grid_us = np.arange(t_us[0], t_us[-1], 500.0)
    busy = np.zeros(len(grid_us))
    for kernel in kernels:
        start, end = np.searchsorted(grid_us, [kernel["ts"], kernel["ts"] + kernel["dur"]])
        busy[start:end] = 1.0
    at = np.clip(np.searchsorted(t_us, grid_us, "right") - 1, 0, len(t_us) - 1)
    shown = seen_w[at] - seen_w[at].mean()
    lags = range(-120, 121)
    fits = [float(np.mean(np.roll(busy - busy.mean(), lag) * shown)) for lag in lags]
    return {"lag_s": lags[int(np.argmax(fits))] * 500e-6, "points": float(len(power))}


def main() -> int:
    """Run all trainings; returns 1 if a fault is not reported, or is reported without the fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=12.0)
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    rows = {}
    for name in TRAININGS:
        rows[name] = trained(name, told.out, told.seconds)
        print(json.dumps(rows[name]), flush=True)
    square = track_lag_s(told.out)
    print(json.dumps(square))
    (told.out / "advice.json").write_text(json.dumps([*rows.values(), square], indent=1))
    codes = {
        name: {SAME.get(code, code) for code, _, _ in row["advice"]} for name, row in rows.items()
    }
    missed = [name for name, (code, _) in FAULTS.items() if code not in codes[name]]
    false = [twin for code, twin in FAULTS.values() if code in codes[twin]]
    print(f"not told: {missed}; told without reason: {false}")
    return 1 if missed or false else 0


if __name__ == "__main__":
    sys.exit(main())

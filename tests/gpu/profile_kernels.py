"""Profiles the kernels of real trainings on a real GPU, and measures what profiling costs.

``python -m tests.gpu.profile_kernels --out DIR [--seconds 40] [--tiny]``: ResNet-50 in bf16 on
images from the host's memory, and a small GPT, each trained with ``KernelProfiler``; then each with
and without it in turn, for the steps a second. Traces and records go to DIR; prints one JSON
object. ``--tiny`` runs everything in seconds on a CPU, as a check of this script.
"""

import argparse
import gzip
import json
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.profiling.kernels import KernelProfiler

Step = Callable[[], int]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def resnet(*, is_tiny: bool) -> Step:
    """Return a step of ResNet-50 on images in pinned memory, through a loader of PyTorch."""
    size, batch = (16, 4) if is_tiny else (224, 256)
    model = network(is_tiny=is_tiny).to(DEVICE, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    shape, has_cuda = (batch, 3, size, size), DEVICE == "cuda"
    data = [(torch.randn(shape), torch.randint(1000, (batch,))) for _ in range(8)]
    ready = [(x.pin_memory(), y.pin_memory()) for x, y in data] if has_cuda else data

    def endless() -> Any:
        while True:
            yield from DataLoader(ready, batch_size=None)

    batches = endless()

    def step() -> int:
        x, y = next(batches)
        x = x.to(DEVICE, non_blocking=True).to(memory_format=torch.channels_last)
        y = y.to(DEVICE, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return len(x)

    return step


def network(*, is_tiny: bool) -> torch.nn.Module:
    """Return ResNet-50, or one convolution."""
    if is_tiny:
        layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
        return torch.nn.Sequential(*layers, torch.nn.Linear(8 * 14 * 14, 1000))
    import torchvision

    return torchvision.models.resnet50()


def gpt(*, is_tiny: bool) -> Step:
    """Return a step of a GPT on random tokens on the device."""
    layers, width, length, batch = (1, 32, 16, 2) if is_tiny else (8, 768, 512, 32)
    block = torch.nn.TransformerEncoderLayer(
        width, max(width // 64, 1), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
    )
    tokens = torch.nn.Embedding(8192, width)
    model = torch.nn.ModuleList(
        [
            tokens,
            torch.nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
            torch.nn.Linear(width, 8192),
        ]
    ).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    text = torch.randint(8192, (64, batch, length + 1), device=DEVICE)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device=DEVICE)
    done = iter(range(10**9))

    def step() -> int:
        rows = text[next(done) % len(text)]
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16):
            hidden = model[1](model[0](rows[:, :-1]), mask=mask, is_causal=True)
            logits = model[2](hidden).flatten(0, 1)
            loss = torch.nn.functional.cross_entropy(logits, rows[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return batch

    return step


def profiled(step: Step, out: Path, seconds: float) -> dict[str, Any]:
    """Train with the profiler; returns its record, its cost, how it ended and its files."""
    config = EnergyConfig(report_dir=out)
    started_s = time.monotonic()
    with EnergyMeter(config=config, profilers=[KernelProfiler()]) as meter:
        with meter.phase("train"):
            while time.monotonic() - started_s < seconds:
                meter.step(samples=step())
        ending_s = time.monotonic()
    stop_s = time.monotonic() - ending_s
    report = meter.report()
    assert report.profile is not None
    assert report.profile.kernels is not None
    found = report.profile.kernels
    meter.save_report()
    return {
        "record": asdict(found),
        "stop_s": stop_s,
        "gpu_j": report.energy.gpu.energy_j,
        "advice": [(one.code, one.message, one.saves_j) for one in report.advice],
        "traces": {name: _described(out / name) for name in found.traces},
    }


def _described(path: Path) -> dict[str, Any]:
    """Return a summary of a trace."""
    with gzip.open(path, "rt") as file:
        lines = json.load(file)["traceEvents"]
    kinds = [f"{line['ph']} {line.get('cat', '')}" for line in lines]
    counters = sorted({line["name"] for line in lines if line["ph"] == "C"})
    counted = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    return {"bytes": path.stat().st_size, "events": counted, "counters": counters}


def cost(step: Step, out: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """Return steps a second with the meter alone and with the profiler, measured in turn."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * rounds):
        has_profiler = turn % 2 == 1
        config = EnergyConfig(report_dir=out / f"cost{turn}")
        profilers = [KernelProfiler()] if has_profiler else []
        with EnergyMeter(config=config, profilers=profilers) as meter, meter.phase("train"):
            started_s, steps = _now_s(), 0
            while time.monotonic() - started_s < seconds:
                meter.step(samples=step())
                steps += 1
            rates[has_profiler].append(steps / (_now_s() - started_s))
    without, with_it = (statistics.median(rates[key]) for key in (False, True))
    return {
        "without_per_s": rates[False],
        "with_per_s": rates[True],
        "overhead": without / with_it - 1.0,
    }


def _now_s() -> float:
    """Return the time after all work of the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def main() -> None:
    """Run both trainings, then measure the cost of the profiler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--models", default="resnet50,gpt")
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    seconds = 3.0 if arguments.tiny else arguments.seconds
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name(0) if DEVICE == "cuda" else "cpu"
    found: dict[str, Any] = {"device": device, "torch": torch.__version__}
    for name, make in (("resnet50", resnet), ("gpt", gpt)):
        if name not in arguments.models.split(","):
            continue
        step = make(is_tiny=arguments.tiny)
        for _ in range(5):  # the first steps choose kernels
            step()
        found[name] = profiled(step, arguments.out / name, seconds)
        found[name]["cost"] = cost(step, arguments.out / name / "cost", seconds, arguments.rounds)
        shutil.rmtree(arguments.out / name / "cost")
        (arguments.out / "figures.json").write_text(json.dumps(found, indent=2))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

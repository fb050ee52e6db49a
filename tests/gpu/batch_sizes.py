"""Measures batch sizes on a real GPU: the curve up to the memory limit, and the finders.

``python -m tests.gpu.batch_sizes resnet|transformer --out DIR``: trials from batch 16 on, doubling
until memory is full; then the finders of ``tests.benchmarks.finders``; then the training at batch
16 and at our knee over the same number of samples; and a search in which memory is full in the
optimizer's first step, with the allocated memory before and after. Writes JSON and a plot.
"""

import argparse
import contextlib
import gc
import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.errors import NothingFits
from energy_callbacks.report.charts.batch_size_plot import batch_size_figure
from energy_callbacks.report.charts.drawing import figure_png
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.tuning import Patience, Trial, tune_batch_size
from energy_callbacks.tuning.accelerator import memory
from energy_callbacks.tuning.bench import Bench
from energy_callbacks.tuning.result import points
from tests.benchmarks import finders
from tests.benchmarks.common.finder_tasks import Task, resnet, transformer

TASKS = {
    "resnet": Task("ResNet-50, images", resnet),
    "transformer": Task("transformer, text", transformer),
}
PATIENCE = Patience(least_s=1.5, most_s=3.0)
OLD = 16
TRAINED_S = 15.0


def curve(task: Task, meter: EnergyMeter) -> list[Trial]:
    """Run trials from batch 16 on, doubling until memory is full."""
    training = finders.fresh(task)
    optimizer = training.configure_optimizers()

    def step(size: int) -> None:
        training.plain_step(optimizer, size)

    bench = Bench(step, meter, training.forget_batch, PATIENCE)
    trials = [bench.run(OLD)]
    while trials[-1].status == "ok":
        trials.append(bench.run(2 * trials[-1].size))
    return trials


def trained(task: Task, size: int, samples: int, meter: EnergyMeter) -> dict[str, Any]:
    """Train on this many samples at a batch size, after some steps of warm-up."""
    training = finders.fresh(task)
    optimizer = training.configure_optimizers()
    for _ in range(10):
        training.plain_step(optimizer, size)
    torch.cuda.synchronize()
    start_s = meter.now_s()
    steps = math.ceil(samples / size)
    for _ in range(steps):
        training.plain_step(optimizer, size)
    torch.cuda.synchronize()
    end_s = meter.now_s()
    meter._wait_until_seen(end_s, 3.0)
    energy = meter.energy(start_s, end_s, "gpu")
    done = steps * size
    return {
        "size": size,
        "samples": done,
        "seconds": end_s - start_s,
        "samples_per_s": done / (end_s - start_s),
        "power_w": (energy.energy_j or math.nan) / (end_s - start_s),
        "j_per_sample": (energy.energy_j or math.nan) / done,
        "j_error": energy.error_j / done,
    }


def fill(hog: list[torch.Tensor]) -> None:
    """Fill all free memory, also between the allocator's blocks."""
    for exponent in range(33, 12, -1):
        with contextlib.suppress(torch.OutOfMemoryError):
            while True:
                hog.append(torch.empty(2**exponent, dtype=torch.uint8, device="cuda"))


def full_in_the_optimizer(task: Task, meter: EnergyMeter) -> dict[str, Any]:
    """Leave memory for weights, gradients and activations, and none for the optimizer's state."""
    training = finders.fresh(task)
    optimizer = torch.optim.AdamW(training.parameters())
    weights = [parameter.detach().clone() for parameter in training.parameters()]
    before_bytes = torch.cuda.memory_allocated()
    hog: list[torch.Tensor] = []
    raised: list[str] = []

    def step(size: int) -> None:
        optimizer.zero_grad()
        assert training._batch is None
        rows = [part.to("cuda").expand(size, *part.shape) for part in training._row]
        with torch.autocast("cuda", torch.bfloat16):
            loss = training.training_step((rows[0], rows[1]))
        loss.backward()
        torch.cuda.empty_cache()
        fill(hog)
        try:
            optimizer.step()
        except torch.OutOfMemoryError as error:
            raised.append(str(error)[:80])
            raise

    try:
        tune_batch_size(
            step, keep=[training.net, optimizer], restore=hog.clear, min_size=2, max_size=4,
            meter=meter, patience=PATIENCE,
        )  # fmt: skip
        ended = "found a size"
    except NothingFits as error:
        ended = f"NothingFits: {error}"
    gc.collect()
    return {
        "ended": ended,
        "raised_in_optimizer_step": raised,
        "allocated_before_bytes": before_bytes,
        "allocated_after_bytes": torch.cuda.memory_allocated(),
        "weights_equal": all(map(torch.equal, weights, training.parameters())),
        "optimizer_state": len(optimizer.state),
        "gradients": sum(p.grad is not None for p in training.parameters()),
    }


def main() -> int:
    """Run everything for one training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    task: Task = TASKS[arguments.task]
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name()}

    def save() -> None:
        (arguments.out / f"{arguments.task}.json").write_text(json.dumps(found, indent=1))

    with (
        TemporaryDirectory() as folder,
        EnergyMeter(config=EnergyConfig(report_dir=folder)) as meter,
    ):
        trials = curve(task, meter)
        size_bytes = memory().size_bytes  # type: ignore[union-attr]
        found["curve"] = [asdict(point) for point in points(trials)]
        save()
        rows = []
        for name, find in (
            ("energy_callbacks, knee", finders.ours("knee", PATIENCE)),
            ("energy_callbacks, energy", finders.ours("energy", PATIENCE)),
            ("Lightning, power", finders.lightnings("power")),
            ("Lightning, binsearch", finders.lightnings("binsearch")),
            ("accelerate", finders.accelerates),
        ):
            rows.append(finders.row(task, name, find, meter, PATIENCE))
            found["finders"] = [asdict(one) for one in rows]
            save()
        finders.show(rows)
        knee = rows[0].size or OLD
        samples = int(TRAINED_S * (trials[0].samples_per_s or 1.0))
        found["trained"] = [trained(task, size, samples, meter) for size in (OLD, knee)]
        save()
        found["optimizer"] = full_in_the_optimizer(task, meter)
        save()
    drawn = BatchSizeCurve(
        size=knee,
        why="",
        objective="knee",
        points=points(trials),
        memory_bytes=size_bytes,
        duration_s=0.0,
        energy_j=None,
    )
    figure = batch_size_figure(drawn)
    assert figure is not None
    (arguments.out / f"{arguments.task}.png").write_bytes(figure_png(figure))
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Splits steps into phases on a real GPU: three models in three ways to train, and a counter.

``python -m tests.gpu.step_phases --out DIR [--seconds 22] [--tiny]``: ResNet-50, Mask R-CNN and a
small GPT, with random weights and data, in a plain loop, Lightning and Hugging Face. For each, the
split of ``StepPhases`` and its sum, without scaling, are compared with what the meter measured; for
each model also the power of forward, backward and optimizer when each runs alone for some seconds.
Writes ``phases.json`` to DIR. ``--tiny`` runs everything on a CPU, as a check of this script.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.profiling.phases import StepPhases
from energy_callbacks.report import EnergyReport, build

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WARM_STEPS = 14


class Classifier(nn.Module):
    """ResNet-50 with its loss."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        self.inner = torchvision.models.resnet50(weights=None)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.autocast(DEVICE, torch.bfloat16):
            out = self.inner(x)
        return {"loss": nn.functional.cross_entropy(out.float(), y)}


class Detector(nn.Module):
    """Mask R-CNN, which computes its own losses."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        self.inner = torchvision.models.detection.maskrcnn_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=5
        )

    def forward(self, images: Any, targets: Any) -> dict[str, torch.Tensor]:
        return {"loss": sum(self.inner(list(images), list(targets)).values())}


class Gpt(nn.Module):
    """A decoder of twelve layers."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.inner = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.autocast(DEVICE, torch.bfloat16):
            mask = nn.Transformer.generate_square_subsequent_mask(
                tokens.shape[1] - 1, device=tokens.device
            )
            hidden = self.inner(self.embed(tokens[:, :-1]), mask=mask, is_causal=True)
            out = self.head(hidden)
        loss = nn.functional.cross_entropy(out.float().flatten(0, 1), tokens[:, 1:].flatten())
        return {"loss": loss}


def boxes(count: int, size: int) -> dict[str, torch.Tensor]:
    """Return objects in an image."""
    low = torch.rand(count, 2) * size * 0.5
    high = low + size * 0.1 + torch.rand(count, 2) * size * 0.35
    masks = torch.zeros(count, size, size, dtype=torch.uint8)
    for one, (x0, y0), (x1, y1) in zip(masks, low.int(), high.int(), strict=True):
        one[y0:y1, x0:x1] = 1
    return {
        "boxes": torch.cat([low, high], 1),
        "labels": torch.randint(1, 5, (count,)),
        "masks": masks,
    }


@dataclass(frozen=True)
class Case:
    """A model, its batches on the host, and its optimizer."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], dict[str, Any]]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.name == "gpt":
            return torch.optim.AdamW(model.parameters(), lr=1e-4)
        return torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)


def cases(*, tiny: bool) -> list[Case]:
    """Return the three models."""
    images, side, objects = (2, 64, 2) if tiny else (256, 224, 8)
    scenes, scene = (1, 96) if tiny else (8, 512)
    sequences, length, width, layers = (2, 33, 64, 2) if tiny else (32, 1025, 768, 12)
    return [
        Case(
            "resnet50",
            Classifier,
            lambda: {
                "x": torch.randn(images, 3, side, side),
                "y": torch.randint(0, 1000, (images,)),
            },
        ),
        Case(
            "maskrcnn",
            Detector,
            lambda: {
                "images": [torch.rand(3, scene, scene) for _ in range(scenes)],
                "targets": [boxes(objects, scene) for _ in range(scenes)],
            },
        ),
        Case(
            "gpt",
            lambda: Gpt(width, layers),
            lambda: {"tokens": torch.randint(0, 256, (sequences, length))},
        ),
    ]


def moved(value: Any, device: str) -> Any:
    """Return a nested batch with everything moved to a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {name: moved(one, device) for name, one in value.items()}
    return [moved(one, device) for one in value]


def pinned(value: Any) -> Any:
    """Return a nested batch in pinned memory, as a loader with ``pin_memory`` does."""
    if DEVICE == "cpu":
        return value
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {name: pinned(one) for name, one in value.items()}
    return [pinned(one) for one in value]


def profilers(seconds: float) -> list[StepPhases]:
    """Return the profilers to test."""
    return [StepPhases(follow_s=seconds)]


class Bench:
    """One model, trained in every way."""

    def __init__(self, case: Case, out: Path, seconds: float) -> None:
        self.case, self.out, self.seconds = case, out, seconds
        torch.manual_seed(0)
        self.batches = [pinned(case.batch()) for _ in range(3)]
        self.trained: tuple[nn.Module, torch.optim.Optimizer] | None = None

    def folder(self, way: str) -> Path:
        return self.out / f"{self.case.name}-{way}"

    def fresh(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        model = self.case.model().to(DEVICE).train()
        return model, self.case.optimizer(model)

    def forever(self) -> Iterator[Any]:
        while True:
            yield from self.batches

    def plain(self) -> tuple[EnergyReport, int]:
        """Run a plain loop; also returns how many steps fill the time."""
        model, optimizer = self.fresh()
        config = EnergyConfig(report_dir=self.folder("plain"))
        meter = EnergyMeter(config=config, profilers=profilers(self.seconds))
        steps, start_s = 0, None
        with meter, meter.phase("train"):
            for batch in self.forever():
                meter.data_ready()
                loss = model(**moved(batch, DEVICE))["loss"]
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                meter.step()
                steps += 1
                if steps == WARM_STEPS:
                    synchronise()
                    start_s = time.monotonic()
                if steps % 10 == 0:
                    loss.item()  # as a loop that prints its loss
                if start_s is not None and time.monotonic() - start_s > self.seconds + 1.0:
                    break
            synchronise()
        self.trained = model, optimizer
        return build(meter.run_folder), steps

    def lightning(self, steps: int) -> EnergyReport:
        """Train with Lightning's trainer."""
        import lightning

        from energy_callbacks.lightning import GpuEnergyCallback

        bench = self

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.inner = bench.case.model().train()

            def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
                return self.inner(**batch)["loss"]

            def configure_optimizers(self) -> torch.optim.Optimizer:
                return bench.case.optimizer(self)

        callback = GpuEnergyCallback(
            report_dir=self.folder("lightning"), profile=profilers(self.seconds)
        )
        trainer = lightning.Trainer(
            max_steps=steps,
            accelerator="gpu" if DEVICE == "cuda" else "cpu",
            devices=1,
            callbacks=[callback],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), Batches(self.batches))
        return callback.report()

    def huggingface(self, steps: int) -> EnergyReport:
        """Train with Hugging Face's Trainer."""
        from transformers import Trainer, TrainingArguments

        from energy_callbacks.huggingface import GpuEnergyCallback

        callback = GpuEnergyCallback(
            report_dir=self.folder("huggingface"), profile=profilers(self.seconds)
        )
        bench = self

        class OurTrainer(Trainer):
            def get_train_dataloader(self) -> Any:
                return Batches(bench.batches)

        model, optimizer = self.fresh()
        trainer = OurTrainer(
            model=model,
            args=TrainingArguments(
                output_dir=str(self.folder("huggingface-out")),
                max_steps=steps,
                logging_steps=50,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=DEVICE == "cpu",
            ),
            train_dataset=list(range(8)),
            optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)),
            callbacks=[callback],
        )
        trainer.train()
        return callback.report()

    def alone(self) -> dict[str, dict[str, float]]:
        """Return the power of each phase when it runs alone for some seconds.

        Power depends on data and weights, so these are those of ``plain``, if it has run.
        """
        model, optimizer = self.trained or self.fresh()
        batches = self.forever()
        loss = model(**moved(self.batches[0], DEVICE))["loss"]

        def forward() -> None:
            model(**moved(next(batches), DEVICE))

        def backward() -> None:
            optimizer.zero_grad(set_to_none=True)
            loss.backward(retain_graph=True)

        found = {}
        with EnergyMeter(config=EnergyConfig(report_dir=self.folder("alone"))) as meter:
            for name, work in (
                ("forward", forward),
                ("backward", backward),
                ("optimizer", optimizer.step),
            ):
                found[name] = self.repeated(meter, work)
        return found

    def repeated(self, meter: EnergyMeter, work: Callable[[], Any]) -> dict[str, float]:
        """Return time and power of one phase, over three seconds after one of warming up.

        The host waits for the device every half second, because the device is idle meanwhile.
        """
        block = 1
        for duration_s in (1.0, 3.0):
            synchronise()
            start_s, count = time.monotonic(), 0
            while time.monotonic() - start_s < duration_s:
                for _ in range(block):
                    work()
                count += block
                synchronise()
            end_s = time.monotonic()
            block = max(count // 2, 1)
        scope = "gpu" if DEVICE == "cuda" else "total"
        meter._wait_until_seen(end_s, 3.0)
        energy_j = meter.energy(start_s, end_s, scope).energy_j or 0.0
        return {"time_s": (end_s - start_s) / count, "power_w": energy_j / (end_s - start_s)}


class Batches:
    """Repeats batches, as a loader of the framework would return them."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return 100_000

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self)):
            yield self.batches[number % len(self.batches)]


def synchronise() -> None:
    """Wait for all queued work."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def keep_raw(out: Path) -> None:
    """Write the data from which each split was made."""
    import numpy as np

    from energy_callbacks.profiling.phases import step_phases

    made, numbers = step_phases.split, iter(range(100))

    def keeping(spans: Any, readings: Any, names: Any, steps: int) -> Any:
        np.savez(
            out / f"raw{next(numbers)}.npz",
            edges_s=spans.edges_s,
            labels=spans.labels,
            names=names,
            t_s=readings.t_s,
            power_w=readings.power_w,
            window_s=() if readings.window_s is None else readings.window_s,
            lag_s=np.nan if readings.lag_s is None else readings.lag_s,
            response_s=np.nan if readings.response_s is None else readings.response_s,
        )
        return made(spans, readings, names, steps)

    step_phases.split = keeping


def tell(name: str, way: str, report: EnergyReport) -> dict[str, Any]:
    """Print one line, and keep the record."""
    found = None if report.profile is None else report.profile.step_phases
    if found is None:
        print(f"{name:9} {way:11} no split")
        return {"model": name, "way": way}
    ratio = None
    if found.split_j is not None and found.measured_j:
        ratio = found.split_j / found.measured_j
    shares = "  ".join(
        f"{phase.name} {1e3 * phase.time_s:.1f} ms"
        + (f" {phase.energy_j:.2f}±{phase.error_j:.2f} J" if phase.energy_j is not None else "")
        for phase in found.phases
    )
    print(f"{name:9} {way:11} {found.sentence}\n    sum/measured {ratio}  {shares}", flush=True)
    return {"model": name, "way": way, "ratio": ratio, **asdict(found)}


def main() -> None:
    """Run all models in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=22.0)
    parser.add_argument("--models", default="resnet50,maskrcnn,gpt")
    parser.add_argument("--ways", default="plain,lightning,huggingface,alone")
    parser.add_argument("--raw", action="store_true", help="keep what splits were made from")
    parser.add_argument("--tiny", action="store_true")
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    ways = told.ways.split(",")
    if told.raw:
        keep_raw(told.out)
    rows: list[dict[str, Any]] = []
    for case in cases(tiny=told.tiny):
        if case.name not in told.models.split(","):
            continue
        bench = Bench(case, told.out / "runs", told.seconds)
        report, steps = bench.plain()
        rows.append(tell(case.name, "plain", report))
        if "lightning" in ways:
            rows.append(tell(case.name, "lightning", bench.lightning(steps)))
        if "huggingface" in ways:
            rows.append(tell(case.name, "huggingface", bench.huggingface(steps)))
        if "alone" in ways:
            rows.append({"model": case.name, "way": "alone", **bench.alone()})
            print(f"{case.name:9} alone       {rows[-1]}", flush=True)
        (told.out / "phases.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

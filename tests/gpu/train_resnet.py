"""Trains on a real GPU, and compares the report with the card's own energy counter.

``python -m tests.gpu.train_resnet --out DIR [--seconds 60]``: a ResNet-18 in bf16 on scikit-learn's
digits, enlarged to 64 x 64, with validation; then the same loop with and without the callback in
turn. Prints one JSON object: the report's figures, the counter's difference over the same training
read by hand, and the cost of the callback.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pynvml
import torch
import torchvision
from lightning.pytorch.loggers import TensorBoardLogger
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

from energy_callbacks.lightning import GpuEnergyCallback
from tests.gpu.in_turn import compared


class ResNet(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torchvision.models.resnet18(num_classes=10)
        self.net.conv1 = torch.nn.Conv2d(1, 64, 7, 2, 3, bias=False)

    def _loss_and_accuracy(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = batch
        logits = self.net(torch.nn.functional.interpolate(images, size=64))
        accuracy = (logits.argmax(dim=1) == labels).float().mean()
        return torch.nn.functional.cross_entropy(logits, labels), accuracy

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss, _ = self._loss_and_accuracy(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss, accuracy = self._loss_and_accuracy(batch)
        self.log_dict({"val_loss": loss, "val_accuracy": accuracy})

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def loaders() -> tuple[DataLoader, DataLoader]:
    """Return loaders of the digits sixteen times over, so that an epoch takes seconds."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16.0
    data = TensorDataset(images.repeat(16, 1, 1, 1), torch.tensor(digits.target).repeat(16))
    train, held_out = random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))
    return (
        DataLoader(train, batch_size=512, shuffle=True, drop_last=True),
        DataLoader(held_out, batch_size=512),
    )


def trainer(root: Path, callbacks: list[Any], **limits: Any) -> pl.Trainer:
    """Return a trainer with one GPU, bf16, and TensorBoard every ten steps."""
    return pl.Trainer(
        accelerator="gpu",
        devices=1,
        precision="bf16-mixed",
        default_root_dir=root,
        logger=TensorBoardLogger(root, name="tb", version=0),
        log_every_n_steps=10,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=callbacks,
        **limits,
    )


def counter_j() -> float:
    """Read the card's energy counter."""
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3


def train(root: Path, seconds: float) -> dict[str, Any]:
    """Train once with the callback; returns its report, and the counter over the same span."""
    pl.seed_everything(0)
    ours = GpuEnergyCallback(country="DEU", run_name="ResNet-18 on digits", price_per_kwh=0.30)
    limits = {"max_epochs": -1, "max_time": {"seconds": seconds}}
    before_j, started_s = counter_j(), time.monotonic()
    trainer(root, [ours], **limits).fit(ResNet(), *loaders())
    return {
        "by_hand_j": counter_j() - before_j,
        "by_hand_s": time.monotonic() - started_s,
        "report_gpu_j": ours.report().energy.gpu.energy_j,
        "report_gpu_method": ours.report().energy.gpu.method,
        "report_error_j": ours.report().energy.gpu.error_j,
        "report_s": ours.report().run.duration_s,
        "coverage": ours.report().energy.gpu.coverage,
        "sampler_core_share": ours.report().measuring.core_share,
        "phases": {
            phase.name: {"s": phase.duration_s, "gpu_j": phase.gpu.energy_j}
            for phase in ours.report().phases
        },
    }


def against_counter(root: Path) -> list[dict[str, float]]:
    """Compare our energy over 5 s with the counter's, under on/off loads of several periods."""
    from energy_callbacks import EnergyMeter

    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    rows = []
    with EnergyMeter() as meter:
        time.sleep(2.0)
        for on_s, off_s in ((5.0, 0.0), (0.5, 0.5), (0.1, 0.1), (0.05, 0.05), (0.02, 0.03)):
            before_j, start_s = counter_j(), time.monotonic()
            while time.monotonic() - start_s < 5.0:
                burst_s = time.monotonic()
                while time.monotonic() - burst_s < on_s:
                    matrix @ matrix
                    torch.cuda.synchronize()
                time.sleep(off_s)
            end_s, after_j = time.monotonic(), counter_j()
            time.sleep(2.5)
            ours = meter.energy(start_s, end_s, "gpu")
            rows.append(
                {
                    "on_s": on_s,
                    "off_s": off_s,
                    "ours_j": ours.energy_j,
                    "error_j": ours.error_j,
                    "counter_j": after_j - before_j,
                    "method": ours.method,
                    "coverage": ours.coverage,
                }
            )
    return rows


def cost(root: Path, rounds: int = 10) -> dict[str, Any]:
    """Return milliseconds a step with and without the callback, in turn; the medians' ratio."""
    batches = [(images.cuda(), labels.cuda()) for images, labels in loaders()[0]]
    on_device = DataLoader(batches * 8, batch_size=None)
    times: dict[bool, list[float]] = {False: [], True: []}
    for index in range(2 * rounds):
        has_ours = index % 2 == 1
        callbacks = [GpuEnergyCallback(report_dir=root / f"cost{index}")] if has_ours else []
        model = ResNet()
        timer = Timer()
        trainer(root / "cost", [*callbacks, timer], max_steps=300).fit(model, on_device)
        times[has_ours].append(timer.ms_a_step)
    return compared(times)


class Timer(pl.Callback):
    """Wall time of the steps after the first twenty, the device synchronised at both ends."""

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, i: int
    ) -> None:
        if trainer.global_step == 20:
            torch.cuda.synchronize()
            self.start_s = time.perf_counter()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        torch.cuda.synchronize()
        steps = trainer.global_step - 20
        self.ms_a_step = 1e3 * (time.perf_counter() - self.start_s) / steps


def main() -> None:
    """Run the parts, print each as JSON, and write all to figures.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    pynvml.nvmlInit()
    torch.set_float32_matmul_precision("high")
    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(0),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
    }
    for name, part in (
        ("training", lambda: train(arguments.out / "run", arguments.seconds)),
        ("against_counter", lambda: against_counter(arguments.out)),
        ("cost", lambda: cost(arguments.out)),
    ):
        found[name] = part()
        print(name, json.dumps(found[name]), flush=True)
    (arguments.out / "figures.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

"""Run by ``test_faults.py``: six seconds of training in real time while a fault begins.

``faults_script.py FAULT`` trains in the working folder, on the CPU beside a fake card of 300 W, and
leaves what the test needs to know in ``answer.json``; without us where FAULT is ``without_us``. A
process of its own, because a call that hangs for two minutes cannot be taken back.
"""

import hashlib
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pynvml
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks.lightning import GpuEnergyCallback
from tests.fake_nvml import Constant, FakeNvml, Fault, Scenario, h200

POWER_W = 300.0
BATCHES = 600
BATCH_S = 0.01
FAULT_BATCH = 250
HANG_S = 120.0
NEVER_S = 1e9
HOOKS = (
    "on_train_epoch_start", "on_train_batch_start", "on_train_batch_end", "on_train_epoch_end",
    "on_validation_start", "on_validation_end",
)  # fmt: skip


class Module(pl.LightningModule):
    """A small model with bitwise reproducible training."""

    def __init__(self, begin_fault: Callable[[], object]) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.Dropout(0.2), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )
        self.begin_fault = begin_fault

    def training_step(self, batch: list, batch_idx: int) -> torch.Tensor:
        if batch_idx == FAULT_BATCH:
            self.begin_fault()
        time.sleep(BATCH_S)
        loss = self.layers(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list, batch_idx: int) -> None:
        self.log("val_loss", self.layers(batch[0]).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def data(batches: int) -> DataLoader:
    """Return fixed rows in an order from the global generator."""
    rows = torch.randn(4 * batches, 16, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(rows), batch_size=4, shuffle=batches == BATCHES)


def journal(folder: Path) -> tuple[int, Path]:
    """Return the open journal below a run folder, and its file descriptor."""
    (path,) = folder.rglob("*.jsonl")
    links = [link for link in Path("/proc/self/fd").iterdir() if link.exists()]
    (link,) = (link for link in links if link.resolve() == path.resolve())
    return int(link.name), path


def fill_disk(folder: Path) -> None:
    """Let the journal fail from now on."""
    number, _ = journal(folder)
    os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def timed(callback: Any) -> list[tuple[float, float]]:
    """Measure wall time and processor time of each hook of a callback."""
    durations_s: list[tuple[float, float]] = []

    def measure(name: str) -> Callable[..., None]:
        hook = getattr(callback, name)

        def run(*args: Any, **kwargs: Any) -> None:
            before_s, cpu_before_s = time.perf_counter(), time.thread_time()
            hook(*args, **kwargs)
            cpu_s = time.thread_time() - cpu_before_s
            durations_s.append((time.perf_counter() - before_s, cpu_s))

        return run

    for name in HOOKS:
        setattr(callback, name, measure(name))
    return durations_s


def faults_of_card(fault: str) -> tuple[Fault, ...]:
    """Return the faults of the NVML library, which begin when they are told to."""
    lost = float(pynvml.NVML_ERROR_GPU_IS_LOST)
    known = {
        "hang": Fault(group="*", kind="hang", start_s=NEVER_S, value=HANG_S),
        "lost": Fault(group="*", kind="error", start_s=NEVER_S, value=lost),
    }
    return (known[fault],) if fault in known else ()


def main(folder: Path, fault: str) -> dict[str, Any]:
    """Train, and report the result."""
    energy = folder / "energy"
    scenario = Scenario(cards=(h200(Constant(POWER_W)),), faults=faults_of_card(fault))
    nvml = FakeNvml(scenario, folder, virtual=False)
    begins: dict[str, Callable[[], object]] = {
        "hang": nvml.begin_faults,
        "lost": nvml.begin_faults,
        "disk_full": lambda: fill_disk(energy),
        "folder_deleted": lambda: shutil.rmtree(energy),
    }
    pl.seed_everything(0, verbose=False)
    module = Module(begins.get(fault, lambda: None))
    callback = GpuEnergyCallback(report_dir=energy, devices=[0])
    durations_s = timed(callback)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, log_every_n_steps=10, enable_progress_bar=False,
        default_root_dir=folder, logger=CSVLogger(folder, version=0), enable_checkpointing=False,
        callbacks=[] if fault == "without_us" else [callback],
    )  # fmt: skip
    start_s = time.monotonic()
    trainer.fit(module, data(BATCHES), data(5))
    fit_s = time.monotonic() - start_s
    digest = hashlib.sha256()
    for tensor in module.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return {
        "weights": digest.hexdigest(),
        "fit_s": fit_s,
        "fit_ended_unix_s": time.time(),
        "hooks_s": durations_s,
        "steps": trainer.global_step,
    }


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    here = Path.cwd()
    (here / "answer.json").write_text(json.dumps(main(here, sys.argv[1])))

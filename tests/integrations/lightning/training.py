"""A tiny real Lightning training in which time is virtual: each batch takes a tenth of a second."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.testing import FakeClock, ScriptedSource

STEP_S = 0.1
POWER_W = 200.0
BATCH_SIZE = 4

os.environ.setdefault("HF_HUB_OFFLINE", "1")


class TinyModule(pl.LightningModule):
    """A linear model; ``clock.advance`` makes every batch take time."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.clock = clock

    def _loss(self, batch: Any) -> torch.Tensor:
        self.clock.advance(STEP_S)
        return self.layer(batch[0]).square().mean()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self._loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self._loss(batch))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("test_loss", self._loss(batch))

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self._loss(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ManualModule(TinyModule):
    """Two optimizers, both stepped on every batch."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            loss = self._loss(batch)
            self.manual_backward(loss)
            optimizer.step()
        self.log("train_loss", loss)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(self.parameters(), lr=0.1) for _ in range(2)]


class FailingModule(TinyModule):
    """Raises in the batch with the given number."""

    def __init__(self, clock: FakeClock, error: BaseException, at_batch: int = 30) -> None:
        super().__init__(clock)
        self.error = error
        self.at_batch = at_batch

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if batch_idx == self.at_batch:
            raise self.error
        return super().training_step(batch, batch_idx)


def loader(batches: int = 40) -> DataLoader:
    """Return a loader of full batches of fixed data."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(batches * BATCH_SIZE, 4, generator=generator)
    return DataLoader(TensorDataset(data), batch_size=BATCH_SIZE)


def callback(clock: FakeClock, power_w: float = POWER_W, **settings: Any) -> GpuEnergyCallback:
    """Our callback on a constant, scripted GPU."""
    counter = settings.pop("counter", True)
    source = ScriptedSource(
        clock,
        power_w=lambda t_s: power_w,
        energy_j=(lambda t_s: power_w * t_s) if counter else None,
    )
    config = EnergyConfig(**{k: settings.pop(k) for k in ("report_dir",) if k in settings})
    return GpuEnergyCallback(
        meter=EnergyMeter(sources=[source], clock=clock, config=config), **settings
    )


def trainer(root: Path, *callbacks: Any, **settings: Any) -> pl.Trainer:
    """A quiet CPU trainer that logs every fifth step into TensorBoard."""
    pl.seed_everything(0, verbose=False)
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "max_epochs": 2,
        "log_every_n_steps": 5,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": root,
        "callbacks": list(callbacks),
    }
    if "logger" not in settings:
        settings["logger"] = TensorBoardLogger(root, name="tb", version=0)
    return pl.Trainer(**(defaults | settings))


class Remote(Logger):
    """A logger of the user.

    Attributes:
        write: called with each row.
        finalized: statuses with which Lightning has finished this logger.
    """

    name = "remote"
    version = 0

    def __init__(self, write: Callable[[dict], object] = lambda row: None) -> None:
        super().__init__()
        self.write = write
        self.rows: list[dict] = []
        self.finalized: list[str] = []

    def log_metrics(self, metrics: dict, step: int | None = None) -> None:
        self.write(metrics)
        self.rows.append(metrics)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing to log."""

    def finalize(self, status: str) -> None:
        self.finalized.append(status)


def refuse(row: dict) -> None:
    """Fail for our rows."""
    if "power/gpu_w" in row:
        raise ConnectionError("the server is gone")

"""Trainings to tune: real steps of Lightning on virtual time, with memory that ends somewhere."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.testing import ScriptedSource
from energy_callbacks.tuning import Patience
from tests.tuning.simulated import BusyClock

POWER_W = 200.0
LAUNCH_S, SAMPLE_S = 0.02, 1e-3
# Of virtual time: a step or two to a block, and long enough for figures.
QUICK = Patience(block_s=0.04, least_s=0.1, most_s=0.4)
STEADY = Patience(block_s=0.25, least_s=1.0, most_s=2.0)


def rows(count: int = 256) -> TensorDataset:
    """Return fixed data."""
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(count, 8, generator=generator))


class Net(pl.LightningModule):
    """A module with all kinds of state; a batch of more than ``most`` samples does not fit.

    A step takes ``LAUNCH_S + size x SAMPLE_S`` of virtual time.
    """

    def __init__(self, most: int = 10**9, batch_size: int = 16, data: Dataset | None = None):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(), torch.nn.ReLU()
        )
        self.clock = BusyClock()
        self.most = most
        self.batch_size = batch_size
        self.data = data or rows()
        self.told = _Told()
        self.outputs: list[torch.Tensor] = []
        self.steps = 0

    def forward(self, batch: Any) -> torch.Tensor:
        """Return a loss."""
        (inputs,) = batch
        self.told.sizes.append(len(inputs))
        self.clock.advance(LAUNCH_S + len(inputs) * SAMPLE_S)
        loss = self.layers(inputs).square().mean()
        if len(inputs) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return loss

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self(batch)
        self.outputs.append(loss.detach())
        self.steps += 1
        random.random()
        np.random.random()
        self.log("loss", loss, on_epoch=True, prog_bar=True)
        return loss

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.data, batch_size=self.batch_size, shuffle=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class _Told:
    """Inputs of a module, recorded where a search does not restore them."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.types: set[torch.dtype] = set()
        self.watches: set[bool] = set()
        self.norms: list[float] = []


class Manual(Net):
    """A module with two optimizers, stepped manually as in a GAN."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.automatic_optimization = False
        self.critic = torch.nn.Linear(8, 1)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        first, second = self.optimizers()
        self.toggle_optimizer(second)
        second.zero_grad()
        self.manual_backward(self.critic(batch[0]).square().mean())
        self.clip_gradients(second, gradient_clip_val=0.1, gradient_clip_algorithm="norm")
        second.step()
        self.untoggle_optimizer(second)
        self.toggle_optimizer(first)
        first.zero_grad()
        self.manual_backward(super().training_step(batch, batch_idx))
        first.step()
        self.lr_schedulers().step()
        self.untoggle_optimizer(first)

    def configure_optimizers(self) -> Any:
        first = torch.optim.Adam(self.layers.parameters())
        second = torch.optim.SGD(self.critic.parameters(), lr=0.1, momentum=0.9)
        return [first, second], [torch.optim.lr_scheduler.StepLR(first, 3)]


def meter(net: Net, folder: Path) -> EnergyMeter:
    """Return a meter of a GPU of constant power, on the net's clock."""
    source = ScriptedSource(
        net.clock, power_w=lambda t_s: POWER_W, energy_j=lambda t_s: POWER_W * t_s
    )
    return EnergyMeter(
        sources=[source], clock=net.clock, config=EnergyConfig(report_dir=folder / "energy")
    )


def options(net: Net, folder: Path, **more: Any) -> dict[str, Any]:
    """Return options of a search that takes no real time and prints nothing."""
    base = {"meter": meter(net, folder), "patience": QUICK, "max_trials": 6}
    return base | {"on_trial": lambda trial: None} | more


def trainer(folder: Path, *callbacks: Any, **settings: Any) -> pl.Trainer:
    """Return a quiet CPU trainer."""
    defaults: dict[str, Any] = {
        "accelerator": "cpu", "max_epochs": 2, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder,
        "callbacks": list(callbacks),
    }  # fmt: skip
    return pl.Trainer(**(defaults | settings))


def state(lightning: pl.Trainer) -> dict[str, Any]:
    """Return all state that a step changes, as plain values."""
    net = lightning.lightning_module
    return dict(
        _leaves(
            {
                "module": net.state_dict(),
                "gradients": [parameter.grad for parameter in net.parameters()],
                "wanted": [parameter.requires_grad for parameter in net.parameters()],
                "training": [part.training for part in net.modules()],
                "optimizers": [one.state_dict() for one in lightning.optimizers],
                "schedules": [
                    config.scheduler.state_dict() for config in lightning.lr_scheduler_configs
                ],
                "attributes": (list(net.outputs), net.steps, set(vars(net))),
                "loops": lightning.fit_loop.state_dict(),
                "steps": (lightning.global_step, lightning.current_epoch),
                "random": (
                    torch.get_rng_state(), random.getstate(), np.random.get_state(legacy=False),
                ),
                "trainer": (
                    lightning.callbacks, lightning.loggers, lightning.should_stop,
                    lightning.limit_val_batches, lightning.limit_train_batches,
                    lightning.max_steps, lightning.max_epochs, lightning.val_check_batch,
                    sorted(lightning.callback_metrics),
                ),
            }
        )
    )  # fmt: skip


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        yield path, len(value)
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    elif isinstance(value, torch.Tensor | np.ndarray):
        yield path, (str(value.dtype), value.tolist())
    else:
        yield path, value

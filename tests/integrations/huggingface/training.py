"""A tiny real Trainer in which time is virtual: each batch takes a tenth of a second."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.huggingface import GpuEnergyCallback
from energy_callbacks.testing import FakeClock, ScriptedSource

STEP_S = 0.1
POWER_W = 200.0
BATCH_SIZE = 4
LENGTH = 3
BATCHES = 20
STEPS = 2 * BATCHES  # of a training


class TinyModel(torch.nn.Module):
    """A linear model; ``clock.advance`` makes every forward pass take time."""

    main_input_name = "input_ids"

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(LENGTH, 1)
        self.clock = clock

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        self.clock.advance(STEP_S)
        logits = self.layer(input_ids)
        return {"loss": (logits - 1.0).square().mean(), "logits": logits}


class Witness(TinyModel):
    """A model that counts its training samples, independent of the Trainer version."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.passes = self.samples = self.tokens = 0

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict:
        if self.training:
            self.passes += 1
            self.samples += len(input_ids)
            self.tokens += input_ids.numel()
        return super().forward(input_ids, labels)


class FailingModel(TinyModel):
    """A model that raises once, in the forward pass with the given number."""

    def __init__(self, clock: FakeClock, error: BaseException, at_pass: int = 30) -> None:
        super().__init__(clock)
        self.error = error
        self.passes_left = at_pass

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict:
        self.passes_left -= 1
        if self.passes_left == -1:
            raise self.error
        return super().forward(input_ids, labels)


class Rows(Dataset):
    """A number of fixed rows."""

    def __init__(self, rows: int = BATCHES * BATCH_SIZE) -> None:
        generator = torch.Generator().manual_seed(0)
        self.data = torch.randn(rows, LENGTH, generator=generator)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.data[index], "labels": self.data[index, :1]}


class Ticking(TrainerCallback):
    """A callback that lets time pass in one event, like a slow user callback."""

    def __init__(self, clock: FakeClock, event: str, duration_s: float) -> None:
        setattr(self, event, lambda *_, **__: clock.advance(duration_s))


class Remembering(TrainerCallback):
    """A callback that records its logs, like a reporting callback."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.rows.append(dict(logs))


def meter(clock: FakeClock, power_w: float = POWER_W, **config: Any) -> EnergyMeter:
    """A meter on a constant, scripted GPU."""
    source = ScriptedSource(clock, power_w=lambda t_s: power_w, energy_j=lambda t_s: power_w * t_s)
    return EnergyMeter(sources=[source], clock=clock, config=EnergyConfig(**config))


def callback(clock: FakeClock, power_w: float = POWER_W, **settings: Any) -> GpuEnergyCallback:
    """Our callback on that meter."""
    config = {k: settings.pop(k) for k in ("report_dir", "country") if k in settings}
    return GpuEnergyCallback(meter=meter(clock, power_w, **config), **settings)


def trainer(
    root: Path,
    model: torch.nn.Module,
    *callbacks: Any,
    data: Any = None,
    eval_data: Any = None,
    make: Callable[..., Trainer] = Trainer,
    arguments: type[TrainingArguments] = TrainingArguments,
    **settings: Any,
) -> Trainer:
    """A quiet CPU trainer of two epochs that logs every fifth step and saves nothing."""
    defaults: dict[str, Any] = {
        "output_dir": str(root),
        "use_cpu": True,
        "num_train_epochs": 2,
        "per_device_train_batch_size": BATCH_SIZE,
        "per_device_eval_batch_size": BATCH_SIZE,
        "logging_steps": 5,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 0,
    }
    return make(
        model=model,
        args=arguments(**(defaults | settings)),
        train_dataset=Rows() if data is None else data,
        eval_dataset=eval_data,
        callbacks=list(callbacks),
    )


def boards(root: Path) -> list[Path]:
    """Return all folders with event files below a folder."""
    return sorted({path.parent for path in root.rglob("events.out.tfevents*")})

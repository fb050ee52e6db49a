"""A training whose Trainer is made anew for a batch size, with a memory of a known size."""

from collections import UserList
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.huggingface import tune_batch_size
from energy_callbacks.tuning import BatchSizeResult, Patience
from tests.integrations.huggingface.training import LENGTH, Rows

QUICK = Patience(block_s=0.005, least_s=0.02, most_s=0.05, seen_s=0.5)
WANT = "CUDA out of memory. Tried to allocate 2.00 GiB."


class Seen(UserList):
    """Sizes that a model has seen; an attribute of the model would be restored after the search."""


class Tunable(torch.nn.Module):
    """A model that runs out of memory beyond ``most`` samples and records sizes in a list."""

    main_input_name = "input_ids"

    def __init__(self, most: int = 32, error: Exception | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(LENGTH, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 1)
        )
        self.seen = Seen()
        self.most = most
        self.error = error or torch.OutOfMemoryError(WANT)
        # So many passes succeed before too large a batch fails: the weights have moved by then.
        self.lasting = 0
        self.passes: dict[int, int] = {}

    def forward(
        self, input_ids: torch.Tensor, labels: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        size = len(input_ids)
        if self.training:
            self.seen.append(size)
        self.passes[size] = self.passes.get(size, 0) + 1
        if size > self.most and self.passes[size] > self.lasting:
            raise type(self.error)(*self.error.args)  # a new one: its frames are then let go
        return {"loss": (self.layers(input_ids.float()) - 1.0).square().mean()}


class Factory:
    """Creates Trainers of one model; ``made`` has all of them."""

    def __init__(self, root: Path, model: torch.nn.Module, **settings: Any) -> None:
        self.root = root
        self.model = model
        given = {"data": Rows(96), "callbacks": [], "make": Trainer, "rest": {}}
        self.given = {name: settings.pop(name, value) for name, value in given.items()}
        self.settings = settings
        self.made: list[Trainer] = []

    def __call__(self, **batch: int) -> Trainer:
        quiet: dict[str, Any] = {
            "output_dir": str(self.root),
            "use_cpu": True,
            "num_train_epochs": 1,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "seed": 0,
        }
        trainer = self.given["make"](
            model=self.model,
            args=TrainingArguments(**(quiet | self.settings | batch)),
            train_dataset=self.given["data"],
            callbacks=list(self.given["callbacks"]),
            **self.given["rest"],
        )
        self.made.append(trainer)
        return trainer


class Events(TrainerCallback):
    """A callback that records the names of all events."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            self.names.append(name)
        return super().__getattribute__(name)


def tuned(factory: Any, root: Path, **options: Any) -> BatchSizeResult:
    """Run a quick search for the largest size."""
    meter = EnergyMeter(config=EnergyConfig(report_dir=root / "energy"), sources=[])
    defaults: dict[str, Any] = {
        "objective": "largest",
        "max_trials": 8,
        "patience": QUICK,
        "meter": meter,
        "on_trial": lambda trial: None,
    }
    return tune_batch_size(factory, **(defaults | options))

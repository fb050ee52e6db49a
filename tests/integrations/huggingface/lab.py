"""Hugging Face's lab: the contract's trainings in a real ``Trainer``."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.utils.data import DataLoader, Dataset, IterableDataset
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainingArguments,
)
from transformers.integrations import TensorBoardCallback

from energy_callbacks.huggingface import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.contract.lab import BATCH_SIZE, Plan, Rows, Stock, together
from tests.integrations.contract.leaves import leaves, of_json
from tests.integrations.huggingface.training import boards
from tests.integrations.reading import scalars
from tests.integrations.slow_rows import SlowRows


class Data(Dataset):
    """Rows in the format of the Trainer."""

    def __init__(self, clock: FakeClock, samples: int, load_s: float = 0.0) -> None:
        self._rows = SlowRows(clock, samples, load_s)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self._rows[index]
        return {"input_ids": row, "labels": row[:1]}


class Model(torch.nn.Module):
    """A linear model whose forward passes take time."""

    main_input_name = "input_ids"

    def __init__(self, clock: FakeClock, plan: Plan) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.clock = clock
        self.plan = plan
        self.batches = 0

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.training:
            number, self.batches = self.batches, self.batches + 1
            self.plan.before_batch(number)
        self.clock.advance(self.plan.step_s)
        logits = self.layer(input_ids)
        return {"loss": (logits - 1.0).square().mean(), "logits": logits}


class SlowToSave(Trainer):
    """A Trainer whose checkpoints take the time of the plan."""

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        self.model.clock.advance(self.model.plan.checkpoint_s or 0.0)
        super().save_model(*args, **kwargs)

    def get_train_dataloader(self) -> DataLoader:
        """Return the loader; a stream makes its own batches."""
        if isinstance(self.train_dataset, Stream):
            return DataLoader(self.train_dataset, batch_size=None)
        return super().get_train_dataloader()


class Stream(IterableDataset):
    """Batches of these sizes in order."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        rows = torch.randn(sum(self._sizes), 4, generator=torch.Generator().manual_seed(0))
        return ({"input_ids": one, "labels": one[:, :1]} for one in rows.split(list(self._sizes)))


class HuggingFaceTraining:
    """One Trainer, created once as by a user."""

    def __init__(self, folder: Path, clock: FakeClock, plan: Plan, callbacks: tuple) -> None:
        self.folder = folder
        self._is_resumed = False
        self._clock = clock
        self._model = Model(clock, plan)
        train = Data(clock, plan.samples, plan.load_s)
        validation = Data(clock, plan.validation_samples) if plan.validation_samples else None
        defaults: dict[str, Any] = {
            "output_dir": str(folder),
            "use_cpu": True,
            "num_train_epochs": plan.epochs,
            "max_steps": len(plan.stream) or -1,
            "per_device_train_batch_size": BATCH_SIZE,
            "per_device_eval_batch_size": BATCH_SIZE,
            "gradient_accumulation_steps": plan.accumulate,
            "eval_strategy": "epoch" if validation else "no",
            "save_strategy": "no" if plan.checkpoint_s is None else "epoch",
            "logging_steps": plan.log_every,
            "report_to": ["tensorboard"] if plan.logs else [],
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "dataloader_num_workers": plan.workers,
            "seed": 0,
        }
        arguments = TrainingArguments(**defaults | plan.settings)
        self._trainer = SlowToSave(
            model=self._model,
            args=arguments,
            train_dataset=Stream(plan.stream) if plan.stream else train,
            eval_dataset=validation,
            callbacks=list(callbacks),
        )

    def fit(self) -> None:
        self._model.batches = 0
        self._metrics = self._trainer.train().metrics

    def resume(self) -> None:
        self._is_resumed = True
        self._model.batches = 0
        self._trainer.train(resume_from_checkpoint=True)

    def evaluate(self) -> None:
        self._trainer.evaluate(Data(self._clock, 10 * BATCH_SIZE))

    def predict(self) -> None:
        self._trainer.predict(Data(self._clock, 10 * BATCH_SIZE))

    def run_folder(self) -> Path:
        *earlier, newest = sorted(boards(self.folder), key=lambda folder: folder.stat().st_mtime)
        assert self._is_resumed or not earlier
        return newest

    def weights(self) -> list[bytes]:
        return [one.numpy().tobytes() for one in self._model.state_dict().values()]

    def metrics(self) -> dict[str, Any]:
        history = {
            f"{number} {key}": value
            for number, row in enumerate(self._trainer.state.log_history)
            for key, value in row.items()
        }
        return untimed(history | self._metrics)

    def steps(self) -> int:
        return self._trainer.state.global_step

    def checkpoint(self) -> dict[str, Any]:
        [*_, last] = sorted(self.folder.glob("checkpoint-*"), key=lambda one: one.stat().st_mtime)
        files = {path.name: self._values(path) for path in sorted(last.iterdir())}
        return {
            place: value
            for place, value in leaves(files, self.folder)
            if not place.endswith(("runtime", "_per_second"))
        }

    def _values(self, path: Path) -> Any:
        if path.suffix == ".json":
            return of_json(path)
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, weights_only=False)
        return found.to_dict() if isinstance(found, TrainingArguments) else found

    def rows(self) -> Rows:
        return untimed(scalars(self.run_folder()))


def untimed(rows: dict[str, Any]) -> dict[str, Any]:
    """Return rows without those that Hugging Face measures in real time."""
    return {
        tag: found for tag, found in rows.items() if not tag.endswith(("runtime", "_per_second"))
    }


class HuggingFaceLab:
    """See ``tests/integrations/contract/lab.py``."""

    name = framework = "huggingface"
    unseen_batches = 1
    stock = (
        Stock(
            name="EarlyStoppingCallback",
            make=lambda _: EarlyStoppingCallback(1, 100.0),
            settings={
                "load_best_model_at_end": True,
                "metric_for_best_model": "loss",
                "save_strategy": "epoch",
            },
        ),
        together(
            Stock(name="ProgressCallback", make=lambda _: ProgressCallback()),
            Stock(name="PrinterCallback", make=lambda _: PrinterCallback()),
        ),
        Stock(name="ProgressCallback by setting", settings={"disable_tqdm": False}),
        Stock(
            name="TensorBoardCallback",
            make=lambda _: TensorBoardCallback(),
            settings={"report_to": []},
        ),
        Stock(name="report_to a word", settings={"report_to": "tensorboard"}),
        Stock(name="CodeCarbon", settings={"report_to": ["tensorboard", "codecarbon"]}),
    )
    # By default, not every row of the loss has our figures; ``test_logging.py`` tests the default.
    callback = partial(GpuEnergyCallback, log_every_n_steps=1)
    loss_tags = ("train/loss", "train/train_loss")

    def training(
        self, folder: Path, clock: FakeClock, plan: Plan, *callbacks: Any
    ) -> HuggingFaceTraining:
        return HuggingFaceTraining(folder, clock, plan, callbacks)

    def read(self, folder: Path) -> Rows:
        return scalars(folder)

    def scalar_writers(self) -> tuple[tuple[Any, str], ...]:
        from torch.utils.tensorboard import SummaryWriter

        return ((SummaryWriter, "add_scalar"),)

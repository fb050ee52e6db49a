"""Hugging Face's lab: the contract's trainings in a real ``Trainer``."""

from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from energy_callbacks.huggingface import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.contract.lab import BATCH_SIZE, STEP_S, Plan, Rows
from tests.integrations.huggingface.training import boards
from tests.integrations.reading import scalars
from tests.integrations.slow_rows import SlowRows


class Data(Dataset):
    """Rows as the Trainer wants them."""

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
        self.clock.advance(STEP_S)
        logits = self.layer(input_ids)
        return {"loss": (logits - 1.0).square().mean(), "logits": logits}


class SlowToSave(Trainer):
    """A checkpoint takes the time that the plan says."""

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        self.model.clock.advance(self.model.plan.checkpoint_s or 0.0)
        super().save_model(*args, **kwargs)


class HuggingFaceTraining:
    """One trainer, as a user makes it once."""

    def __init__(self, folder: Path, clock: FakeClock, plan: Plan, callbacks: tuple) -> None:
        self._folder = folder
        self._clock = clock
        self._model = Model(clock, plan)
        validation = Data(clock, plan.validation_samples) if plan.validation_samples else None
        arguments = TrainingArguments(
            output_dir=str(folder),
            use_cpu=True,
            num_train_epochs=plan.epochs,
            per_device_train_batch_size=BATCH_SIZE,
            per_device_eval_batch_size=BATCH_SIZE,
            gradient_accumulation_steps=plan.accumulate,
            eval_strategy="epoch" if validation else "no",
            save_strategy="no" if plan.checkpoint_s is None else "epoch",
            logging_steps=plan.log_every,
            report_to=["tensorboard"] if plan.logs else [],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=0,
        )
        self._trainer = SlowToSave(
            model=self._model,
            args=arguments,
            train_dataset=Data(clock, plan.samples, plan.load_s),
            eval_dataset=validation,
            callbacks=list(callbacks),
        )

    def fit(self) -> None:
        self._model.batches = 0
        self._trainer.train()

    def resume(self) -> None:
        self._model.batches = 0
        self._trainer.train(resume_from_checkpoint=True)

    def evaluate(self) -> None:
        self._trainer.evaluate(Data(self._clock, 10 * BATCH_SIZE))

    def predict(self) -> None:
        self._trainer.predict(Data(self._clock, 10 * BATCH_SIZE))

    def weights(self) -> list[bytes]:
        return [one.numpy().tobytes() for one in self._model.state_dict().values()]

    def rows(self) -> Rows:
        [folder] = boards(self._folder)
        return untimed(scalars(folder))


def untimed(rows: Rows) -> Rows:
    """Rows without those that HF measures in real time."""
    return {
        tag: found for tag, found in rows.items() if not tag.endswith(("runtime", "_per_second"))
    }


class HuggingFaceLab:
    """See ``tests/integrations/contract/lab.py``."""

    name = framework = "huggingface"
    unseen_batches = 1
    callback = GpuEnergyCallback
    loss_tags = ("train/loss", "train/train_loss")

    def training(
        self, folder: Path, clock: FakeClock, plan: Plan, *callbacks: Any
    ) -> HuggingFaceTraining:
        return HuggingFaceTraining(folder, clock, plan, callbacks)

    def read(self, folder: Path) -> Rows:
        return scalars(folder)

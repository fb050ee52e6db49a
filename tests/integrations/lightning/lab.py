"""Lightning's lab: the contract's trainings in a real ``Trainer``."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader

from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.contract.lab import BATCH_SIZE, STEP_S, Plan, Rows
from tests.integrations.reading import scalars
from tests.integrations.slow_rows import SlowRows


class Module(pl.LightningModule):
    """A linear model whose batches take time."""

    def __init__(self, clock: FakeClock, plan: Plan) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(4, 1)
        self.clock = clock
        self.plan = plan
        self.batches = 0

    def _loss(self, batch: torch.Tensor) -> torch.Tensor:
        self.clock.advance(STEP_S)
        return self.layer(batch).square().mean()

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        number, self.batches = self.batches, self.batches + 1
        self.plan.before_batch(number)
        loss = self._loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.log("val_loss", self._loss(batch))

    def predict_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self._loss(batch)

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        self.clock.advance(self.plan.checkpoint_s or 0.0)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class LightningTraining:
    """One module; each call has a ``Trainer`` of its own with the same callbacks."""

    def __init__(self, folder: Path, clock: FakeClock, plan: Plan, callbacks: tuple) -> None:
        self.folder = folder
        self.clock = clock
        self.plan = plan
        self.callbacks = callbacks
        self.module = Module(clock, plan)

    def _trainer(self) -> pl.Trainer:
        pl.seed_everything(0, verbose=False)
        self.module.batches = 0
        checkpoint = ModelCheckpoint(self.folder / "checkpoints", save_last=True)
        saves = [] if self.plan.checkpoint_s is None else [checkpoint]
        logger = TensorBoardLogger(self.folder, name="tb", version=0) if self.plan.logs else False
        return pl.Trainer(
            accelerator="cpu",
            max_epochs=self.plan.epochs,
            accumulate_grad_batches=self.plan.accumulate,
            limit_val_batches=1.0,
            num_sanity_val_steps=0,
            log_every_n_steps=self.plan.log_every,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=bool(saves),
            default_root_dir=self.folder,
            logger=logger,
            callbacks=[*self.callbacks, *saves],
        )

    def _loader(self, samples: int, load_s: float = 0.0) -> DataLoader:
        return DataLoader(SlowRows(self.clock, samples, load_s), batch_size=BATCH_SIZE)

    def _fit(self, checkpoint: Path | None) -> None:
        train = self._loader(self.plan.samples, self.plan.load_s)
        samples = self.plan.validation_samples
        validation = self._loader(samples) if samples else None
        self._trainer().fit(self.module, train, validation, ckpt_path=checkpoint)

    def fit(self) -> None:
        self._fit(None)

    def resume(self) -> None:
        self._fit(self.folder / "checkpoints" / "last.ckpt")

    def evaluate(self) -> None:
        self._trainer().validate(self.module, self._loader(10 * BATCH_SIZE), verbose=False)

    def predict(self) -> None:
        self._trainer().predict(self.module, self._loader(10 * BATCH_SIZE))

    def weights(self) -> list[bytes]:
        return [one.numpy().tobytes() for one in self.module.state_dict().values()]

    def rows(self) -> Rows:
        return scalars(self.folder / "tb" / "version_0")


class LightningLab:
    """See ``tests/integrations/contract/lab.py``."""

    name = framework = "lightning"
    unseen_batches = 0
    callback = GpuEnergyCallback
    loss_tags = ("train_loss_step", "train_loss_epoch")

    def training(
        self, folder: Path, clock: FakeClock, plan: Plan, *callbacks: Any
    ) -> LightningTraining:
        return LightningTraining(folder, clock, plan, callbacks)

    def read(self, folder: Path) -> Rows:
        return scalars(folder)

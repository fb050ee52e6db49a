"""Lightning's lab: the contract's trainings in a real ``Trainer``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    DeviceStatsMonitor,
    EarlyStopping,
    GradientAccumulationScheduler,
    LambdaCallback,
    LearningRateFinder,
    LearningRateMonitor,
    ModelCheckpoint,
    ModelPruning,
    ModelSummary,
    OnExceptionCheckpoint,
    RichModelSummary,
    RichProgressBar,
    StochasticWeightAveraging,
    ThroughputMonitor,
    Timer,
    TQDMProgressBar,
)
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader, IterableDataset

from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.contract.lab import BATCH_SIZE, Plan, Rows, Stock, together
from tests.integrations.contract.leaves import leaves
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
        self.lr = 0.1

    def _loss(self, batch: torch.Tensor) -> torch.Tensor:
        self.clock.advance(self.plan.step_s)
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
        return torch.optim.SGD(self.parameters(), lr=self.lr)


class Stream(IterableDataset):
    """Batches of these sizes in order."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes

    def __iter__(self) -> Iterator[torch.Tensor]:
        rows = torch.randn(sum(self._sizes), 4, generator=torch.Generator().manual_seed(0))
        return iter(rows.split(list(self._sizes)))


def newer() -> Iterator[Stock]:
    """Return callbacks that Lightning 2.4 does not have."""
    if hasattr(callbacks, "WeightAveraging"):
        yield Stock(name="WeightAveraging", make=lambda _: callbacks.WeightAveraging())
        yield Stock(name="EMAWeightAveraging", make=lambda _: callbacks.EMAWeightAveraging())


class LightningTraining:
    """One module; each call has its own ``Trainer`` with the same callbacks."""

    def __init__(self, folder: Path, clock: FakeClock, plan: Plan, ours: tuple) -> None:
        self.folder = folder
        self.clock = clock
        self.plan = plan
        self.callbacks = ours
        self.module = Module(clock, plan)

    def _trainer(self) -> pl.Trainer:
        pl.seed_everything(0, verbose=False)
        self.module.batches = 0
        checkpoint = ModelCheckpoint(self.folder / "checkpoints", save_last="link")
        saves = [] if self.plan.checkpoint_s is None else [checkpoint]
        logger = TensorBoardLogger(self.folder, name="tb", version=0) if self.plan.logs else False
        defaults: dict[str, Any] = {
            "accelerator": "cpu",
            "max_epochs": self.plan.epochs,
            "accumulate_grad_batches": self.plan.accumulate,
            "limit_val_batches": 1.0,
            "num_sanity_val_steps": 0,
            "log_every_n_steps": self.plan.log_every,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": bool(saves),
            "default_root_dir": self.folder,
            "logger": logger,
            "callbacks": [*self.callbacks, *saves],
        }
        self.trainer = pl.Trainer(**defaults | self.plan.settings)
        return self.trainer

    def _loader(self, samples: int, load_s: float = 0.0, workers: int = 0) -> DataLoader:
        rows = SlowRows(self.clock, samples, load_s)
        return DataLoader(rows, batch_size=BATCH_SIZE, num_workers=workers)

    def _fit(self, checkpoint: Path | None) -> None:
        train = self._loader(self.plan.samples, self.plan.load_s, self.plan.workers)
        if self.plan.stream:
            train = DataLoader(Stream(self.plan.stream), batch_size=None)
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

    def run_folder(self) -> Path:
        return self.folder / "tb" / "version_0"

    def weights(self) -> list[bytes]:
        return [one.numpy().tobytes() for one in self.module.state_dict().values()]

    def metrics(self) -> dict[str, Any]:
        found = self.trainer.callback_metrics | self.trainer.logged_metrics
        return {tag: float(one) for tag, one in found.items() if not is_timed(tag)}

    def steps(self) -> int:
        return self.trainer.global_step

    def checkpoint(self) -> dict[str, Any]:
        last = self.folder / "checkpoints" / "last.ckpt"
        return dict(leaves(torch.load(last, weights_only=False), self.folder))

    def rows(self) -> Rows:
        found = scalars(self.run_folder())
        return {
            tag: [(step, 0.0) for step, _ in rows] if is_timed(tag) else rows
            for tag, rows in found.items()
        }


def is_timed(tag: str) -> bool:
    """Whether a tag's values depend on real time; then only its steps are compared."""
    return tag.startswith(("DeviceStatsMonitor", "train/", "validate/"))


class BiasLater(BaseFinetuning):
    """A callback that trains the bias from the second epoch on."""

    def freeze_before_training(self, pl_module: Module) -> None:
        pl_module.layer.bias.requires_grad_(False)

    def finetune_function(self, pl_module: Module, epoch: int, optimizer: Any) -> None:
        pl_module.layer.bias.requires_grad_(epoch > 0)


class LightningLab:
    """See ``tests/integrations/contract/lab.py``."""

    name = framework = "lightning"
    unseen_batches = 0
    stock = (
        Stock(
            name="ModelCheckpoint",
            make=lambda f: ModelCheckpoint(f, monitor="val_loss"),
            settings={"enable_checkpointing": True},
        ),
        Stock(name="EarlyStopping", make=lambda _: EarlyStopping("val_loss", 100.0, patience=1)),
        together(
            Stock(name="LearningRateMonitor", make=lambda _: LearningRateMonitor()),
            Stock(name="DeviceStatsMonitor", make=lambda _: DeviceStatsMonitor(cpu_stats=True)),
            Stock(name="Timer", make=lambda _: Timer(duration="00:00:01:00")),
            Stock(name="ThroughputMonitor", make=lambda _: ThroughputMonitor(batch_size_fn=len)),
            Stock(name="LambdaCallback", make=lambda _: LambdaCallback(on_train_start=print)),
        ),
        Stock(
            name="GradientAccumulationScheduler",
            make=lambda _: GradientAccumulationScheduler({1: 3}),
        ),
        Stock(
            name="StochasticWeightAveraging",
            make=lambda _: StochasticWeightAveraging(0.05, swa_epoch_start=1),
        ),
        Stock(
            name="TQDMProgressBar",
            make=lambda _: TQDMProgressBar(),
            settings={"enable_progress_bar": True},
        ),
        Stock(
            name="RichProgressBar",
            make=lambda _: RichProgressBar(),
            settings={"enable_progress_bar": True},
        ),
        Stock(
            name="ModelSummary",
            make=lambda _: ModelSummary(),
            settings={"enable_model_summary": True},
        ),
        Stock(
            name="RichModelSummary",
            make=lambda _: RichModelSummary(),
            settings={"enable_model_summary": True},
        ),
        Stock(
            name="OnExceptionCheckpoint",
            make=OnExceptionCheckpoint,
            settings={"enable_checkpointing": True},
        ),
        Stock(name="BaseFinetuning", make=lambda _: BiasLater()),
        Stock(
            name="LearningRateFinder",
            make=lambda _: LearningRateFinder(num_training_steps=5, attr_name="lr"),
        ),
        Stock(name="ModelPruning", make=lambda _: ModelPruning("l1_unstructured", amount=0.5)),
        *newer(),
    )
    callback = GpuEnergyCallback
    loss_tags = ("train_loss_step", "train_loss_epoch")

    def training(
        self, folder: Path, clock: FakeClock, plan: Plan, *callbacks: Any
    ) -> LightningTraining:
        return LightningTraining(folder, clock, plan, callbacks)

    def read(self, folder: Path) -> Rows:
        return scalars(folder)

    def scalar_writers(self) -> tuple[tuple[Any, str], ...]:
        from torch.utils.tensorboard import SummaryWriter

        return ((SummaryWriter, "add_scalar"),)

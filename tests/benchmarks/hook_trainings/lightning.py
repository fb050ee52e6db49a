"""A Lightning training on the CPU, with TensorBoard, whose steps take about a millisecond."""

import tempfile
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks.accounting.step_marks import FETCH, READY
from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks_lightning import method_patch
from tests.benchmarks.common.hook_times import HookTimer

BATCH, FEATURES, BATCHES = 32, 64, 200


class Model(pl.LightningModule):
    """A small perceptron that logs its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(FEATURES, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1)
        )

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss of a batch."""
        loss = (self.layers(batch[0]) - batch[1]).square().mean()
        self.log("train/loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def train(times: HookTimer, *, steps: int, every: int | None) -> None:
    """Train; see ``tests.benchmarks.hook_trainings``."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        callback = callback_of(times, every, Path(folder) / "energy")
        logger = TensorBoardLogger(folder)
        times.wrap(logger, "log_metrics", owner="logger")
        trainer = pl.Trainer(
            max_steps=steps,
            max_epochs=-1,
            accelerator="cpu",
            default_root_dir=folder,
            logger=logger,
            log_every_n_steps=10,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[callback],
        )
        # The originals of the methods that we replace are not ours.
        for name in ("_on_before_fetch", "_on_after_fetch"):
            times.wrap(trainer.fit_loop.epoch_loop, name, owner="framework")
        times.wrap(trainer, "save_checkpoint", owner="framework")
        rows = torch.randn(BATCHES * BATCH, FEATURES), torch.randn(BATCHES * BATCH, 1)
        trainer.fit(Model(), DataLoader(TensorDataset(*rows), batch_size=BATCH))


def callback_of(times: HookTimer, every: int | None, folder: Path) -> GpuEnergyCallback:
    """Return a callback whose hooks are timed."""
    callback = GpuEnergyCallback(log_every_n_steps=every, report_dir=folder)
    for name in dir(pl.Callback):
        is_own = getattr(GpuEnergyCallback, name) is not getattr(pl.Callback, name)
        if name.startswith("on_") and is_own and name != "on_train_batch_end":
            times.wrap(callback, name)
    times.wrap(callback._steps, "on_train_batch_end")  # during a training, Lightning calls this
    times.wrap(callback._meter, "log", is_row=True)
    mark = method_patch._mark  # a step begins with the first of its two calls

    def of_kind(method: Any, kind: int, marks: Any) -> Any:
        return marked[kind](method, kind, marks)

    marked = {
        kind: times.timed(mark, name, begins_step=kind == FETCH)
        for kind, name in ((FETCH, "_on_before_fetch"), (READY, "_on_after_fetch"))
    }
    method_patch._mark = of_kind
    times.wrap(method_patch, "_save")
    return callback

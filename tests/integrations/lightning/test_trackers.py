"""Runs of W&B and MLflow have rows, final figures, configuration and report of a training."""

from pathlib import Path

import pytest

pytest.importorskip("lightning")

from lightning.pytorch.loggers import MLFlowLogger, WandbLogger

from energy_callbacks.testing import FakeClock
from tests.integrations.lightning.training import TinyModule, callback, loader, trainer
from tests.trackers.checks import assert_in_mlflow, assert_in_wandb


@pytest.mark.parametrize("prefix", ["", "mine"])
def test_wandb(tmp_path: Path, wandb_folder: Path, prefix: str) -> None:
    """An offline run of ``WandbLogger``; Lightning puts the prefix of the logger before tags."""
    clock = FakeClock()
    logger, ours = WandbLogger(save_dir=wandb_folder, prefix=prefix), callback(clock)
    trainer(tmp_path, ours, logger=logger).fit(TinyModule(clock), loader())
    logger.experiment.finish()
    joined = prefix and f"{prefix}-"
    loss, step = f"{joined}train_loss_step", "trainer/global_step"
    assert_in_wandb(wandb_folder, ours, prefix=joined, loss=loss, step=step)


def test_mlflow(tmp_path: Path, mlflow_uri: str) -> None:
    """A run of ``MLFlowLogger``, which Lightning ends before the report is complete."""
    clock = FakeClock()
    logger, ours = MLFlowLogger("lightning", tracking_uri=mlflow_uri), callback(clock)
    trainer(tmp_path, ours, logger=logger).fit(TinyModule(clock), loader())
    assert_in_mlflow(mlflow_uri, logger.run_id, ours, loss="train_loss_step")

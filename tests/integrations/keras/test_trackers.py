"""Runs of W&B and MLflow have rows, final figures, configuration and report of a training."""

from pathlib import Path

import pytest

pytest.importorskip("keras")

from energy_callbacks.testing import FakeClock
from tests.integrations.keras.training import callback, fit
from tests.trackers.checks import assert_in_mlflow, assert_in_wandb


def test_wandb(wandb_folder: Path) -> None:
    """An offline run of ``WandbMetricsLogger``."""
    import wandb
    from wandb.integration.keras import WandbMetricsLogger

    clock = FakeClock()
    ours = callback(clock)
    with wandb.init():
        fit(clock, ours, WandbMetricsLogger())
    step = "epoch/epoch"
    assert_in_wandb(wandb_folder, ours, prefix="epoch/", loss="epoch/loss", step=step)


def test_mlflow(mlflow_uri: str) -> None:
    """A run of MLflow's callback."""
    import mlflow
    from mlflow.keras.callback import MlflowCallback

    mlflow.set_experiment("keras")
    clock = FakeClock()
    ours = callback(clock)
    with mlflow.start_run() as run:
        fit(clock, ours, MlflowCallback())
    assert_in_mlflow(mlflow_uri, run.info.run_id, ours, loss="loss")

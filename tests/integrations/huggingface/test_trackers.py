"""Runs of W&B and MLflow have rows, final figures, configuration and report of a training."""

from pathlib import Path

import pytest

pytest.importorskip("transformers")

from transformers.integrations import integration_utils

from energy_callbacks.testing import FakeClock
from tests.integrations.huggingface.training import TinyModel, callback, trainer
from tests.trackers.checks import assert_in_mlflow, assert_in_wandb


def test_wandb(tmp_path: Path, wandb_folder: Path) -> None:
    """An offline run of ``report_to=["wandb"]``, which exists only after our callback began."""
    import wandb

    clock = FakeClock()
    ours = callback(clock)
    trainer(tmp_path / "out", TinyModel(clock), ours, report_to=["wandb"]).train()
    wandb.finish()
    step = "train/global_step"
    assert_in_wandb(wandb_folder, ours, prefix="train/", loss="train/loss", step=step)


def test_mlflow(tmp_path: Path, mlflow_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of ``report_to=["mlflow"]``, which the Trainer ends."""
    import mlflow

    # transformers asks for the package mlflow, and mlflow-skinny has the same modules.
    monkeypatch.setattr(integration_utils, "is_mlflow_available", lambda: True)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "huggingface")
    clock = FakeClock()
    ours = callback(clock)
    trainer(tmp_path / "out", TinyModel(clock), ours, report_to=["mlflow"]).train()
    assert mlflow.active_run() is None
    assert_in_mlflow(mlflow_uri, mlflow.last_active_run().info.run_id, ours, loss="loss")

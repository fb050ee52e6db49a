"""Checks what trainings of all frameworks leave in runs of W&B and MLflow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.trackers import wandb_view

FILES = ("energy_report.html", "energy_report.json")


def assert_in_wandb(folder: Path, ours: Any, *, prefix: str, loss: str, step: str) -> None:
    """Assert that the run below a folder has rows, figures, files, configuration and layout.

    Args:
        folder: of the offline run, which has been finished.
        ours: the callback of the training.
        prefix: prefix that the framework adds to each tag.
        loss: name of the loss.
        step: name of the metric with the step of a row.
    """
    view = wandb_view.read(folder)
    tag = f"{prefix}energy/total_wh"
    _assert_at_the_steps_of_the_loss(view.steps(tag, step), view.steps(loss, step))
    _assert_figures(view.summary, ours)
    _assert_configuration(view.config["energy_callbacks"], ours)
    [files] = view.artifacts.values()
    _assert_files({name: path.read_bytes() for name, path in files.items()}, ours)
    hidden = view.metrics[f"{prefix}efficiency/gpu_j_per_sample_lo"]
    assert hidden.options.hidden
    assert hidden.step_metric == view.metrics[f"{prefix}energy/*"].step_metric == step


def assert_in_mlflow(url: str, run_id: str, ours: Any, *, loss: str) -> None:
    """Assert that a run has rows, figures, files, configuration and a description.

    Args:
        url: address of the server.
        run_id: id of the run.
        ours: the callback of the training.
        loss: name of the loss.
    """
    from mlflow import MlflowClient
    from mlflow.artifacts import load_text

    client = MlflowClient(url)
    run = client.get_run(run_id)
    steps = [
        [row.step for row in client.get_metric_history(run_id, name)]
        for name in ("energy/total_wh", loss)
    ]
    _assert_at_the_steps_of_the_loss(*steps)
    _assert_figures(run.data.metrics, ours)
    prefix = "energy_callbacks/"
    own = {k: v for k, v in run.data.params.items() if k.startswith(prefix)}
    _assert_configuration({k.removeprefix(prefix): v for k, v in own.items()}, ours)
    place = f"{run.info.artifact_uri}/energy_report"
    _assert_files({name: load_text(f"{place}/{name}").encode() for name in FILES}, ours)
    assert "energy_report/energy_report.html" in run.data.tags["mlflow.note.content"]


def _assert_at_the_steps_of_the_loss(ours: list[float], loss: list[float]) -> None:
    assert len(set(ours)) >= 2
    assert set(ours) <= set(loss)
    assert max(ours) == max(loss)


def _assert_figures(values: Mapping[str, Any], ours: Any) -> None:
    """Assert that the values with ``final/`` are those of the report."""
    report = ours.report()
    found = {name: value for name, value in values.items() if name.startswith("final/")}
    assert found == pytest.approx(
        {
            "final/total_wh": report.energy.total.energy_j / 3600,
            "final/gpu_j_per_sample": report.efficiency.gpu.j_per_sample.value_j,
            "final/total_j_per_sample": report.efficiency.total.j_per_sample.value_j,
        }
    )


def _assert_configuration(config: Mapping[str, Any], ours: Any) -> None:
    run = ours.report().run
    assert float(config["batch_size"]) == 4.0
    assert config["framework"].startswith(run.framework)
    assert config["device"] == "scripted GPU"
    assert config["run_folder"] == str(ours._meter.run_folder)


def _assert_files(files: Mapping[str, bytes], ours: Any) -> None:
    assert files == {name: (ours._meter.run_folder / name).read_bytes() for name in FILES}

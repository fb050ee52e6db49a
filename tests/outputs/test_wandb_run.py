"""What only a real run of W&B shows; ``test_trackers.py`` of each framework has the rest."""

from pathlib import Path

import pytest

from energy_callbacks.outputs.wandb_run import WandbRun
from tests.trackers import wandb_view


def test_figures_that_the_report_lacks_are_removed(tmp_path: Path, wandb_folder: Path) -> None:
    """Figures of the end of the training are replaced; a figure of the user stays."""
    import wandb

    with wandb.init(project="ours") as run:
        one = WandbRun(run, step="step")
        run.summary["final/accuracy"] = 0.9
        one.end({"final/total_wh": 1.0, "final/emissions_g": 2.0})
        one.report({"final/total_wh": 1.5}, [])
    final = {k: v for k, v in wandb_view.read(wandb_folder).summary.items() if "final/" in k}
    assert final == {"final/accuracy": 0.9, "final/total_wh": 1.5}


def test_a_configuration_may_change(wandb_folder: Path) -> None:
    """A second training in the same run has another batch size; the user's settings stay."""
    import wandb

    with wandb.init(project="ours", config={"batch_size": 1}) as run:
        for size in (4, 8):
            WandbRun(run, step="step").begin({"batch_size": size}, "")
    config = wandb_view.read(wandb_folder).config
    assert config["batch_size"] == 1
    assert config["energy_callbacks"] == {"batch_size": 8}


def test_the_prefix_of_tags_is_that_of_the_layout(wandb_folder: Path) -> None:
    """The setting ``tag_prefix`` is after the prefix of the framework."""
    import wandb

    with wandb.init(project="ours") as run:
        WandbRun(run, step="step", prefix="train/").begin({}, "mine/")
    metrics = wandb_view.read(wandb_folder).metrics
    assert metrics["train/mine/power/*"].step_metric == "step"
    assert not metrics["train/mine/power/*"].options.hidden
    assert metrics["train/mine/emissions/total_g_hi"].options.hidden


def test_a_run_that_was_finished_raises(tmp_path: Path, wandb_folder: Path) -> None:
    """The caller logs that the report did not arrive."""
    import wandb

    with wandb.init(project="ours") as run:
        one = WandbRun(run, step="step")
    with pytest.raises(wandb.UsageError, match="finished"):
        one.report({}, [])

"""What TensorBoard, W&B and MLflow show through Lightning's loggers, with their prefixes."""

from pathlib import Path

import pytest

pytest.importorskip("lightning")

from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tensorboard.plugins.hparams import api_pb2

from energy_callbacks.testing import FakeClock
from tests.integrations.lightning.training import (
    FailingModule,
    TinyModule,
    callback,
    loader,
    trainer,
)
from tests.outputs.tensorboard_view import TensorBoardView, parameters, values
from tests.trackers.checks import assert_in_mlflow, assert_in_wandb


class WithHyperparameters(TinyModule):
    """A module that saves its hyperparameters, as most do."""

    def __init__(self, clock: FakeClock, rate: float = 0.1) -> None:
        super().__init__(clock)
        self.save_hyperparameters("rate")


def fit(root: Path, module: TinyModule, **settings: object) -> None:
    """Train two epochs with our callback."""
    trainer(root, callback(module.clock), **settings).fit(module, loader(), loader(5))


def test_charts_have_the_prefix_of_the_logger(tmp_path: Path) -> None:
    """``TensorBoardLogger(prefix=...)`` adds a prefix to each tag, also to ours."""
    logger = TensorBoardLogger(tmp_path, name="tb", version=0, prefix="mine")
    fit(tmp_path, TinyModule(FakeClock()), logger=logger)
    view = TensorBoardView(tmp_path / "tb")
    tag = "mine-efficiency/gpu_j_per_step"
    assert [tag, f"{tag}_lo", f"{tag}_hi"] in view.charts().values()
    assert view.matches("version_0", f"^{tag}$") == [tag]


def test_every_tensorboard_logger_has_the_pages(tmp_path: Path) -> None:
    """Loggers of other kinds are ignored."""
    loggers = [
        TensorBoardLogger(tmp_path, name="one", version=0),
        CSVLogger(tmp_path, name="csv"),
        TensorBoardLogger(tmp_path, name="two", version=0),
    ]
    fit(tmp_path, TinyModule(FakeClock()), logger=loggers)
    assert set(TensorBoardView(tmp_path).sessions()) == {"one/version_0", "two/version_0"}


def test_hyperparameters_of_the_module_stay(tmp_path: Path) -> None:
    """Lightning logs those of ``save_hyperparameters`` first; the page shows them."""
    fit(tmp_path, WithHyperparameters(FakeClock()))
    view = TensorBoardView(tmp_path / "tb")
    assert view.hparams() == ["rate"]
    assert parameters(view.sessions()["version_0"]) == {"rate": 0.1}
    assert "efficiency/gpu_j_per_step" in {tag for tags in view.charts().values() for tag in tags}


def test_the_last_values_of_the_model_are_metrics(tmp_path: Path) -> None:
    """Losses of training and validation are shown beside the energy."""
    fit(tmp_path, TinyModule(FakeClock()))
    found = values(TensorBoardView(tmp_path / "tb").sessions()["version_0"])
    assert {"final/val_loss", "final/train_loss", "final/total_wh"} <= set(found)


def test_a_training_that_raised_is_a_failed_session(tmp_path: Path) -> None:
    """With its energy, and its report as text."""
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(tmp_path, FailingModule(FakeClock(), RuntimeError("out of memory")))
    view = TensorBoardView(tmp_path / "tb")
    group = view.sessions()["version_0"]
    assert [session.status for session in group.sessions] == [api_pb2.STATUS_FAILURE]
    assert values(group)["final/total_wh"] > 0.0
    [text] = view.texts("version_0", "energy_report")
    assert "out of memory" in text


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

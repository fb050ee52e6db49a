"""The run of a logger or callback is found by package and name of its class."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from energy_callbacks.outputs import open_runs
from energy_callbacks.outputs.mlflow_run import MlflowRun
from energy_callbacks.outputs.other_runs import OtherRun
from energy_callbacks.outputs.wandb_run import WandbRun


def of_class(path: str, base: type = object, /, **attributes: Any) -> Any:
    """Return an object of a new class with a module and a name, such as ``aim.run.Run``."""
    module, _, name = path.rpartition(".")
    one = type(name, (base,), {"__module__": module})()
    vars(one).update(attributes)
    return one


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_loggers_of_lightning(package: str) -> None:
    """The loggers of both packages have runs; a logger for CSV files has none."""
    path = f"{package}.loggers"
    loggers = [
        of_class(f"{path}.wandb.WandbLogger", experiment=1, _prefix="", LOGGER_JOIN_CHAR="-"),
        of_class(f"{path}.csv_logs.CSVLogger", experiment=2),
        of_class(f"{path}.mlflow.MLFlowLogger", experiment=3, run_id="a"),
        of_class(f"{path}.comet.CometLogger", experiment=of_class("comet_ml.experiment.X")),
    ]
    assert [type(run) for run in open_runs.of_loggers(loggers)] == [WandbRun, MlflowRun, OtherRun]


def test_a_subclass_of_the_user_counts() -> None:
    """The class of the package is one of its bases."""
    base = type(of_class("dvclive.lightning.DVCLiveLogger"))
    mine = of_class("train.MyLogger", base, experiment=of_class("dvclive.live.Live"))
    [run] = open_runs.of_loggers([mine])
    assert run.name == "DVCLive"


def test_a_class_of_the_same_name_does_not_count() -> None:
    """A logger of the user that happens to be called ``WandbLogger`` is not used."""
    assert list(open_runs.of_loggers([of_class("train.WandbLogger")])) == []


CALLBACKS = {
    "transformers.integrations.integration_utils.CometCallback": "_experiment",
    "transformers.integrations.integration_utils.NeptuneCallback": "run",
    "transformers.integrations.integration_utils.ClearMLCallback": "_clearml_task",
    "transformers.integrations.integration_utils.DVCLiveCallback": "live",
    "dvclive.keras.DVCLiveCallback": "live",
    "aim.sdk.adapters.keras.AimCallback": "experiment",
}


@pytest.mark.parametrize("path", CALLBACKS)
def test_callbacks_of_other_trackers(path: str) -> None:
    """Their run is an attribute; there is none before it is open."""
    attribute = CALLBACKS[path]
    has_run = of_class(path, **{attribute: of_class("aim.sdk.run.Run")})
    [run] = open_runs.of_callbacks([has_run])
    assert run.name == "Aim"
    assert list(open_runs.of_callbacks([of_class(path, **{attribute: None})])) == []


@pytest.mark.parametrize(
    "path",
    [
        "transformers.integrations.integration_utils.WandbCallback",
        "wandb.integration.keras.callbacks.metrics_logger.WandbMetricsLogger",
    ],
)
def test_callbacks_of_wandb(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They write to the current run, which may have been finished."""
    module: Any = ModuleType("wandb")
    monkeypatch.setitem(sys.modules, "wandb", module)
    module.run = object()
    [run] = open_runs.of_callbacks([of_class(path)])
    assert isinstance(run, WandbRun)
    module.run = None
    assert list(open_runs.of_callbacks([of_class(path)])) == []


@pytest.mark.parametrize(
    "path",
    [
        "transformers.integrations.integration_utils.MLflowCallback",
        "mlflow.keras.callback.MlflowCallback",
    ],
)
def test_callbacks_of_mlflow(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They write to the active run, if there is one."""
    module: Any = ModuleType("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", module)
    module.MlflowClient = object
    module.active_run = lambda: SimpleNamespace(info=SimpleNamespace(run_id="a"))
    [run] = open_runs.of_callbacks([of_class(path)])
    assert isinstance(run, MlflowRun)
    module.active_run = lambda: None
    assert list(open_runs.of_callbacks([of_class(path)])) == []

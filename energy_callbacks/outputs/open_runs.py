"""Finds the run of an experiment tracker to which a logger or callback of the user writes.

No tracker is imported here: if the user has a logger for it, it has been imported.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from energy_callbacks.outputs.mlflow_run import MlflowRun
from energy_callbacks.outputs.other_runs import TRACKERS, OtherRun
from energy_callbacks.outputs.protocol import RunLog
from energy_callbacks.outputs.wandb_run import WandbRun


def of_loggers(loggers: Iterable[Any]) -> Iterator[RunLog]:
    """Yield the runs of Lightning's loggers; other loggers, such as ``CSVLogger``, have none."""
    return _found(loggers, _LOGGERS)


def of_callbacks(callbacks: Iterable[Any]) -> Iterator[RunLog]:
    """Yield the open runs of the Trainer's or Keras' callbacks."""
    return _found(callbacks, _CALLBACKS)


_Find = Callable[[Any], RunLog | None]


def _found(members: Iterable[Any], finders: dict[str, _Find]) -> Iterator[RunLog]:
    """Yield the runs of those members whose class, or a base class of it, has a finder."""
    for member in members:
        names = (f"{_package(kind)}.{kind.__name__}" for kind in type(member).__mro__)
        find = next((finders[name] for name in names if name in finders), None)
        run = find(member) if find is not None else None
        if run is not None:
            yield run


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0].removeprefix("pytorch_")


def _wandb(step: str, prefix: str) -> _Find:
    """Return a finder of W&B's current run, to which callbacks write."""

    def find(_: Any) -> RunLog | None:
        run = sys.modules["wandb"].run
        return None if run is None else WandbRun(run, step=step, prefix=prefix)

    return find


def _mlflow(_: Any) -> RunLog | None:
    """Return MLflow's active run, to which callbacks write."""
    mlflow = sys.modules["mlflow"]
    run = mlflow.active_run()
    return None if run is None else MlflowRun(mlflow.MlflowClient(), run.info.run_id)


def _wandb_of_lightning(logger: Any) -> RunLog:
    prefix = logger._prefix  # noqa: SLF001 - Lightning has no public name for it
    joined = f"{prefix}{logger.LOGGER_JOIN_CHAR}" if prefix else ""
    return WandbRun(logger.experiment, step="trainer/global_step", prefix=joined)


def _other(get_run: Callable[[Any], Any]) -> _Find:
    """Return a finder of a run of ``TRACKERS``."""

    def find(member: Any) -> RunLog | None:
        run = get_run(member)
        tracker = TRACKERS.get(_package(type(run)))
        return None if tracker is None else OtherRun(run, tracker)

    return find


_experiment: Final = _other(lambda logger: logger.experiment)
_live: Final = _other(lambda callback: callback.live)

# Package and name of classes, and how their run is found.
_LOGGERS: Final[dict[str, _Find]] = {
    "lightning.WandbLogger": _wandb_of_lightning,
    "lightning.MLFlowLogger": lambda logger: MlflowRun(logger.experiment, logger.run_id),
    "lightning.CometLogger": _experiment,
    "lightning.NeptuneLogger": _experiment,
    "aim.AimLogger": _experiment,
    "dvclive.DVCLiveLogger": _experiment,
}
_CALLBACKS: Final[dict[str, _Find]] = {
    "transformers.WandbCallback": _wandb("train/global_step", "train/"),
    "wandb.WandbMetricsLogger": _wandb("epoch/epoch", "epoch/"),
    "transformers.MLflowCallback": _mlflow,
    "mlflow.MlflowCallback": _mlflow,
    "transformers.CometCallback": _other(lambda one: one._experiment),  # noqa: SLF001
    "transformers.NeptuneCallback": _other(lambda one: one.run),
    "transformers.ClearMLCallback": _other(lambda one: one._clearml_task),  # noqa: SLF001
    "transformers.DVCLiveCallback": _live,
    "dvclive.DVCLiveCallback": _live,
    "aim.AimCallback": _experiment,
}

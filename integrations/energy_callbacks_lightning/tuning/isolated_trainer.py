"""A trainer for trials, without callbacks, loggers, profilers and other ranks."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel

from energy_callbacks_lightning.bases import packages

_HELD: Final = (
    "callbacks", "loggers", "profiler", "fit_loop", "should_stop", "accumulate_grad_batches",
    "limit_val_batches",
)  # fmt: skip
_STRATEGIES = tuple(
    kind
    for package in packages
    for kind in (package.strategies.SingleDeviceStrategy, package.strategies.DDPStrategy)
)


def check(trainer: Any) -> None:
    """Whether steps can be tried without the other ranks.

    Raises:
        ValueError: if they cannot.
    """
    module, strategy = trainer.lightning_module, trainer.strategy
    if not isinstance(strategy, _STRATEGIES):
        raise ValueError(
            "a batch size can be searched for on one device and with DDP, got "
            f"{type(strategy).__name__}, whose steps need all ranks or an engine of its own; "
            "tune with one of these, or set the size by hand"
        )
    alone = trainer.world_size == 1
    if not alone and any(isinstance(part, torch.nn.SyncBatchNorm) for part in module.modules()):
        raise ValueError(
            "ranks try sizes by themselves, got SyncBatchNorm, which waits for the others in each "
            "step; tune with sync_batchnorm=False"
        )


@contextlib.contextmanager
def offstage(trainer: Any) -> Iterator[None]:
    """Afterwards all is as it was, whatever became of the steps."""
    strategy, connector = trainer.strategy, trainer._logger_connector  # noqa: SLF001
    held = {name: getattr(trainer, name) for name in _HELD}
    told, model = dict(vars(connector)), strategy.model
    trainer.callbacks, trainer.limit_val_batches = [], 0  # no validation, nor a loader for it
    # training_step may ask for self.logger.experiment
    trainer.loggers = [packages[0].loggers.logger.DummyLogger()] if trainer.loggers else []
    trainer.profiler = packages[0].profilers.PassThroughProfiler()
    connector.reset_metrics()
    if isinstance(model, DistributedDataParallel):
        strategy.model = model.module
        strategy.reduce = _own  # self.log(sync_dist=True)
    try:
        with torch.enable_grad(), torch.autograd.set_detect_anomaly(trainer._detect_anomaly):  # noqa: SLF001
            yield
    finally:
        vars(strategy).pop("reduce", None)
        strategy.model = model
        for name, value in held.items():
            setattr(trainer, name, value)
        vars(connector).update(told)


def _own(tensor: Any, *_: Any, **__: Any) -> Any:
    """In the place of a sum over ranks."""
    return tensor

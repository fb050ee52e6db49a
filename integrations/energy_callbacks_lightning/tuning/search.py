"""Searches for a batch size by running steps of the trainer without callbacks and loggers."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel

from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning import tune_batch_size as tune_step
from energy_callbacks.tuning.options import at_most
from energy_callbacks_lightning import loop
from energy_callbacks_lightning.bases import packages
from energy_callbacks_lightning.callback import GpuEnergyCallback
from energy_callbacks_lightning.tuning.loaders import TrainLoaders
from energy_callbacks_lightning.tuning.trial_step import LightningTrialStep

# Attributes of the trainer that are restored after a search.
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
    """Check that each rank can run training steps independently of the other ranks.

    Raises:
        ValueError: if a training step needs all ranks, or the strategy is not supported.
    """
    module, strategy = trainer.lightning_module, trainer.strategy
    if not isinstance(strategy, _STRATEGIES):
        raise ValueError(
            "a batch size can be searched for on one device and with DDP, got "
            f"{type(strategy).__name__}, whose steps need all ranks or a special engine; tune "
            "with one of these, or set the size manually"
        )
    alone = trainer.world_size == 1
    if not alone and any(isinstance(part, torch.nn.SyncBatchNorm) for part in module.modules()):
        raise ValueError(
            "each rank tries sizes on its own, but SyncBatchNorm waits for the other ranks in "
            "each step; tune with sync_batchnorm=False"
        )


def search(
    trainer: Any,
    loaders: TrainLoaders,
    length_fn: Callable[[Any], int] | None,
    options: TuningOptions,
) -> BatchSizeResult:
    """Search for a batch size, then restore the trainer, the module and the loaders.

    Args:
        trainer: a trainer that is running ``fit``, before or between training steps.
        loaders: creates the training loaders.
        length_fn: returns the length of a sample; ``None`` if all samples have the same length.
        options: the user's options of the search.

    Raises:
        NothingFits: if no size fits, or no size can be recommended.
        ValueError: for invalid options, or loaders whose batch size cannot be changed.
    """
    meter = _meter(trainer, options)
    is_ours = not meter.is_running
    if is_ours:
        loop.start(meter, trainer)
    try:
        limited: TuningOptions = {**_limited(trainer, loaders, options), "meter": meter}
        with isolated(trainer):
            step = LightningTrialStep(trainer, loaders, length_fn)
            return tune_step(
                step,
                keep=[trainer.lightning_module, *trainer.optimizers, *_stateful(trainer)],
                restore=step.end,
                worst=None if length_fn is None else step.worst,
                **limited,
            )
    finally:
        loaders.restore()
        if is_ours:
            meter.stop()


@contextlib.contextmanager
def isolated(trainer: Any) -> Iterator[None]:
    """Return a context that isolates a trainer.

    In this context, callbacks, loggers and profilers are not called, and ranks do not wait for each
    other.
    """
    strategy, connector = trainer.strategy, trainer._logger_connector  # noqa: SLF001
    held = {name: getattr(trainer, name) for name in _HELD}
    logged, model = dict(vars(connector)), strategy.model
    trainer.callbacks, trainer.limit_val_batches = [], 0  # no validation and no loader for it
    # A dummy, because training_step may use self.logger.experiment.
    trainer.loggers = [packages[0].loggers.logger.DummyLogger()] if trainer.loggers else []
    trainer.profiler = packages[0].profilers.PassThroughProfiler()
    connector.reset_metrics()
    if isinstance(model, DistributedDataParallel):
        strategy.model = model.module
        strategy.reduce = lambda tensor, *_, **__: tensor  # called by self.log(sync_dist=True)
    try:
        with torch.enable_grad(), torch.autograd.set_detect_anomaly(trainer._detect_anomaly):  # noqa: SLF001
            yield
    finally:
        vars(strategy).pop("reduce", None)
        strategy.model = model
        for name, value in held.items():
            setattr(trainer, name, value)
        vars(connector).update(logged)


def _stateful(trainer: Any) -> list[Any]:
    """Return the learning-rate schedulers, and the gradient scaler if there is one."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)  # only for mixed precision
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    return schedulers if scaler is None else [*schedulers, scaler]


def _meter(trainer: Any, options: TuningOptions) -> EnergyMeter:
    """Return the meter in the options, otherwise the training's running meter or a new meter."""
    if (given := options.get("meter")) is not None:
        return given
    meters = [one._meter for one in trainer.callbacks if isinstance(one, GpuEnergyCallback)]  # noqa: SLF001
    return next((one for one in meters if one.is_running), None) or EnergyMeter()


def _limited(trainer: Any, loaders: TrainLoaders, options: TuningOptions) -> TuningOptions:
    """Return the options, with defaults from the trainer, and ``max_size`` limited.

    The limit is the number of samples per rank. The search starts at the current batch size, and
    the smallest size is 2 for models with batch normalization, unless the options have other sizes.
    """
    samples = loaders.samples()
    limited: TuningOptions = {"start_size": loaders.batch_size, **options}
    if samples is not None:
        limited = at_most(limited, samples)
    # Batch normalization may not be able to train with a single sample.
    batch_norms = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001
    if any(isinstance(part, batch_norms) for part in trainer.lightning_module.modules()):
        limited.setdefault("min_size", 2)
    return limited

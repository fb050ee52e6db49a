"""The search for a batch size with the steps of a trainer, and its joules."""

from collections.abc import Callable
from typing import Any

import torch

from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning import tune_batch_size as tune_step
from energy_callbacks.tuning.options import DEFAULTS
from energy_callbacks_lightning import loop
from energy_callbacks_lightning.bases import version
from energy_callbacks_lightning.callback import GpuEnergyCallback
from energy_callbacks_lightning.tuning.isolated_trainer import offstage
from energy_callbacks_lightning.tuning.loaders import TrainLoaders
from energy_callbacks_lightning.tuning.trial_step import TrialStep


def search(
    trainer: Any,
    loaders: TrainLoaders,
    length_fn: Callable[[Any], int] | None,
    options: TuningOptions,
) -> BatchSizeResult:
    """The curve; trainer, module and loaders are as before.

    Args:
        trainer: in ``fit``, before or between its steps.
        loaders: that it trains on.
        length_fn: how long a sample is; ``None`` if all are alike.
        options: of the user.
    """
    meter = _meter(trainer, options)
    is_ours = not meter.is_running
    if is_ours:
        meter.start(
            loop.run_folder(trainer),
            process=loop.process(trainer, version),
            used_gpus=loop.used_gpus(trainer),
            say=loop.say,
        )
    try:
        asked: TuningOptions = {**_limited(trainer, loaders, options), "meter": meter}
        with offstage(trainer):
            step = TrialStep(trainer, loaders, length_fn)
            return tune_step(
                step,
                keep=[trainer.lightning_module, *trainer.optimizers, *_stateful(trainer)],
                restore=step.end,
                worst=None if length_fn is None else step.worst,
                **asked,
            )
    finally:
        loaders.restore()
        if is_ours:
            meter.stop()


def _stateful(trainer: Any) -> list[Any]:
    scaler = getattr(trainer.precision_plugin, "scaler", None)  # of mixed precision alone
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    return schedulers if scaler is None else [*schedulers, scaler]


def _meter(trainer: Any, options: TuningOptions) -> EnergyMeter:
    """The one that runs for the training, else one for the search."""
    if (given := options.get("meter")) is not None:
        return given
    energies = [one._meter for one in trainer.callbacks if isinstance(one, GpuEnergyCallback)]  # noqa: SLF001
    return next((one for one in energies if one.is_running), None) or EnergyMeter()


def _limited(trainer: Any, loaders: TrainLoaders, options: TuningOptions) -> TuningOptions:
    """Options with what the training says: the size in use, no more samples than there are."""
    samples = loaders.samples()
    limited: TuningOptions = {"start_size": loaders.batch_size, **options}
    if samples is not None:
        limited["max_size"] = min(options.get("max_size", DEFAULTS["max_size"]), samples)
    batch_norms = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001
    if any(isinstance(part, batch_norms) for part in trainer.lightning_module.modules()):
        limited.setdefault("min_size", 2)
    return limited

"""``tune_batch_size(trainer, model)``: a ``fit`` that ends after the search."""

from collections.abc import Callable
from typing import Any, Unpack

import torch

from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning.snapshot.random_state import RandomState
from energy_callbacks_lightning.bases import packages
from energy_callbacks_lightning.tuning.tuner import BatchSizeTuner

_FINDERS = tuple(package.callbacks.BatchSizeFinder for package in packages)
_LAUNCHERS: Any = tuple(p.strategies.launchers._MultiProcessingLauncher for p in packages)  # noqa: SLF001


def tune_batch_size(
    trainer: Any,
    model: Any,
    *,
    train_dataloaders: Any = None,
    datamodule: Any = None,
    length_fn: Callable[[Any], int] | None = None,
    batch_arg_name: str = "batch_size",
    **options: Unpack[TuningOptions],
) -> BatchSizeResult:
    """Find the batch size before ``trainer.fit``.

    If module or datamodule have the attribute, it is set. A loader that was passed is not
    changed: ``with_batch_size(loader, result.size)`` is one of the size. With
    ``global_batch_size``, ``trainer.accumulate_grad_batches`` is set too.

    Args:
        trainer: as for the training.
        model: to be trained.
        train_dataloaders: as for ``fit``.
        datamodule: as for ``fit``.
        length_fn: how long a sample of the dataset is: each trial begins with the longest.
        batch_arg_name: the attribute of module or datamodule, or of their ``hparams``.
        **options: see ``energy_callbacks.tuning.TuningOptions``.

    Returns:
        The curve, and the size.

    Raises:
        NothingFits: if the smallest size does not run.
        TypeError: for an option that is none.
        ValueError: for options that make no sense, or if no other batch size can be tried.
    """
    if any(isinstance(one, _FINDERS) for one in trainer.callbacks):
        raise ValueError(
            "the trainer must have no BatchSizeFinder or BatchSizeTuner of its own, which would "
            "search again; remove it, or call trainer.fit, which then searches first"
        )
    launcher = trainer.strategy.launcher
    if isinstance(launcher, _LAUNCHERS):
        raise ValueError(
            f"ranks must not be children of this process, got {launcher._start_method!r}: what "  # noqa: SLF001
            "they find stays there; put BatchSizeTuner into the callbacks, or use strategy='ddp'"
        )
    tuner = BatchSizeTuner(batch_arg_name=batch_arg_name, length_fn=length_fn, **options)
    tuner._early_exit = True  # noqa: SLF001 - as Lightning's Tuner does
    before, random = trainer.callbacks, RandomState(torch)
    trainer.callbacks = [tuner, *before]
    try:
        trainer.fit(model, train_dataloaders, datamodule=datamodule)
    finally:
        trainer.callbacks = before
        random.restore()
    if tuner.result is None:
        raise ValueError("fast_dev_run must be off for a search; make the trainer without it")
    return tuner.result

"""Defines ``tune_batch_size``, which runs ``trainer.fit`` until the search has ended."""

from collections.abc import Callable
from typing import Any, Unpack

from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning.snapshot.random_state import RandomState
from energy_callbacks_lightning.bases import packages
from energy_callbacks_lightning.tuning.tuner import BatchSizeTuner

_FINDERS = tuple(package.callbacks.BatchSizeFinder for package in packages)
_TRAINERS = tuple(package.Trainer for package in packages)
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

    If the module or datamodule has an attribute with the name ``batch_arg_name``, that attribute is
    set to the chosen batch size. With ``global_batch_size``, ``trainer.accumulate_grad_batches`` is
    set too. Loaders in ``train_dataloaders`` are not changed. For ``fit``, copy them with the
    chosen batch size: ``with_batch_size(loader, result.size)``.

    Args:
        trainer: the trainer that will run ``fit``.
        model: the module that is trained.
        train_dataloaders: argument of ``fit``; ``None`` uses the loaders of the module or
            datamodule.
        datamodule: argument of ``fit``; ``None`` if there is none.
        length_fn: returns the length of a sample; each trial begins with the longest samples.
            ``None`` if all samples have the same length.
        batch_arg_name: name of the attribute with the batch size, in the module, the datamodule or
            their ``hparams``.
        **options: see ``energy_callbacks.tuning.TuningOptions``.

    Returns:
        The measured sizes, and the chosen batch size.

    Raises:
        NothingFits: if no size fits, or no size can be recommended.
        TypeError: for an unknown option, a trainer that is no ``Trainer``, or a ``length_fn`` that
            is no function.
        ValueError: for invalid options, or a trainer or loaders that do not support the search.
    """
    if not isinstance(trainer, _TRAINERS):
        raise TypeError(
            f"trainer must be a Trainer of Lightning, got {trainer!r}; pass the one that will run "
            "fit"
        )
    if any(isinstance(one, _FINDERS) for one in trainer.callbacks):
        raise ValueError(
            "the trainer has another BatchSizeFinder or BatchSizeTuner, which would search "
            "again; remove it, or call trainer.fit, which searches first"
        )
    launcher = trainer.strategy.launcher
    if isinstance(launcher, _LAUNCHERS):
        raise ValueError(
            "ranks must not be child processes of this process, got "
            f"{launcher._start_method!r}: the size that they find would stay in them; pass "  # noqa: SLF001
            "BatchSizeTuner in callbacks, or use strategy='ddp'"
        )
    tuner = BatchSizeTuner(batch_arg_name=batch_arg_name, length_fn=length_fn, **options)
    tuner._early_exit = True  # noqa: SLF001 - as Lightning's Tuner does
    before, random = trainer.callbacks, RandomState()
    trainer.callbacks = [tuner, *before]
    try:
        trainer.fit(model, train_dataloaders, datamodule=datamodule)
    finally:
        trainer.callbacks = before
        random.restore()
    if tuner.result is None:
        raise ValueError("fast_dev_run must be off for a search; create the trainer without it")
    return tuner.result

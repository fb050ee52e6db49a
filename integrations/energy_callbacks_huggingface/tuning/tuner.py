"""``tune_batch_size``: the batch size of a Trainer, found before it trains."""

import os
from collections.abc import Callable
from typing import Any, Unpack

import torch
from accelerate.state import GradientState

from energy_callbacks import tuning
from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning.options import DEFAULTS, search_settings
from energy_callbacks.tuning.out_of_memory import free_memory
from energy_callbacks.tuning.snapshot.optimizer_snapshot import OptimizerSnapshot
from energy_callbacks.tuning.snapshot.random_state import RandomState
from energy_callbacks_huggingface.tuning.attributes import TrainerAttributes
from energy_callbacks_huggingface.tuning.factory import TrainerFactory, create
from energy_callbacks_huggingface.tuning.inner_loop import InnerLoop
from energy_callbacks_huggingface.tuning.row_lengths import longest_rows


def tune_batch_size(
    trainer_factory: TrainerFactory,
    *,
    length_fn: Callable[[Any], int] | None = None,
    **options: Unpack[TuningOptions],
) -> BatchSizeResult:
    """Find the batch size of a Trainer by running its training step at some of them.

    ::

        def make_trainer(**batch):
            args = TrainingArguments("out", num_train_epochs=3, **batch)
            return Trainer(model=model, args=args, train_dataset=rows)

        result = tune_batch_size(make_trainer, global_batch_size=64)
        trainer = make_trainer(**batch_arguments(result))
        trainer.train()

    One trainer is made. Its own loader, ``training_step``, optimizer and scheduler run; no
    callback, log, evaluation or checkpoint does. Afterwards the model, the optimizer if it was
    handed in, and generators of random numbers are as before, so that the factory may use the
    same ones again. Under ``torchrun`` each rank must call it; they agree on one size.

    Args:
        trainer_factory: called with ``per_device_train_batch_size`` and
            ``gradient_accumulation_steps``.
        length_fn: how long a row of ``train_dataset`` is, such as its tokens. Each trial begins
            with a batch of the longest rows. By default the column ``length_column_name`` of
            ``TrainingArguments``, else the number of ``input_ids``, if rows have one of them.
        **options: see ``energy_callbacks.tuning.TuningOptions``. With ``global_batch_size``
            micro-batches are accumulated to it, so that the optimizer sees what it did before.

    Returns:
        The curve, and the size of each device with its accumulation.

    Raises:
        NothingFits: if the smallest size does not run.
        TypeError: for an option that is none, or a factory that makes no Trainer.
        ValueError: for options that make no sense, or a training whose batches cannot be changed
            or that ranks cannot run by themselves.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun and accelerate launch
    settings = search_settings(options, ranks, None)
    size = settings.sizes[0]
    random_state = RandomState(torch)
    try:
        trainer = create(trainer_factory, size, (settings.divides or size) // size)
        return _tuned(trainer, size, settings.divides, length_fn, options)
    finally:
        free_memory()
        random_state.restore()


def batch_arguments(result: BatchSizeResult) -> dict[str, int]:
    """The result, by the names of ``TrainingArguments`` and the factory.

    Args:
        result: of ``tune_batch_size``.
    """
    return {
        "per_device_train_batch_size": result.size,
        "gradient_accumulation_steps": result.accumulation,
    }


def _tuned(
    trainer: Any,
    size: int,
    whole: int | None,
    length_fn: Callable[[Any], int] | None,
    options: TuningOptions,
) -> BatchSizeResult:
    accelerate = TrainerAttributes([GradientState()])
    # A scheduler that the preparation makes sets the learning rate of an optimizer of the user's.
    optimizers = [] if trainer.optimizer is None else [OptimizerSnapshot(trainer.optimizer)]
    kept = TrainerAttributes([trainer, trainer.accelerator, *trainer.model.modules()])
    try:
        loop = InnerLoop(trainer, size)
        rows = longest_rows(trainer.train_dataset, length_fn, trainer.args.length_column_name)

        def worst(size: int) -> None:
            assert rows is not None
            # In a second micro-batch there are gradients beside the activations.
            loop.step_on(rows[:size], 1 if whole in (None, size) else 2)

        def restore() -> None:
            loop.close()
            accelerate.restore()

        most = min(options.get("max_size", DEFAULTS["max_size"]), loop.rows_a_rank)
        return tuning.tune_batch_size(
            loop.step,
            keep=loop.keep,
            restore=restore,
            worst=None if rows is None else worst,
            **(options | {"max_size": most}),
        )
    finally:
        kept.restore()
        for optimizer in optimizers:
            optimizer.restore()

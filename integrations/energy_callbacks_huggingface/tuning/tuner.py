"""``tune_batch_size``: finds the batch size of a Trainer before it trains."""

import os
from collections.abc import Callable, Iterable
from typing import Any, Unpack

from accelerate.state import GradientState

from energy_callbacks import tuning
from energy_callbacks.core.settings.checks import check_type
from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning.options import at_most, search_settings
from energy_callbacks.tuning.out_of_memory import free_memory
from energy_callbacks.tuning.snapshot.host_copy import keep_items
from energy_callbacks.tuning.snapshot.random_state import RandomState
from energy_callbacks.tuning.snapshot.tensor_snapshot import OptimizerSnapshot
from energy_callbacks_huggingface.tuning.factory import TrainerFactory, create
from energy_callbacks_huggingface.tuning.inner_loop import InnerLoop
from energy_callbacks_huggingface.tuning.row_lengths import longest_rows


def tune_batch_size(
    trainer_factory: TrainerFactory,
    *,
    length_fn: Callable[[Any], int] | None = None,
    **options: Unpack[TuningOptions],
) -> BatchSizeResult:
    """Find the batch size of a Trainer by running its training step at several sizes.

    ::

        def make_trainer(**batch):
            args = TrainingArguments("out", num_train_epochs=3, **batch)
            return Trainer(model=model, args=args, train_dataset=rows)

        result = tune_batch_size(make_trainer, global_batch_size=64)
        trainer = make_trainer(**batch_arguments(result))
        trainer.train()

    One trainer is created. Trials use its loader, ``training_step``, optimizer and scheduler, but
    no callbacks, logs, evaluations or checkpoints. Afterwards the states of the model, of random
    generators, and of an optimizer that was passed to the Trainer are restored, so the factory may
    use the same objects again. Under ``torchrun`` every rank must call this function; all ranks
    return the same size.

    Args:
        trainer_factory: function that returns a Trainer; called with
            ``per_device_train_batch_size`` and ``gradient_accumulation_steps``.
        length_fn: returns the length of a row of ``train_dataset``, such as its number of tokens.
            Each trial begins with a batch of the longest rows. ``None`` uses the column that
            ``TrainingArguments.length_column_name`` names if it exists, otherwise the number of
            ``input_ids``. If rows have neither, trials use only batches of the loader.
        **options: see ``energy_callbacks.tuning.TuningOptions``. With ``global_batch_size``,
            micro-batches are accumulated, so each optimizer step has that number of samples over
            all ranks.

    Returns:
        The measured sizes, and the chosen batch size per device with its accumulation.

    Raises:
        NothingFits: if no size fits, or no size can be recommended.
        TypeError: for an unknown option, a factory that does not return a Trainer, or a
            ``length_fn`` that is no function.
        ValueError: for invalid options, or a training whose batch size cannot be changed or whose
            ranks cannot run independently.
    """
    check_type("length_fn", length_fn, Callable | None, "a function of a row")
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # set by torchrun and accelerate launch
    settings = search_settings(options, ranks, None)
    size = settings.sizes[0]
    random_state = RandomState()
    try:
        trainer = create(trainer_factory, size, (settings.divides or size) // size)
        return _tuned(trainer, size, settings.divides, length_fn, options)
    finally:
        free_memory()
        random_state.restore()


def batch_arguments(result: BatchSizeResult) -> dict[str, int]:
    """Return the chosen size as keyword arguments for ``TrainingArguments`` or the factory.

    Args:
        result: returned by ``tune_batch_size``.
    """
    return {
        "per_device_train_batch_size": result.size,
        "gradient_accumulation_steps": result.accumulation,
    }


def _tuned(
    trainer: Any,
    size: int,
    step_samples: int | None,
    length_fn: Callable[[Any], int] | None,
    options: TuningOptions,
) -> BatchSizeResult:
    restore_accelerate = _keep_attributes([GradientState()])
    # ``train`` creates a scheduler that changes the learning rate of the user's optimizer.
    optimizer = None if trainer.optimizer is None else OptimizerSnapshot(trainer.optimizer)
    restore_trainer = _keep_attributes([trainer, trainer.accelerator, *trainer.model.modules()])
    try:
        loop = InnerLoop(trainer, size)
        rows = longest_rows(trainer.train_dataset, length_fn, trainer.args.length_column_name)

        def worst(size: int) -> None:
            assert rows is not None
            # With accumulation, the second micro-batch needs the most memory, because memory then
            # contains its activations and the gradients of the first micro-batch.
            loop.step_on(rows[:size], 1 if step_samples in (None, size) else 2)

        def restore() -> None:
            loop.close()
            restore_accelerate()

        return tuning.tune_batch_size(
            loop.step,
            keep=loop.keep,
            restore=restore,
            worst=None if rows is None else worst,
            **at_most(options, loop.rows_per_rank),
        )
    finally:
        restore_trainer()
        if optimizer is not None:
            optimizer.restore()


def _keep_attributes(owners: Iterable[Any]) -> Callable[[], None]:
    """Return a function that restores attributes of objects, and items of their dicts and lists.

    To prepare a model for training, the Trainer and Accelerate add hooks to its modules, wrap their
    ``forward``, and mark them as prepared. A ``state_dict`` does not contain these changes. The
    returned function does not restore the values of tensors.
    """
    attributes = [vars(owner) for owner in owners]
    values = [value for held in attributes for value in held.values()]
    return keep_items([*attributes, *(one for one in values if isinstance(one, dict | list))])

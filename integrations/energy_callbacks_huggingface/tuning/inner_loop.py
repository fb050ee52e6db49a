"""Runs single optimizer steps of a Trainer in the same way as its training loop.

::

    train()                             the Trainer prepares model, loader and optimizer
      on_train_begin                      ``_Stop`` ends ``train``; no other callback is called
    step(size, accumulation)
      get_batch_samples                 the micro-batches, from the Trainer's own loader
      training_step                     once per micro-batch
      clip_grad_norm_, optimizer.step, lr_scheduler.step, zero_grad
"""

import contextlib
import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from accelerate.data_loader import DataLoaderDispatcher
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import ReduceLROnPlateau
from transformers import TrainerCallback, optimization

# Schedulers that the Trainer steps after an evaluation; GreedyLR exists since transformers 5.
_BY_METRIC: Final = (ReduceLROnPlateau, getattr(optimization, "GreedyLR", ReduceLROnPlateau))
# Methods of Accelerate that exchange values between ranks, for example to sum tokens. They are
# replaced, because ranks run independently here and would wait for each other.
_COLLECTIVES = ("gather", "gather_for_metrics", "reduce", "pad_across_processes")


class InnerLoop:
    """Runs optimizer steps without callbacks, logs and checkpoints; ``global_step`` stays the same.

    Each rank runs independently of the others.

    Args:
        trainer: a Trainer; its attributes are changed, and the caller must restore them.
        size: ``per_device_train_batch_size`` that the trainer was created with.

    Attributes:
        rows_per_rank: number of rows that each rank draws per epoch.
    """

    def __init__(self, trainer: Any, size: int) -> None:
        _prepare(trainer)
        self._trainer = trainer
        self._model = trainer.model_wrapped
        if isinstance(self._model, DistributedDataParallel):
            self._model = self._model.module
        loader = trainer.callback_handler.train_dataloader
        self.rows_per_rank = rows_of(loader, size) // trainer.args.world_size
        self._dataset, self._collate = loader.dataset, loader.collate_fn
        self._size: int | None = None
        self._batches: Iterator[Any] = iter(())

    @property
    def keep(self) -> list[Any]:
        """The objects that a step changes: model, optimizer, scheduler, and any gradient scaler."""
        trainer = self._trainer
        scaler = trainer.accelerator.scaler
        kept = [self._model, trainer.optimizer, trainer.lr_scheduler]
        return kept if scaler is None else [*kept, scaler]

    def step(self, size: int, accumulation: int = 1) -> None:
        """Run one optimizer step of ``accumulation`` micro-batches with ``size`` rows each."""
        self._set(size, accumulation)
        if self._size != size:
            self.close()
            self._size, self._batches = size, full_batches(self._trainer, size)
        self._step(self._batches, accumulation)

    def step_on(self, rows: Sequence[int], accumulation: int = 1) -> None:
        """Run one optimizer step; every micro-batch contains the rows with the indices ``rows``."""
        self._set(len(rows), accumulation)
        batch = self._collate([self._dataset[row] for row in rows])
        self._step(iter([batch] * accumulation), accumulation)

    def close(self) -> None:
        """Release the loader and its workers; the next call of ``step`` creates a new loader."""
        self._size, self._batches = None, iter(())
        # Accelerate keeps references to all loaders that it has prepared.
        self._trainer.accelerator._dataloaders.clear()  # noqa: SLF001

    def _set(self, size: int, accumulation: int) -> None:
        trainer = self._trainer
        trainer._train_batch_size = size  # noqa: SLF001 - batch size of the next loader
        # Samplers that group rows by length read the batch size from ``args``.
        trainer.args.per_device_train_batch_size = size
        trainer.args.gradient_accumulation_steps = accumulation
        trainer.current_gradient_accumulation_steps = accumulation

    def _step(self, batches: Any, accumulation: int) -> None:
        trainer, args, accelerator = self._trainer, self._trainer.args, self._trainer.accelerator
        fetched, items = trainer.get_batch_samples(batches, accumulation, args.device)
        for place, inputs in enumerate(fetched, start=1):
            # Accelerate's optimizer changes weights only if gradients are marked as complete.
            accelerator.gradient_state._set_sync_gradients(place == accumulation)  # noqa: SLF001
            loss = trainer.training_step(self._model, inputs, items)
            if args.logging_nan_inf_filter:
                bool(torch.isnan(loss) or torch.isinf(loss))  # waits for the device, as in training
        accelerator.clip_grad_norm_(self._model.parameters(), args.max_grad_norm or math.inf)
        trainer.optimizer.step()
        is_by_metric = isinstance(trainer.lr_scheduler, _BY_METRIC)
        if not (accelerator.optimizer_step_was_skipped or is_by_metric):
            # A trial may have more steps than the scheduler allows (OneCycleLR).
            with contextlib.suppress(ValueError):
                trainer.lr_scheduler.step()
        self._model.zero_grad()


def full_batches(trainer: Any, size: int) -> Iterator[Any]:
    """Yield full batches from a new loader of the Trainer, epoch after epoch, without end."""
    loader = trainer.get_train_dataloader()
    # By default, ranks synchronize their random generators at the start of an epoch. Here, ranks
    # start epochs at different times, and would wait for each other.
    loader.rng_types = None
    count = rows_of(loader, size) // (size * trainer.args.world_size)
    while True:
        for index, batch in enumerate(loader):
            if index < count:
                yield batch


def rows_of(loader: Any, size: int) -> int:
    """Return the number of rows that all ranks together draw in an epoch.

    Args:
        loader: the loader of the Trainer.
        size: expected rows per batch on each rank.

    Raises:
        ValueError: if batches have another size, or ranks share batches.
    """
    sampler = loader.batch_sampler
    is_split = getattr(sampler, "split_batches", False) and sampler.num_processes > 1
    inner = getattr(sampler, "batch_sampler", sampler)
    found = getattr(inner, "batch_size", None)
    if found != size or is_split or isinstance(loader, DataLoaderDispatcher):
        got = "batches that ranks share" if found == size else f"batch_size={found}"
        raise ValueError(
            f"get_train_dataloader must make batches of {size} rows on each rank if "
            f"per_device_train_batch_size is {size}, got {got} from {type(inner).__name__}; "
            "leave out split_batches, dispatch_batches and samplers that choose the sizes of "
            "batches"
        )
    return len(inner.sampler)


class _Prepared(BaseException):
    """Raised when a Trainer is ready to train; ``except Exception`` does not catch it."""


class _Stop(TrainerCallback):
    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        raise _Prepared


def _prepare(trainer: Any) -> None:
    """Make a trainer create loader, optimizer and scheduler, and wrap its model, without training.

    Raises:
        RuntimeError: if the trainer has trained, because it did not call ``on_train_begin``.
    """
    trainer.args = copy.copy(trainer.args)  # other trainers may use the original
    trainer.callback_handler = copy.copy(trainer.callback_handler)
    trainer.callback_handler.callbacks = [_Stop()]
    trainer._memory_tracker = copy.copy(trainer._memory_tracker)  # noqa: SLF001
    trainer._memory_tracker.skip_memory_metrics = True  # noqa: SLF001 - otherwise it starts a thread
    trainer.model_init = None  # otherwise ``train`` creates a new model
    for name in _COLLECTIVES:
        setattr(trainer.accelerator, name, lambda value, *_, **__: value)
    try:
        trainer.train()
    except _Prepared:
        return
    raise RuntimeError(
        f"{type(trainer).__name__}.train did not call on_train_begin; a batch size can be "
        "searched for only with the training loop of Trainer"
    )

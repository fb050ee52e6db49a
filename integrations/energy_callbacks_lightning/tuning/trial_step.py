"""A training step at any batch size: one iteration of Lightning's own training loop.

::

    trial begins     a new training loop, with the progress of the old one and no validation;
                     on_train_start, on_train_epoch_start of the module
      step           epoch_loop.advance: fetch, copy to the device, training_step, backward,
                     clipping, optimizer
      loader ends    it is begun again, as in the next epoch
    trial ends       the old loop, and what the module holds beside its tensors

Loops count, and keep what was logged: in a new one nothing has to be put back. Schedulers do not
step, because a trial may have more steps than they were made for.
"""

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

from energy_callbacks.tuning.snapshot.attributes_snapshot import AttributesSnapshot
from energy_callbacks_lightning.tuning.loaders import TrainLoaders, generators


class TrialStep:
    """Runs steps of a trainer that is ``offstage``.

    Args:
        trainer: in ``fit``, set up for training.
        loaders: that it trains on.
        length_fn: how long a sample is; ``None`` if all are alike.
    """

    def __init__(
        self, trainer: Any, loaders: TrainLoaders, length_fn: Callable[[Any], int] | None
    ) -> None:
        self._trainer = trainer
        self._loaders = loaders
        self._length_fn = length_fn
        self._worst: Callable[[int], Any] | None = None
        self._before = trainer.fit_loop
        self._attributes = AttributesSnapshot(trainer.lightning_module)
        self._undo = contextlib.ExitStack()
        self._epochs: _Epochs | None = None

    def __call__(self, size: int, accumulation: int | None = None) -> None:
        """One batch, or ``accumulation`` of them and a step of the optimizer.

        If the trainer accumulates by itself, the first call of a trial runs as many as it
        takes to a step of the optimizer, whose memory counts.
        """
        count, epochs = accumulation or 1, self._epochs
        if epochs is None:
            if accumulation is not None:
                self._trainer.accumulate_grad_batches = accumulation
            count, epochs = self._trainer.accumulate_grad_batches, self._begin(size)
        for _ in range(count):
            self._trainer.fit_loop.epoch_loop.advance(epochs)

    def worst(self, size: int) -> None:
        """The same with the longest samples."""
        epochs = self._begin(size)
        if self._worst is None:
            assert self._length_fn is not None
            self._worst = self._loaders.worst(epochs.combined, self._length_fn)
        batch = _Repeated(self._worst(size))
        for _ in range(self._trainer.accumulate_grad_batches):
            self._trainer.fit_loop.epoch_loop.advance(batch)

    def end(self) -> None:
        """The trial is over; the trainer has its loop again."""
        self._epochs = None
        self._undo.close()
        self._attributes.restore()

    def _begin(self, size: int) -> "_Epochs":
        trainer, before = self._trainer, self._before
        combined = self._loaders.at(size)
        self._undo.callback(combined.reset)  # ends its workers
        for generator in generators(combined):
            self._undo.callback(generator.set_state, generator.get_state())
        for config in trainer.lr_scheduler_configs:
            vars(config.scheduler)["step"] = _nothing
            self._undo.callback(vars(config.scheduler).pop, "step")
        self._undo.callback(setattr, trainer, "fit_loop", before)
        loop = trainer.fit_loop = _new_loop(trainer, before)
        loop._combined_loader = combined  # noqa: SLF001
        self._epochs = _Epochs(combined, loop)
        trainer._logger_connector.reset_results()  # noqa: SLF001
        loop.on_run_start()
        loop.on_advance_start()
        return self._epochs


class _Epochs:
    """In the place of Lightning's fetcher of batches: one epoch after the other."""

    done = False

    def __init__(self, combined: Any, loop: Any) -> None:
        self.combined = combined
        self._loop = loop
        self._batches: Any = iter(combined)
        with contextlib.suppress(TypeError, NotImplementedError):  # a stream
            loop.max_batches = len(combined)

    def __next__(self) -> Any:
        """The items of ``CombinedLoader``: a batch, its index, and that of its loader.

        Raises:
            ValueError: if an epoch has no batch.
        """
        with contextlib.suppress(StopIteration):
            return next(self._batches)
        self._batches = iter(self.combined)
        epoch_loop = self._loop.epoch_loop
        epoch_loop.batch_progress.reset_on_run()  # batch_idx is 0 again
        epoch_loop.automatic_optimization.optim_progress.reset_on_run()
        try:
            return next(self._batches)
        except StopIteration:
            sizes = {one.batch_size for one in self.combined.flattened}
            raise ValueError(
                f"the training data must give at least one full batch, got none of {sizes}; "
                "make max_size smaller"
            ) from None


class _Repeated:
    """The same batch each time."""

    done = False

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __next__(self) -> Any:
        return self._batch, 0, 0


def _new_loop(trainer: Any, before: Any) -> Any:
    """A loop as far as the old one, at the beginning of an epoch."""
    loop = type(before)(trainer, before.min_epochs, before.max_epochs)
    loop.epoch_loop = type(before.epoch_loop)(trainer, before.min_steps, before.max_steps)
    loop.load_state_dict(copy.deepcopy(before.state_dict()))
    loop.restarting = loop.epoch_loop.restarting = False
    loop.epoch_loop.batch_progress.reset_on_run()
    loop.epoch_loop._broadcast_sigterm_tensor = _nothing  # noqa: SLF001 - waits for other ranks
    loop._last_train_dl_reload_epoch = math.inf  # noqa: SLF001 - keeps the loader it is given
    return loop


def _nothing(*_: Any, **__: Any) -> None:
    """In the place of what has no part in a trial."""

"""Runs training steps at any batch size, as iterations of Lightning's own training loop.

::

    trial begins     creates a new training loop with the progress of the old loop; calls
                     on_train_start and on_train_epoch_start of the module
      step           epoch_loop.advance: fetch, copy to the device, training_step, backward,
                     clipping, optimizer
      loader ends    starts the loader again, as training does in the next epoch
    trial ends       restores the old loop, and the attributes of the module except parameters,
                     buffers and submodules

A loop contains counters and logged values. Trials use a new loop, so that the values of the old
loop need not be restored. In a trial, learning-rate schedulers do nothing, because the trial may
have more steps than a scheduler allows.
"""

import contextlib
import copy
import math
from collections.abc import Callable
from typing import Any

from energy_callbacks.tuning.snapshot.host_copy import keep_attributes
from energy_callbacks.tuning.torch_loaders import generators
from energy_callbacks_lightning.tuning.loaders import TrainLoaders


class LightningTrialStep:
    """Runs steps of a trainer; the caller must have entered the context ``search.isolated``.

    Args:
        trainer: a trainer that is running ``fit`` and is set up for training.
        loaders: creates the training loaders.
        length_fn: returns the length of a sample; ``None`` if all samples have the same length.
    """

    def __init__(
        self, trainer: Any, loaders: TrainLoaders, length_fn: Callable[[Any], int] | None
    ) -> None:
        self._trainer = trainer
        self._loaders = loaders
        self._length_fn = length_fn
        self._worst: Callable[[int], Any] | None = None
        self._before = trainer.fit_loop
        self._restore_attributes = keep_attributes(trainer.lightning_module)
        self._undo = contextlib.ExitStack()
        self._epochs: _Epochs | None = None

    def __call__(self, size: int, accumulation: int | None = None) -> None:
        """Run one batch, or ``accumulation`` batches and a step of the optimizer.

        If the trial has not begun with ``worst``, the first call runs the batches of a whole
        optimizer step (``trainer.accumulate_grad_batches``), because that needs the most memory.

        Args:
            size: samples per batch.
            accumulation: batches per optimizer step; ``None`` keeps the setting of the trainer.
        """
        count, epochs = accumulation or 1, self._epochs
        if accumulation is not None:
            self._trainer.accumulate_grad_batches = accumulation
        if epochs is None:
            count, epochs = self._trainer.accumulate_grad_batches, self._begin(size)
        for _ in range(count):
            self._trainer.fit_loop.epoch_loop.advance(epochs)

    def worst(self, size: int) -> None:
        """Begin a trial, and run a whole optimizer step with the longest samples."""
        epochs = self._begin(size)
        if self._worst is None:
            assert self._length_fn is not None
            self._worst = self._loaders.worst(epochs.combined, self._length_fn)
        batch = _Repeated(self._worst(size))
        for _ in range(self._trainer.accumulate_grad_batches):
            self._trainer.fit_loop.epoch_loop.advance(batch)

    def end(self) -> None:
        """End the trial, and restore the trainer's loop and the module's attributes."""
        self._epochs = None
        self._undo.close()
        self._restore_attributes()

    def _begin(self, size: int) -> "_Epochs":
        trainer, before = self._trainer, self._before
        combined = self._loaders.at(size)
        self._undo.callback(combined.reset)  # stops the workers of the loaders
        for generator in generators(combined.flattened):
            self._undo.callback(generator.set_state, generator.get_state())
        for config in trainer.lr_scheduler_configs:
            attributes = vars(config.scheduler)
            if "step" in attributes:  # the user has wrapped the method of this object
                self._undo.callback(attributes.update, step=attributes["step"])
            self._undo.callback(attributes.pop, "step")
            attributes["step"] = _nothing
        self._undo.callback(setattr, trainer, "fit_loop", before)
        loop = trainer.fit_loop = _new_loop(trainer, before)
        loop._combined_loader = combined  # noqa: SLF001
        self._epochs = _Epochs(combined, loop)
        trainer._logger_connector.reset_results()  # noqa: SLF001
        loop.on_run_start()
        loop.on_advance_start()
        return self._epochs


class _Epochs:
    """Replaces Lightning's data fetcher; yields batches epoch after epoch, without end."""

    done = False

    def __init__(self, combined: Any, loop: Any) -> None:
        self.combined = combined
        self._loop = loop
        self._batches: Any = iter(combined)
        # ``len`` fails for iterable data sets, which have no length. ``max_batches`` then keeps its
        # initial value.
        with contextlib.suppress(TypeError, NotImplementedError):
            loop.max_batches = len(combined)

    def __next__(self) -> Any:
        """Return an item of ``CombinedLoader``: a batch, its index, and the index of its loader.

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
    """Replaces Lightning's data fetcher; yields the same batch every time."""

    done = False

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __next__(self) -> Any:
        return self._batch, 0, 0


def _new_loop(trainer: Any, before: Any) -> Any:
    """Return a new loop with the progress of the old loop, at the beginning of an epoch."""
    loop = type(before)(trainer, before.min_epochs, before.max_epochs)
    loop.epoch_loop = type(before.epoch_loop)(trainer, before.min_steps, before.max_steps)
    loop.load_state_dict(copy.deepcopy(before.state_dict()))
    loop.restarting = loop.epoch_loop.restarting = False
    loop.epoch_loop.batch_progress.reset_on_run()
    loop.epoch_loop._broadcast_sigterm_tensor = _nothing  # noqa: SLF001 - it waits for other ranks
    loop._last_train_dl_reload_epoch = math.inf  # noqa: SLF001 - the loop must not reload its loader
    return loop


def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing. Replaces functions that a trial must not call."""

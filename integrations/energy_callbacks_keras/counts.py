"""Counts samples and batches from Keras' own state.

An execution is one call of ``model.train_function``; it runs up to ``steps_per_execution`` batches.
Keras' data adapter splits the data that ``fit`` receives into batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import keras

from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.guard import logger, pass_on_signals

T = TypeVar("T")

# Sample counts of the loss tracker are exact below this number: they are stored in float32.
_EXACT: Final = 2.0**24


@dataclass(slots=True, kw_only=True)
class Data:
    """The model, batch size and number of batches of one call of ``fit``.

    Attributes:
        model: the model that is trained.
        call: the call of ``fit``; ``None`` in a user's own loop.
        steps: batches per epoch; ``None`` if unknown.
        processes: number of training processes.
        batch_size: samples per batch of this process, from the data adapter, otherwise the mean of
            the previous epoch; ``None`` if unknown.
        is_exact_size: whether the batch size is from the data adapter.
        short: number of samples that the last batch of an epoch lacks; 0 if unknown.
    """

    model: Any = None
    call: ActiveCall | None = None
    steps: int | None = None
    processes: int = 1
    batch_size: float | None = None
    is_exact_size: bool = False
    short: float = 0.0

    def look(self) -> None:
        """Read the batch size from the data adapter at the start of an epoch."""
        iterator = None if self.call is None else self.call.local("epoch_iterator")
        size, partial, is_whole = asked(lambda: _of_adapter(iterator)) or (None, None, False)
        if size is not None:
            # A distribution strategy of TensorFlow splits each batch among processes. On other
            # backends every process has its own batch.
            sharing = self.processes if keras.backend.backend() == "tensorflow" else 1
            self.batch_size, self.is_exact_size = size / sharing, True
            self.short = (size - partial) / sharing if partial and is_whole else 0.0

    @property
    def accumulation(self) -> int:
        """Number of batches per optimizer step."""
        return getattr(_optimizer(self.model), "gradient_accumulation_steps", None) or 1

    def batches(self, begun: int, moved: int) -> int:
        """Return the number of batches of an epoch that has ended.

        Args:
            begun: index of the first batch of the last execution. If Keras does not know the number
                of batches, the last execution may have found no data.
            moved: optimizer steps in the epoch; 0 if unknown.
        """
        execution = getattr(self.model, "steps_per_execution", 1)
        if self.steps is not None and begun < self.steps:
            return min(begun + execution, self.steps)
        if self.call is not None and self.accumulation == 1 and moved > 0:
            return max(moved, begun)
        return begun + execution

    def samples(self, batches: int, batch_size: float | None) -> float | None:
        """Return the number of samples in an epoch; ``None`` if unknown.

        The number is read from the model's loss tracker (see ``counted_samples``), or computed from
        a batch size.

        Args:
            batches: number of batches in the epoch.
            batch_size: samples per batch, as the user has set it; used if the tracker has no valid
                count. ``None`` uses the batch size from the data adapter.
        """
        counted = self._counted() if self.call else None
        if counted is not None and self._is_plausible(counted, batches):
            if not self.is_exact_size:
                self.batch_size = counted / batches
            return counted
        if batch_size is not None:
            return batches * batch_size
        if not self.is_exact_size or self.batch_size is None:
            return None
        return batches * self.batch_size - (self.short if batches == self.steps else 0.0)

    def _counted(self) -> float | None:
        """Return this process's share of the loss tracker's count; ``None`` if unknown."""
        if self.processes == 1:
            return counted_samples(self.model)
        backend = keras.backend.backend()
        if backend == "tensorflow":  # all processes would have to read the count together
            return None
        is_shared = backend == "jax" and keras.distribution.distribution() is not None
        counted = counted_samples(self.model)
        return counted / self.processes if counted and is_shared else counted

    def _is_plausible(self, counted: float, batches: int) -> bool:
        """Return whether a count fits the number of batches.

        It does not fit if an evaluation within the epoch has reset the tracker.
        """
        if not self.is_exact_size or self.batch_size is None:
            return counted >= batches > 0
        return (batches - 1) * self.batch_size < counted <= batches * self.batch_size


def _of_adapter(iterator: Any) -> tuple[int | None, int | None, bool]:
    """Return batch size, size of an incomplete last batch, and whether an epoch covers all data.

    The sizes are numbers of samples. They are ``None`` if unknown; the second is also ``None`` if
    all batches are complete.
    """
    adapter = getattr(iterator, "data_adapter", None)
    size = getattr(adapter, "batch_size", None)
    if size is None or adapter is None:
        return None, None, False
    return int(size), adapter.partial_batch_size, adapter.num_batches == iterator.num_batches


def asked(question: Callable[[], T]) -> T | None:
    """Return ``question()``, which reads a value from Keras; ``None`` if that fails."""
    try:
        return question()
    except Exception:
        pass_on_signals()
        logger.debug("Keras does not say", exc_info=True)
        return None


def iterations(model: Any) -> int | None:
    """Wait for the device, and return the number of optimizer steps; ``None`` if unknown."""
    optimizer = _optimizer(model)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return None
    count = asked(lambda: _read(optimizer, "iterations"))
    return None if count is None else int(count)


def _optimizer(model: Any) -> Any:
    """Return the optimizer that updates weights; a ``LossScaleOptimizer`` may contain it."""
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)


def _read(owner: Any, variable: str) -> float:
    return float(keras.ops.convert_to_numpy(getattr(owner, variable)))


def counted_samples(model: Any) -> float | None:
    """Return the number of samples since Keras' loss tracker was reset; ``None`` if unknown.

    Keras' ``train_step`` adds the loss of each batch to the tracker, with the size of the batch as
    weight. Therefore the sum of the weights is the number of samples (all three backends, Keras 3.6
    and 3.15). A user's own ``train_step`` may use other weights. Call this function only between
    the last batch of an epoch and the next reset of the model's metrics.
    """
    tracker: Any = getattr(model, "_loss_tracker", None)
    step = getattr(model, "train_step", None)
    is_keras = str(getattr(step, "__module__", "")).partition(".")[0] == "keras"
    is_mean = type(tracker) is keras.metrics.Mean
    if not is_keras or not is_mean:
        return None
    is_exact = keras.backend.standardize_dtype(tracker.dtype) in ("float32", "float64")
    counted = asked(lambda: _read(tracker, "count"))
    return counted if is_exact and counted and counted < _EXACT else None

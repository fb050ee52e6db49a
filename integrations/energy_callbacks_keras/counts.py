"""Samples of batches, from Keras' own state."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import keras

from energy_callbacks.core.active_call import ActiveCall

logger = logging.getLogger("energy_callbacks")

T = TypeVar("T")

# From here on a float32, the type of the loss tracker, misses single samples.
_EXACT: Final = 2.0**24


@dataclass(slots=True, kw_only=True)
class Data:
    """The data of one ``fit``.

    Attributes:
        model: is trained.
        call: of ``fit``; ``None`` in a loop of the user's own.
        steps: batches of an epoch; ``None`` if unknown.
        processes: how many train.
        batch_size: what the data adapter says, else the mean of the epoch before.
        is_told: whether the data adapter has said so.
        short: samples missing in the last batch of an epoch.
    """

    model: Any = None
    call: ActiveCall | None = None
    steps: int | None = None
    processes: int = 1
    batch_size: float | None = None
    is_told: bool = False
    short: float = 0.0

    def look(self) -> None:
        """Ask the data adapter, at the start of an epoch."""
        iterator = None if self.call is None else self.call.local("epoch_iterator")
        size, partial, is_whole = asked(lambda: _of_adapter(iterator)) or (None, None, False)
        if size is not None:
            # A strategy of TensorFlow shares each batch; elsewhere every process brings its own.
            sharing = self.processes if keras.backend.backend() == "tensorflow" else 1
            self.batch_size, self.is_told = size / sharing, True
            self.short = (size - partial) / sharing if partial and is_whole else 0.0

    @property
    def accumulation(self) -> int:
        """Batches to an optimizer step."""
        return getattr(_optimizer(self.model), "gradient_accumulation_steps", None) or 1

    def batches(self, begun: int, moved: int) -> int:
        """Batches of an epoch whose last execution has ended.

        Args:
            begun: index of the first batch of the last execution that began. If Keras does
                not know how many there are, that execution may have found no data.
            moved: optimizer steps of the epoch.
        """
        execution = getattr(self.model, "steps_per_execution", 1)
        if self.steps is not None and begun < self.steps:
            return min(begun + execution, self.steps)
        if self.call is not None and self.accumulation == 1 and moved > 0:
            return max(moved, begun)
        return begun + execution

    def samples(self, batches: int, batch_size: float | None) -> float | None:
        """Samples of an epoch: counted by the model, else as many as its batches should have.

        Args:
            batches: of the epoch.
            batch_size: the user's word, which counts where nothing was counted.
        """
        counted = self._counted() if self.call else None
        if counted is not None and self._is_plausible(counted, batches):
            if not self.is_told:
                self.batch_size = counted / batches
            return counted
        if batch_size is not None:
            return batches * batch_size
        if not self.is_told or self.batch_size is None:
            return None
        return batches * self.batch_size - (self.short if batches == self.steps else 0.0)

    def _counted(self) -> float | None:
        """This process's part of the model's count."""
        if self.processes == 1:
            return counted_samples(self.model)
        backend = keras.backend.backend()
        if backend == "tensorflow":  # reading it would have to be done by all processes together
            return None
        is_shared = backend == "jax" and keras.distribution.distribution() is not None
        counted = counted_samples(self.model)
        return counted / self.processes if counted and is_shared else counted

    def _is_plausible(self, counted: float, batches: int) -> bool:
        """An evaluation in the middle of an epoch resets what was counted."""
        if not self.is_told or self.batch_size is None:
            return counted >= batches > 0
        return (batches - 1) * self.batch_size < counted <= batches * self.batch_size


def _of_adapter(iterator: Any) -> tuple[int | None, int | None, bool]:
    """Batch size, size of a short last batch, and whether an epoch is all of the data."""
    adapter = getattr(iterator, "data_adapter", None)
    size = getattr(adapter, "batch_size", None)
    if size is None or adapter is None:
        return None, None, False
    return int(size), adapter.partial_batch_size, adapter.num_batches == iterator.num_batches


def asked(question: Callable[[], T]) -> T | None:
    """An answer of Keras; ``None`` if it has none, which must not end a training."""
    try:
        return question()
    except Exception:
        logger.debug("Keras does not say", exc_info=True)
        return None


def iterations(model: Any) -> int | None:
    """The optimizer's count of steps; ``None`` if there is none. Waits for the device."""
    optimizer = _optimizer(model)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        return None
    count = asked(lambda: _read(optimizer, "iterations"))
    return None if count is None else int(count)


def _optimizer(model: Any) -> Any:
    """The stepping optimizer, inside one that scales the loss."""
    optimizer = getattr(model, "optimizer", None)
    return getattr(optimizer, "inner_optimizer", optimizer)


def _read(owner: Any, variable: str) -> float:
    return float(keras.ops.convert_to_numpy(getattr(owner, variable)))


def counted_samples(model: Any) -> float | None:
    """Samples in Keras' own loss tracker since its last reset; readable between epochs.

    It is weighted by the size of each batch, and by nothing else (``train_step`` of all three
    backends, Keras 3.6 and 3.15). A ``train_step`` of the user's may feed it otherwise.
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

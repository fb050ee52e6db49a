"""Whole batches of one size from Keras' own iterator of epochs, pass after pass."""

from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import Any, Final

import keras

from energy_callbacks_keras.tuning.batches import BatchSource

_ITERATORS: Final = {
    "tensorflow": "TFEpochIterator",
    "jax": "JAXEpochIterator",
    "torch": "TorchEpochIterator",
}


class Passes:
    """Batches of one size, pass after pass over the data.

    Args:
        model: that is trained on them.
        source: of the data.
        size: samples of a batch.
    """

    def __init__(self, model: Any, source: BatchSource, size: int) -> None:
        self._size = size
        self._execution = model.steps_per_execution
        fed = source.of(size)
        self._executions = None if fed.batches is None else fed.batches // self._execution
        if self._executions == 0:
            raise ValueError(self.too_few())
        backend = keras.backend.backend()
        trainer = import_module(f"keras.src.backend.{backend}.trainer")
        settings: dict[str, Any] = {"steps_per_execution": self._execution}
        if backend == "tensorflow":
            settings["distribute_strategy"] = model.distribute_strategy
        self.epochs = getattr(trainer, _ITERATORS[backend])(
            x=fed.x,
            y=fed.y,
            sample_weight=fed.sample_weight,
            batch_size=fed.batch_size,
            shuffle=fed.shuffle,
            **settings,
        )
        self._data = self._all()

    def _all(self) -> Iterator[Any]:
        """The inputs of the training function, call after call, without short batches."""
        is_empty = False
        while not is_empty:
            is_empty = True
            for *_, data in islice(self.epochs.enumerate_epoch(), self._executions):
                is_empty = False
                yield data
            self.end_pass()
        raise ValueError(self.too_few())

    def too_few(self) -> str:
        """The error if there is no batch."""
        several = "" if self._execution == 1 else f" for steps_per_execution={self._execution}"
        return (
            f"x must give a whole batch of {self._size} samples{several}, got too few samples; "
            "make max_size smaller"
        )

    def next(self) -> Any:
        """For the next call."""
        return next(self._data)

    def again(self) -> None:
        """The next pass begins."""
        self.end_pass()
        self._data = self._all()

    def end_pass(self) -> None:
        """Workers end; those of the next pass are others."""
        self.epochs.data_adapter.on_epoch_end()

    def first(self) -> Any:
        """A batch, of a pass of its own."""
        try:
            *_, data = next(iter(self.epochs.enumerate_epoch()))
            return data[0] if isinstance(data, list | tuple) else next(data)
        except ends() as error:
            raise ValueError(self.too_few()) from error
        finally:
            self.end_pass()


def ends() -> tuple[type[Exception], ...]:
    """Errors that signal the end of data."""
    if keras.backend.backend() != "tensorflow":
        return (StopIteration,)
    import tensorflow as tf

    return StopIteration, tf.errors.OutOfRangeError

"""Reads whole batches of one size with Keras' own epoch iterator.

A pass is one iteration over the data.
"""

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
    """Reads whole batches of one size, in any number of passes.

    Args:
        model: the model that is trained.
        source: the data.
        size: samples per batch.

    Attributes:
        epochs: Keras' epoch iterator.
        data: iterator over the inputs of ``model.train_function``. If the number of batches is
            unknown, ``train_function`` raises an error of ``ends()`` at the end of a pass; the
            caller must then call ``again``.

    Raises:
        ValueError: if the data has too few whole batches for one call of ``train_function``.
    """

    def __init__(self, model: Any, source: BatchSource, size: int) -> None:
        self._size = size
        self._execution = model.steps_per_execution
        arguments, batches = source.of(size)
        self._executions = None if batches is None else batches // self._execution
        if self._executions == 0:
            raise ValueError(self.too_few())
        backend = keras.backend.backend()
        trainer = import_module(f"keras.src.backend.{backend}.trainer")
        if backend == "tensorflow":
            arguments = arguments | {"distribute_strategy": model.distribute_strategy}
        iterator = getattr(trainer, _ITERATORS[backend])
        self.epochs = iterator(**arguments, steps_per_execution=self._execution)
        self.data = self._all()

    def _all(self) -> Iterator[Any]:
        """Yield the inputs of ``model.train_function`` in all passes, without incomplete batches.

        Raises:
            ValueError: if a pass has no whole batch.
        """
        is_empty = False
        while not is_empty:
            is_empty = True
            for *_, data in islice(self.epochs.enumerate_epoch(), self._executions):
                is_empty = False
                yield data
            self.end_pass()
        raise ValueError(self.too_few())

    def too_few(self) -> str:
        """Return the error message for data with too few whole batches."""
        several = "" if self._execution == 1 else f" for steps_per_execution={self._execution}"
        return (
            f"x must give a full batch of {self._size} samples{several}, got too few samples; "
            "make max_size smaller"
        )

    def again(self) -> None:
        """End the current pass and start the next one."""
        self.end_pass()
        self.data = self._all()

    def end_pass(self) -> None:
        """End the current pass and stop its workers."""
        self.epochs.data_adapter.on_epoch_end()

    def first(self) -> Any:
        """Begin a pass, end it, and return its first batch.

        Raises:
            ValueError: if the data has no batch.
        """
        try:
            *_, data = next(iter(self.epochs.enumerate_epoch()))
            return data[0] if isinstance(data, list | tuple) else next(data)
        except ends() as error:
            raise ValueError(self.too_few()) from error
        finally:
            self.end_pass()


def ends() -> tuple[type[Exception], ...]:
    """Return the exception classes that signal the end of the data."""
    if keras.backend.backend() != "tensorflow":
        return (StopIteration,)
    import tensorflow as tf

    return StopIteration, tf.errors.OutOfRangeError

"""Runs a model's own compiled ``train_function`` at one batch size, as ``fit`` does.

::

    epoch iterator                Keras' own class: shuffles, slices, prefetches, distributes
    build                         builds the parts that depend on the shapes of the data
    make_train_function           creates a new function per size, compiled for one shape
    train_function(data)          TensorFlow, torch: the model holds the state
    train_function(state, data)   JAX: the state is passed from step to step

A step reads nothing from the device. ``train_on_batch`` is not used, because it reads all metrics
and, on JAX, copies the state.
"""

from contextlib import nullcontext
from typing import Any

import keras

from energy_callbacks_keras.tuning.batches import BatchSource
from energy_callbacks_keras.tuning.passes import Passes, ends
from energy_callbacks_keras.tuning.placeholders import accumulating


class KerasTrialStep:
    """Trains a model on batches of any size. Call ``close`` before the model is restored.

    Args:
        model: a compiled and built model.
        source: the data.
    """

    def __init__(self, model: Any, source: BatchSource) -> None:
        self._model = model
        self._source = source
        self._trial: tuple[int, int | None] | None = None
        self._passes: Passes | None = None
        self._state: Any = None

    def __call__(self, size: int, accumulation: int | None = None) -> Any:
        """Call ``train_function`` once, or ``accumulation`` times for one optimizer step.

        Args:
            size: samples per batch.
            accumulation: batches per optimizer step; ``None`` does not change the optimizer.

        Returns:
            Results of the last call of ``train_function``. They are available when the device has
            completed that call.

        Raises:
            ValueError: if the data has too few samples for one call of ``train_function``.
        """
        if self._trial != (size, accumulation):
            self._begin(size, accumulation)
        result = None
        for _ in range(accumulation or 1):
            result = self._call()
        return result

    def _begin(self, size: int, accumulation: int | None) -> None:
        self.close()
        model = self._model
        if accumulation is not None:
            vars(model)["optimizer"] = accumulating(model.optimizer, accumulation)
        self._passes = Passes(model, self._source, size)
        _build(model, self._passes)
        model.make_train_function()
        model.reset_metrics()
        if keras.backend.backend() == "torch":
            model.train()
        if keras.backend.backend() == "jax":
            self._state = model._get_jax_state(  # noqa: SLF001 - as fit does
                trainable_variables=True,
                non_trainable_variables=True,
                optimizer_variables=True,
                metrics_variables=True,
                purge_model_variables=True,
            )
        self._trial = size, accumulation

    def _call(self) -> Any:
        assert self._passes is not None
        try:
            return self._train(next(self._passes.data))
        except ends():
            # If the number of batches is unknown, the pass ends with this error.
            self._passes.again()
        try:
            return self._train(next(self._passes.data))
        except ends() as error:
            raise ValueError(self._passes.too_few()) from error

    def _train(self, data: Any) -> Any:
        if keras.backend.backend() != "jax":
            return self._model.train_function(data)
        logs, self._state = self._model.train_function(self._state, data)
        # The caller waits for the returned values. Logs may be empty, so the optimizer's first
        # variable (its step count) is returned too.
        return logs, self._state[2][:1]

    def close(self) -> None:
        """End the trial: stop the workers of the data, and release batches and state."""
        if self._passes is not None:
            self._passes.end_pass()
        self._trial = self._passes = self._state = None
        # If one function ran batches of two sizes, it would be compiled for dynamic shapes.
        self._model.train_function = None


def _build(model: Any, passes: Passes) -> None:
    """Build the parts that ``fit`` builds before its first step."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        model._maybe_symbolic_build(iterator=passes.epochs)  # noqa: SLF001 - as fit does
        passes.end_pass()
    else:
        model._symbolic_build(data_batch=passes.first())  # noqa: SLF001 - as fit does
    if backend == "jax" and hasattr(model, "_record_training_state_sharding_spec"):
        model._record_training_state_sharding_spec()  # noqa: SLF001 - as fit of Keras 3.6 does


def build_all(model: Any, source: BatchSource, size: int) -> None:
    """Build layers and optimizer with the initial values that ``fit`` would give them.

    Args:
        model: a compiled model.
        source: the data.
        size: samples per batch; the layers are built with the shapes of the first batch.
    """
    is_tensorflow = keras.backend.backend() == "tensorflow"
    with model.distribute_strategy.scope() if is_tensorflow else nullcontext():
        if not all(layer.built for layer in model._flatten_layers()):  # noqa: SLF001 - as fit does
            batch = Passes(model, source, size).first()
            model._symbolic_build(data_batch=batch)  # noqa: SLF001 - as fit does
        elif model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)

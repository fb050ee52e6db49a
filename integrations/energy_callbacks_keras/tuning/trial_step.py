"""A model's own compiled training function, called as ``fit`` calls it, at one batch size.

::

    epoch iterator                Keras' own: it shuffles, slices, prefetches and distributes
    build                         what depends on the data's shapes, as fit builds it
    make_train_function           a new one: one that knows several shapes is another one
    train_function(data)          TensorFlow, torch: the model holds the state
    train_function(state, data)   JAX: the state is handed on from step to step

Nothing is read from the device in a step, where ``train_on_batch`` reads all metrics, and on JAX
copies the state.
"""

from contextlib import nullcontext
from typing import Any

import keras

from energy_callbacks_keras.tuning.batches import BatchSource
from energy_callbacks_keras.tuning.passes import Passes, ends
from energy_callbacks_keras.tuning.placeholders import accumulating


class TrialStep:
    """Trains a model on batches of any size; ``close`` before the model is put back.

    Args:
        model: compiled and built.
        source: of the data.
    """

    def __init__(self, model: Any, source: BatchSource) -> None:
        self._model = model
        self._source = source
        self._trial: tuple[int, int | None] | None = None
        self._passes: Passes | None = None
        self._state: Any = None

    def __call__(self, size: int, accumulation: int | None = None) -> Any:
        """One call of the training function, or as many as make a step of the optimizer.

        Args:
            size: samples of a batch.
            accumulation: batches of a step; ``None`` leaves the optimizer alone.

        Returns:
            What to wait for.
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
            return self._train(self._passes.next())
        except ends():
            # The size of data that was not counted is known at its end.
            self._passes.again()
        try:
            return self._train(self._passes.next())
        except ends() as error:
            raise ValueError(self._passes.too_few()) from error

    def _train(self, data: Any) -> Any:
        if keras.backend.backend() != "jax":
            return self._model.train_function(data)
        logs, self._state = self._model.train_function(self._state, data)
        # Logs may be empty; the optimizer's first variable, its count, is of the same execution.
        return logs, self._state[2][:1]

    def close(self) -> None:
        """End the workers, and let go of batches and state."""
        if self._passes is not None:
            self._passes.end_pass()
        self._trial = self._passes = self._state = None
        self._model.train_function = None  # no shape of another trial makes the next one's dynamic


def _build(model: Any, passes: Passes) -> None:
    """Build what ``fit`` builds before its first step."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        model._maybe_symbolic_build(iterator=passes.epochs)  # noqa: SLF001 - as fit does
        passes.end_pass()
    else:
        model._symbolic_build(data_batch=passes.first())  # noqa: SLF001 - as fit does
    if backend == "jax" and hasattr(model, "_record_training_state_sharding_spec"):
        model._record_training_state_sharding_spec()  # noqa: SLF001 - as fit of Keras 3.6 does


def build_all(model: Any, source: BatchSource, size: int) -> None:
    """Layers and optimizer that ``fit`` would build, with the values that these would have.

    Args:
        model: compiled.
        source: of the data.
        size: of a batch whose shapes are looked at.
    """
    with _scope(model):
        if not all(layer.built for layer in model._flatten_layers()):  # noqa: SLF001 - as fit does
            batch = Passes(model, source, size).first()
            model._symbolic_build(data_batch=batch)  # noqa: SLF001 - as fit does
        elif model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)


def _scope(model: Any) -> Any:
    """In which variables are made."""
    if keras.backend.backend() == "tensorflow":
        return model.distribute_strategy.scope()
    return nullcontext()

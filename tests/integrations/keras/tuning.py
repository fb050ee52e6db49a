"""A model with all kinds of state, and a search that takes a second."""

import random
import sys
from typing import Any

import keras
import numpy as np

from energy_callbacks.tuning import Patience
from tests.integrations.keras.training import BACKEND

# Of batches of 8 the last one is short.
SAMPLES = 37
# To compile a step for one more size takes longer than a trial: the first is that of ``trained``.
QUICK: dict[str, Any] = {
    "patience": Patience(block_s=0.004, least_s=0.01, most_s=0.02, seen_s=0.01),
    "min_size": 8,
    "multiple_of": 1,
    "max_trials": 2,
}
# XLA takes seconds for each size of a batch; the contract's trainings are compiled with it.
COMPILED: dict[str, Any] = {"jit_compile": False} if BACKEND == "tensorflow" else {}
# As the libraries say it.
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED: Out of memory allocating 4398046511104 bytes."


class Looking(keras.Sequential):
    """A model that records the sizes of its batches and trains nothing."""

    def __init__(self, **settings: Any) -> None:
        super().__init__([keras.Input((4,)), keras.layers.Dense(1)])
        self.sizes: Any = []
        self.compile("sgd", "mse", run_eagerly=True, **settings)

    def train_step(self, *given: Any) -> Any:
        self.sizes.append(keras.tree.flatten(given[-1])[0].shape[0])
        logs = {"loss": keras.ops.zeros(())}
        return (logs, given[0]) if BACKEND == "jax" else logs


class Greedy(keras.layers.Layer):
    """A layer that raises the backend's out-of-memory error beyond a size."""

    def __init__(self) -> None:
        super().__init__()
        self.fits = 1000

    def call(self, inputs: Any) -> Any:
        if BACKEND == "tensorflow":
            return self._of_tensorflow(inputs)
        size = inputs.shape[0]
        if isinstance(size, int) and size > self.fits:
            raise self._error()
        return inputs

    def _error(self) -> Exception:
        if BACKEND == "jax":
            import jax

            return jax.errors.JaxRuntimeError(OUT_OF_MEMORY)
        import torch

        return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def _of_tensorflow(self, inputs: Any) -> Any:
        import tensorflow as tf

        # 64 TiB, which nobody has: the allocator itself refuses.
        much = tf.where(tf.shape(inputs)[0] > self.fits, 2**44, 1)
        return inputs + 0.0 * tf.reduce_sum(tf.random.uniform([much]))


def layers(*more: Any) -> list[Any]:
    """Return layers with weights, moving statistics and random numbers."""
    return [
        keras.layers.BatchNormalization(center=False, scale=False),
        keras.layers.Dropout(0.3),
        *more,
        keras.layers.Dense(1),
    ]


def stateful(*more: Any, is_built: bool = True, **settings: Any) -> keras.Model:
    """Return a model with state, always the same."""
    keras.utils.set_random_seed(3)
    inputs = [keras.Input((4,))] if is_built else []
    model = keras.Sequential([*inputs, *layers(*more)])
    defaults = {
        "optimizer": keras.optimizers.Adam(0.01),
        "loss": "mse",
        "metrics": ["mae"],
        **COMPILED,
    }
    model.compile(**defaults | settings)
    return model


def small(*more: Any, **settings: Any) -> keras.Model:
    """Return a small model, always the same, that compiles fast."""
    keras.utils.set_random_seed(3)
    parts = [keras.Input((4,)), *more, keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential(parts)
    model.compile(**{"optimizer": "sgd", "loss": "mse"} | COMPILED | settings)
    return model


def seed(number: int) -> None:
    """Seed all generators, also PyTorch's."""
    keras.utils.set_random_seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


def rows(samples: int = SAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """Return fixed rows."""
    x = np.random.default_rng(0).normal(size=(samples, 4)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def whole() -> tuple[np.ndarray, np.ndarray]:
    """Return rows without a short batch, which would be compiled separately."""
    return rows(40)


def trained(model: keras.Model, *data: Any, **settings: Any) -> dict[str, Any]:
    """Return losses, values and random numbers after a training."""
    defaults: dict[str, Any] = {"epochs": 2, "verbose": 0} | (
        {} if settings.pop("is_batched", False) else {"batch_size": 8}
    )
    history = model.fit(*(data or whole()), **defaults | settings).history
    return {"history": history} | state(model)


def state(model: keras.Model) -> dict[str, Any]:
    """Return all values, and the next random numbers."""
    held = [*model.variables, *model.metrics_variables]
    if model.optimizer is not None:
        held += model.optimizer.variables
    values = [np.array(keras.ops.convert_to_numpy(one)).tobytes() for one in held]
    return {"values": values, "random": numbers()}


def numbers() -> list[Any]:
    """Return the states of the random generators."""
    found: list[Any] = [random.getstate(), np.random.get_state()[1].tobytes()]
    if "torch" in sys.modules:
        found.append(sys.modules["torch"].get_rng_state().numpy().tobytes())
    if BACKEND == "tensorflow":
        from tensorflow.python.eager import context

        found.append(context.context()._rng.getstate())
    return found

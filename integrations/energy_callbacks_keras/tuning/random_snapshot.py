"""Snapshots of random generators: Python's, NumPy's, PyTorch's, TensorFlow's and Keras' own."""

import sys
from typing import Any

import keras
import numpy as np
from keras.src.backend.common import global_state

from energy_callbacks.tuning.snapshot.random_state import RandomState

_KERAS = "global_seed_generator"


class RandomSnapshot:
    """All global generators, and some of PyTorch's besides.

    Args:
        generators: of PyTorch.
    """

    def __init__(self, generators: tuple[Any, ...] = ()) -> None:
        self._global = RandomState(sys.modules.get("torch"))
        self._others = [(one, one.get_state()) for one in generators]
        self._keras = global_state.get_global_attribute(_KERAS)
        self._seed: Any = None if self._keras is None else _array(self._keras.state)
        self._tensorflow = TensorFlowRandom() if keras.backend.backend() == "tensorflow" else None

    def restore(self) -> None:
        """Those that were not there then are made anew from their seeds."""
        if self._keras is not None:
            self._keras.state.assign(self._seed.copy())
        global_state.set_global_attribute(_KERAS, self._keras)
        if self._tensorflow is not None:
            self._tensorflow.restore()
        for one, state in self._others:
            one.set_state(state)
        self._global.restore()


def _array(variable: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(variable))


class TensorFlowRandom:
    """TensorFlow's seeds of operations, and its global generator."""

    def __init__(self) -> None:
        from tensorflow.python.eager import context
        from tensorflow.python.ops import stateful_random_ops

        self._context = context.context()
        self._ops = stateful_random_ops
        self._seeds = getattr(self._context, "_rng", None)  # there once a seed was set
        self._state = None if self._seeds is None else self._seeds.getstate()
        self._generator = stateful_random_ops.global_generator
        self._numbers = None if self._generator is None else np.array(self._generator.state.numpy())

    def restore(self) -> None:
        """Operations draw the same seeds again, and begin anew with them."""
        if self._generator is not None:
            self._generator.state.assign(self._numbers)
        self._ops.global_generator = self._generator
        if self._seeds is not None:
            self._seeds.setstate(self._state)
            # A kernel that is still there for a seed would go on from where it is.
            self._context.clear_kernel_cache()

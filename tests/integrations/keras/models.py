"""Compiled models that trainings have one after the other: to trace a new one takes longer."""

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

import keras
import numpy as np

from tests.integrations.keras.training import BATCH_SIZE, data, model


@dataclass(frozen=True)
class Compiled:
    """A model that is compiled and built.

    Attributes:
        model: of Keras.
        initial: its values before any training.
    """

    model: keras.Model
    initial: list[np.ndarray]

    @property
    def is_whole(self) -> bool:
        """On JAX Keras 3.6 leaves a model without weights after an exception."""
        return all(variable._value is not None for variable in self.model.variables)


class Models:
    """Those that no training has at the moment, by what they were made for."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[Compiled]] = defaultdict(list)

    def take(self, kind: Hashable, optimizer: keras.optimizers.Optimizer) -> Compiled:
        """One for a training of this kind, from its initial values on; with this optimizer if new.

        Trainings of one kind have the same optimizer, and data of the same shapes.
        """
        if not self._idle[kind]:
            made = model(optimizer=optimizer, jit_compile="auto")
            # Else the first fit builds this, with a batch that it takes from the data for that.
            made._symbolic_build(data_batch=data(BATCH_SIZE))
            return Compiled(made, values(made))
        found = self._idle[kind].pop()
        put(found.model, found.initial)
        return found

    def give_back(self, kind: Hashable, compiled: Compiled) -> None:
        """A training has ended without an exception, which may leave anything in a model."""
        compiled.model._initial_epoch = None  # BackupAndRestore leaves it there
        self._idle[kind].append(compiled)


def _held(trained: keras.Model) -> list[keras.Variable]:
    """Weights and the state of the optimizer; each epoch resets the metrics."""
    return [*trained.weights, *trained.optimizer.variables]


def values(trained: keras.Model) -> list[np.ndarray]:
    """What its variables hold."""
    return [np.array(keras.ops.convert_to_numpy(one)) for one in _held(trained)]


def put(trained: keras.Model, held: list[np.ndarray]) -> None:
    """Let its variables hold this."""
    for variable, value in zip(_held(trained), held, strict=True):
        variable.assign(value.copy())  # JAX may give the memory of an array to the next step

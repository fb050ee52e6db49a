"""Compiled models that trainings have one after the other: to trace a new one takes longer."""

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

import keras
import numpy as np

from tests.integrations.keras.training import BATCH_SIZE, data, model


@dataclass(frozen=True)
class Compiled:
    """A compiled and built model.

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
    """Models that no training uses at the moment, by their kind."""

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[Compiled]] = defaultdict(list)

    def take(self, kind: Hashable, optimizer: keras.optimizers.Optimizer) -> Compiled:
        """Return a model of a kind with its initial values, and this optimizer if it is new.

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
        """Return a model after a training that has ended without an exception."""
        compiled.model._initial_epoch = None  # BackupAndRestore leaves it there
        self._idle[kind].append(compiled)


def _held(trained: keras.Model) -> list[keras.Variable]:
    """Return weights and optimizer state; each epoch resets the metrics."""
    return [*trained.weights, *trained.optimizer.variables]


def values(trained: keras.Model) -> list[np.ndarray]:
    """Return the values of the variables."""
    return [np.array(keras.ops.convert_to_numpy(one)) for one in _held(trained)]


def put(trained: keras.Model, held: list[np.ndarray]) -> None:
    """Set the values of the variables."""
    for variable, value in zip(_held(trained), held, strict=True):
        variable.assign(value.copy())  # JAX may give the memory of an array to the next step

"""Keras adapter: translates hooks into events of the meter, and nothing else."""

# First: where Keras' backend is missing, this one says so.
from energy_callbacks_keras import backend as backend
from energy_callbacks_keras.callback import GpuEnergyCallback

__all__ = ["GpuEnergyCallback"]

"""Keras adapter: translates hooks into events of the meter, and tunes the batch size."""

# First: if Keras' backend is missing, this one says so.
from energy_callbacks_keras import backend as backend
from energy_callbacks_keras.callback import GpuEnergyCallback
from energy_callbacks_keras.tuning.tuner import tune_batch_size

__all__ = ["GpuEnergyCallback", "tune_batch_size"]

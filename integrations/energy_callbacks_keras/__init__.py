"""Keras adapter: translates hooks into calls of the meter, and searches for a batch size."""

# Imported first, because it raises a clear error if Keras' backend is not installed.
from energy_callbacks_keras import backend as backend
from energy_callbacks_keras.callback import GpuEnergyCallback
from energy_callbacks_keras.tuning.tuner import tune_batch_size

__all__ = ["GpuEnergyCallback", "tune_batch_size"]

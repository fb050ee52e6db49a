"""Keras adapter: translates hooks into events of the meter, and nothing else."""

from energy_callbacks_keras.callback import GpuEnergyCallback

__all__ = ["GpuEnergyCallback"]

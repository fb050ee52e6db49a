"""Lightning adapter: translates hooks into events of the meter, and nothing else."""

from energy_callbacks_lightning.callback import GpuEnergyCallback

__all__ = ["GpuEnergyCallback"]

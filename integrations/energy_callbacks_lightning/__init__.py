"""Lightning adapter: translates hooks into events of the meter, and nothing else."""

# First: where Lightning is missing, this one says so, and not a library that comes with it.
from energy_callbacks_lightning import bases as bases
from energy_callbacks_lightning.callback import GpuEnergyCallback

__all__ = ["GpuEnergyCallback"]

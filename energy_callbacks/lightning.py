"""Door: ``from energy_callbacks.lightning import GpuEnergyCallback``."""

from energy_callbacks.extras import requires

with requires("lightning", "pytorch_lightning", extra="lightning"):
    from energy_callbacks_lightning import GpuEnergyCallback as GpuEnergyCallback

"""Door: ``from energy_callbacks.keras import GpuEnergyCallback``."""

from energy_callbacks.extras import requires

with requires("keras", extra="keras"):
    from energy_callbacks_keras import GpuEnergyCallback as GpuEnergyCallback

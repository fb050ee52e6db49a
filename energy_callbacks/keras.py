"""Import path ``from energy_callbacks.keras import GpuEnergyCallback, tune_batch_size``."""

from energy_callbacks.core.extras import requires

with requires("keras", extra="keras"):
    from energy_callbacks_keras import GpuEnergyCallback as GpuEnergyCallback
    from energy_callbacks_keras import tune_batch_size as tune_batch_size

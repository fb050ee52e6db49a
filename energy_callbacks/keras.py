"""Public import path of the callback and the batch-size search for Keras."""

from energy_callbacks.core.extras import requires

with requires("keras", extra="keras"):
    from energy_callbacks_keras import GpuEnergyCallback as GpuEnergyCallback
    from energy_callbacks_keras import tune_batch_size as tune_batch_size

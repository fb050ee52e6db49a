"""Door: ``from energy_callbacks.huggingface import GpuEnergyCallback``."""

from energy_callbacks.extras import requires

with requires("transformers", "accelerate", "torch", extra="huggingface"):
    from energy_callbacks_huggingface import GpuEnergyCallback as GpuEnergyCallback

"""Public import path of the callback and the batch-size search for Hugging Face."""

from energy_callbacks.core.extras import requires

with requires("transformers", "accelerate", "torch", extra="huggingface"):
    from energy_callbacks_huggingface import GpuEnergyCallback as GpuEnergyCallback
    from energy_callbacks_huggingface import batch_arguments as batch_arguments
    from energy_callbacks_huggingface import tune_batch_size as tune_batch_size

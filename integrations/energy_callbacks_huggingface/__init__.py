"""Hugging Face adapter: translates the Trainer's events into calls of the meter.

Importing this package registers ``TrainingArguments(report_to=["energy"])`` with transformers.
"""

# Imported first, so that a missing Accelerate is reported here, not when a Trainer is created.
import accelerate as accelerate
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from energy_callbacks_huggingface.callback import GpuEnergyCallback, ReportedEnergyCallback
from energy_callbacks_huggingface.tuning.tuner import batch_arguments, tune_batch_size

__all__ = ["GpuEnergyCallback", "batch_arguments", "tune_batch_size"]

INTEGRATION_TO_CALLBACK["energy"] = ReportedEnergyCallback

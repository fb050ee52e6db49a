"""Hugging Face adapter: translates the Trainer's events into events of the meter.

Importing it makes ``TrainingArguments(report_to=["energy"])`` known to transformers.
"""

# First: without Accelerate the Trainer only says so when it is made.
import accelerate as accelerate
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from energy_callbacks_huggingface.callback import GpuEnergyCallback, ReportedEnergyCallback
from energy_callbacks_huggingface.tuning.tuner import batch_arguments, tune_batch_size

__all__ = ["GpuEnergyCallback", "batch_arguments", "tune_batch_size"]

INTEGRATION_TO_CALLBACK["energy"] = ReportedEnergyCallback

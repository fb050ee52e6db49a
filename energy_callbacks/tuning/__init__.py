"""Searches for the best batch size, from measured throughput, energy and memory."""

from energy_callbacks.tuning.batch_size import tune_batch_size as tune_batch_size
from energy_callbacks.tuning.bench import Patience as Patience
from energy_callbacks.tuning.options import TuningOptions as TuningOptions
from energy_callbacks.tuning.result import BatchSizeResult as BatchSizeResult
from energy_callbacks.tuning.search.trial import Trial as Trial
from energy_callbacks.tuning.torch_loaders import longest as longest

"""Tests of the contract that a framework cannot run, with the reason; no others are skipped."""

from types import MappingProxyType
from typing import Final

_LIGHTNING: Final = {
    "test_without_a_logger_an_event_file_has_the_loss": (
        "with logger=False, Lightning logs nothing; the report is still written"
    ),
}
_HUGGINGFACE: Final = {
    "test_a_stream_of_unequal_batches": (
        "the Trainer does not report the batch sizes of a custom loader to callbacks: samples are "
        "unknown without batch_size_fn=, and not guessed"
    ),
}
_NO_WAITS: Final = (
    "on TensorFlow, Keras fetches data in advance on other threads, so the time that the training "
    "waits for data is not known"
)
_KERAS_TENSORFLOW: Final = {
    "test_waiting_for_data_is_measured": _NO_WAITS,
    "test_waiting_for_data_has_an_energy": _NO_WAITS,
    "test_a_checkpoint_is_not_waiting": _NO_WAITS,
}

REASONS: Final = MappingProxyType(
    {
        "lightning": _LIGHTNING,
        "huggingface": _HUGGINGFACE,
        "keras-tensorflow": _KERAS_TENSORFLOW,
        "keras-jax": {},
        "keras-torch": {},
    }
)

"""Tests of the contract that a framework cannot run, with the reason; no others are skipped."""

from types import MappingProxyType
from typing import Final

_LIGHTNING: Final = {
    "test_without_a_logger_our_own_file_carries_the_loss": (
        "with logger=False Lightning is asked to log nothing; the report is written all the same"
    ),
}
_HUGGINGFACE: Final = {
    "test_a_stream_of_unequal_batches": (
        "the Trainer tells no callback how large the batches of a loader of one's own are: samples "
        "are unknown there without batch_size_fn=, and not guessed"
    ),
}
_NO_WAITS: Final = (
    "on TensorFlow Keras fetches data ahead on other threads: how long the training waits for it "
    "is not seen"
)
_KERAS_TENSORFLOW: Final = {
    "test_waiting_for_data_is_seen": _NO_WAITS,
    "test_waiting_for_data_has_its_joules": _NO_WAITS,
    "test_a_checkpoint_is_no_waiting": _NO_WAITS,
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

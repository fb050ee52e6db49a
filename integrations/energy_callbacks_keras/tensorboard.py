"""What a training in Keras writes to TensorBoard, through the writer of its own callback."""

import os
from collections.abc import Mapping
from typing import Any

import keras

from energy_callbacks.dashboard import Facts
from energy_callbacks_keras.counts import Data, asked


class TensorBoardRunOutput:
    """Exact tags in the run of the user's TensorBoard callback, through its own writer.

    Args:
        tensorboard: the callback; it opens and closes the writer.
    """

    prefix = ""

    def __init__(self, tensorboard: Any) -> None:
        self._tensorboard = tensorboard

    @property
    def folder(self) -> str:
        """The run of the training loss."""
        return os.path.join(self._tensorboard.log_dir, "train")  # noqa: PTH118 - may be a bucket

    @property
    def _writer(self) -> Any:
        return self._tensorboard._train_writer  # noqa: SLF001 - two would disturb the live view

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """All scalars of a step, as tensors, as Keras itself writes them."""
        summary = self._tensorboard.summary
        # With update_freq=n TensorBoard has pushed a condition that drops all other steps.
        with summary.record_if(True), self._writer.as_default():
            for tag, value in sorted(scalars.items()):
                summary.scalar(tag, value, step=step)

    def add(self, summary: Any, step: int) -> None:
        """Append a summary of any kind."""
        tf_summary = self._tensorboard.summary
        with tf_summary.record_if(True), self._writer.as_default():
            tf_summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)

    def flush(self) -> None:
        """Put on disk what was appended until now."""
        self._writer.flush()

    def close(self) -> None:
        """The writer is the user's."""


def facts(data: Data) -> Facts:
    """What distinguishes trainings in Keras."""
    size = data.batch_size
    return {
        "framework": f"keras ({keras.backend.backend()})",
        "world_size": data.processes,
        "batch_size": size if size is not None and size == int(size) else None,
        "accumulation": data.accumulation,
        "precision": asked(lambda: str(data.model.dtype_policy.name)),
    }

"""Writes our figures through the writer of the user's TensorBoard callback."""

from collections.abc import Mapping
from typing import Any

from transformers.integrations.integration_utils import TensorBoardCallback


class TrainerTensorBoardOutput:
    """Writes scalars without a prefix, through the writer of the user's TensorBoard callback.

    Args:
        board: the TensorBoard callback, which opens and closes the writer.
    """

    def __init__(self, board: TensorBoardCallback) -> None:
        self._board = board

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write all scalars of a step, if the writer of the callback is open."""
        writer: Any = self._board.tb_writer
        if writer is None:
            return
        for tag, value in scalars.items():
            writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Do nothing: the user's callback closes the writer."""

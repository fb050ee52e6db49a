"""Rows, hyperparameters and last metrics that a training of the Trainer writes to TensorBoard."""

import itertools
from collections.abc import Mapping
from typing import Any

from transformers.integrations.integration_utils import TensorBoardCallback

from energy_callbacks.dashboard import Facts


class TrainerTensorBoardOutput:
    """Writes exact tags into the run of the user's TensorBoard callback, with its writer.

    Args:
        board: the callback; it opens and closes the writer.
    """

    def __init__(self, board: TensorBoardCallback) -> None:
        self._board = board

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write all scalars of a step, unless the writer is already closed."""
        writer: Any = self._board.tb_writer
        if writer is None:
            return
        for tag, value in scalars.items():
            writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Do nothing: the writer belongs to the user."""


def facts(args: Any, state: Any) -> Facts:
    """Return properties that distinguish trainings, from the trainer's arguments and state."""
    return {
        "framework": "huggingface",
        "world_size": args.world_size,
        "batch_size": state.train_batch_size or args.per_device_train_batch_size,
        "accumulation": args.gradient_accumulation_steps,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    }


def metrics(state: Any) -> dict[str, float]:
    """Return the mean loss of the training, and the metrics of the last evaluation."""
    rows = itertools.chain.from_iterable(row.items() for row in state.log_history)
    return {
        name: float(value)
        for name, value in rows
        if name.startswith(("train_loss", "eval_"))
        and not name.endswith(("_runtime", "_per_second"))
        and isinstance(value, int | float)
    }

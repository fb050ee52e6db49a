"""What a training of the Trainer writes to TensorBoard: our rows, charts and hyperparameters."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from transformers.integrations.integration_utils import TensorBoardCallback

from energy_callbacks.dashboard import Dashboard, Facts
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs.protocol import Board


class TensorBoardRunOutput:
    """Exact tags in the run of the user's TensorBoard callback, through its own writer.

    Args:
        board: the callback; it opens and closes the writer.
    """

    def __init__(self, board: TensorBoardCallback) -> None:
        self._board = board

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """All scalars of a step; none if the writer is closed already."""
        writer: Any = self._board.tb_writer
        if writer is None:
            return
        for tag, value in scalars.items():
            writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """The writer is the user's."""


def dashboard(meter: EnergyMeter, runs: Iterable[Board], args: Any, state: Any) -> Dashboard:
    """The dashboard of a training that begins.

    Args:
        meter: measures it.
        runs: gone through at the first row: then their writers are open.
        args: ``TrainingArguments`` of the trainer.
        state: ``TrainerState`` of the trainer.
    """
    return Dashboard(meter, lambda: runs, lambda: _facts(args, state))


def _facts(args: Any, state: Any) -> Facts:
    return {
        "framework": "huggingface",
        "world_size": args.world_size,
        "batch_size": state.train_batch_size or args.per_device_train_batch_size,
        "accumulation": args.gradient_accumulation_steps,
        "precision": "bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    }


def metrics(state: Any) -> dict[str, float]:
    """The mean loss of the training, and what the last evaluation found."""
    rows = itertools.chain.from_iterable(row.items() for row in state.log_history)
    return {
        name: float(value)
        for name, value in rows
        if name.startswith(("train_loss", "eval_"))
        and not name.endswith(("_runtime", "_per_second"))
        and isinstance(value, int | float)
    }

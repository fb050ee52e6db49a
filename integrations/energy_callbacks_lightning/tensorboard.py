"""What a training in Lightning writes to TensorBoard beside its rows."""

from collections.abc import Iterator
from typing import Any

import torch

from energy_callbacks.dashboard import Dashboard, Facts
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs.summary_writer import WriterBoard
from energy_callbacks_lightning.bases import packages

_LOGGERS = tuple(package.loggers.TensorBoardLogger for package in packages)


def dashboard(meter: EnergyMeter, trainer: Any) -> Dashboard:
    """The dashboard of a training that begins; only in the first process."""
    return Dashboard(meter, lambda: _boards(trainer), lambda: _facts(trainer))


def _boards(trainer: Any) -> Iterator[WriterBoard]:
    for logger in trainer.loggers:
        if isinstance(logger, _LOGGERS):
            prefix = getattr(logger, "_prefix", "")
            joined = f"{prefix}{logger.LOGGER_JOIN_CHAR}" if prefix else ""
            yield WriterBoard(logger.experiment, joined)


def _facts(trainer: Any) -> Facts:
    size = getattr(trainer.train_dataloader, "batch_size", None)
    return {
        "framework": "lightning",
        "world_size": trainer.world_size,
        "batch_size": size if isinstance(size, int) else None,
        "accumulation": trainer.accumulate_grad_batches,
        "precision": str(trainer.precision),
    }


def metrics(trainer: Any) -> dict[str, float]:
    """The last values of what the model has logged; single numbers only.

    If several ranks train, asking for them may compute a metric over all ranks, and this is
    asked in the first one alone: none.
    """
    if trainer.world_size > 1:
        return {}
    logged = trainer.callback_metrics.items()
    return {k: float(v) for k, v in logged if isinstance(v, torch.Tensor) and v.numel() == 1}

"""Creates the dashboard of a Lightning training, in TensorBoard and other trackers."""

from collections.abc import Iterator
from typing import Any

from energy_callbacks.dashboard import Dashboard, Facts
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.outputs import open_runs
from energy_callbacks.outputs.summary_writer import WriterBoard
from energy_callbacks_lightning.bases import packages

_LOGGERS = tuple(package.loggers.TensorBoardLogger for package in packages)


def dashboard(meter: EnergyMeter, trainer: Any) -> Dashboard:
    """Return the dashboard of a training; only the process with rank 0 writes to it."""
    return Dashboard(
        meter,
        lambda: _boards(trainer),
        lambda: _facts(trainer),
        lambda: open_runs.of_loggers(trainer.loggers),
    )


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

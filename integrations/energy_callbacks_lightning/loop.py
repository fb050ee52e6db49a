"""Finds planned steps, run folder and GPUs of a Lightning training, and starts its meter."""

import contextlib
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn

from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.core.guard import ForeignCalls
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.sensing.frameworks.device_names import device_names
from energy_callbacks_lightning.bases import version


def say(message: str) -> None:
    """Log a message on rank 0, with Lightning's logger."""
    ForeignCalls(message).call(lambda: rank_zero_info(message))


def warn(message: str) -> None:
    """Show a warning on rank 0. If a filter of ``warnings`` makes it an exception, it is logged."""
    ForeignCalls(message).call(lambda: rank_zero_warn(message))


def is_searching(trainer: Any) -> bool:
    """Return whether ``fit`` will first search for a batch size or a learning rate.

    If so, the caller starts the meter before the search. The result is ``False`` if ``fit`` resumes
    a run: the meter must then start later, when the checkpoint of the run has been read.
    """
    is_there = _has_callback(trainer, "BatchSizeFinder", "LearningRateFinder")
    return is_there and trainer.state.fn == "fit" and not trainer.ckpt_path


def _has_callback(trainer: Any, *names: str) -> bool:
    """Return whether a callback has a class of this name, in either of the Lightning packages."""
    kinds = {kind.__name__ for one in trainer.callbacks for kind in type(one).__mro__}
    return not kinds.isdisjoint(names)


def plan(meter: EnergyMeter, trainer: Any, first_step: int, *, is_epoch_start: bool) -> None:
    """Tell the meter how many optimizer steps ``fit`` will make, if this is known.

    Within an epoch, in which a resumed ``fit`` may begin, all epochs are assumed to have the same
    number of steps.

    Args:
        meter: the meter.
        trainer: a trainer during ``fit``.
        first_step: ``trainer.global_step`` at the start of ``fit``.
        is_epoch_start: whether the trainer is between two epochs.
    """
    left = _steps_left(trainer, is_epoch_start=is_epoch_start)
    if left is not None:
        meter.plan(trainer.global_step - first_step + left)


def _steps_left(trainer: Any, *, is_epoch_start: bool) -> int | None:
    if not trainer.lightning_module.automatic_optimization:
        # Lightning's estimate assumes one step per batch, which may be wrong here.
        return None
    if _has_callback(trainer, "GradientAccumulationScheduler"):
        return None  # Lightning's estimate assumes that all epochs accumulate as now.
    planned, done = trainer.estimated_stepping_batches, int(trainer.global_step)
    if not 0 < planned < math.inf:
        return None
    batches = trainer.num_training_batches
    if not is_epoch_start or trainer.max_epochs < 0 or batches == math.inf:
        return int(planned) - done
    # Epochs before a resume may have had another number of steps.
    steps: int = math.ceil(batches / trainer.accumulate_grad_batches)
    left: int = steps * (trainer.max_epochs - trainer.current_epoch)
    return left if trainer.max_steps < 0 else min(left, int(trainer.max_steps) - done)


def run_folder(trainer: Any) -> Path:
    """Return ``<log_dir or default_root_dir>/energy``. All ranks must call this together.

    A folder that is not local, such as ``s3://bucket/logs``, is skipped. If both are not local, the
    result is ``energy`` in the working directory.
    """
    folders = (trainer.log_dir, trainer.default_root_dir)
    return Path(next(filter(_is_local, folders), "")) / "energy"


def _is_local(folder: Any) -> bool:
    return isinstance(folder, str | os.PathLike) and str(folder) != "" and "://" not in str(folder)


def start(meter: EnergyMeter, trainer: Any, state: Mapping[str, Any] | None = None) -> None:
    """Start the meter of this rank, unless it is already running.

    Args:
        meter: the meter to start.
        trainer: a trainer during a call such as ``fit``.
        state: the meter's state from the checkpoint of a resumed run; empty or ``None`` if there is
            none.
    """
    process = TrainingProcess(
        framework="lightning",
        framework_version=version,
        rank=trainer.global_rank,
        local_rank=trainer.local_rank,
        world_size=trainer.world_size,
        local_world_size=trainer.num_devices,
    )
    # Every rank must ask for the folder, even if its meter is running: Lightning broadcasts it.
    folder, gpus = run_folder(trainer), used_gpus(trainer)
    meter._start(folder, state=state, process=process, used_gpus=gpus, say=say)


def used_gpus(trainer: Any) -> tuple[int | str, ...]:
    """Return the GPUs that this process measures, as ``device_names`` does; empty on a CPU.

    The first rank of a host measures the GPUs of all ranks of the host. Otherwise the figures,
    which only rank 0 logs, would include a single GPU. The report counts each GPU once.
    """
    device = trainer.strategy.root_device
    ordinals = trainer.device_ids if trainer.local_rank == 0 else (device.index or 0,)
    return device_names(device.type, ordinals)


def step_progress(trainer: Any) -> Any:
    """Return an object whose attribute ``completed`` is always ``trainer.global_step``.

    Reading ``trainer.global_step`` calls ten properties of the trainer, the loops and the module,
    which takes 1 to 5 us. They lead to a counter that stays the same object during a training.
    """
    loop = trainer.fit_loop.epoch_loop
    with contextlib.suppress(AttributeError):  # another version of Lightning
        if trainer.lightning_module.automatic_optimization:
            progress = loop.automatic_optimization.optim_progress.optimizer.step.total
        else:
            progress = loop.manual_optimization.optim_step_progress.total
        if progress.completed == trainer.global_step:
            return progress
    return _GlobalStep(trainer)


class _GlobalStep:
    """Reads ``trainer.global_step``, if the counter behind it was not found."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    @property
    def completed(self) -> int:
        return int(self._trainer.global_step)


def loss_every(trainer: Any) -> int:
    """Return the number of steps between the steps at which the trainer logs its loss."""
    if trainer.fast_dev_run:
        return 1
    return trainer.log_every_n_steps or sys.maxsize  # with 0, no loss is logged

"""Finds batch sizes, logger steps and GPUs of a Lightning training, without fetching data.

The step of a batch in Lightning's loggers is the number of earlier batches that ended with an
optimizer step; in manual optimization it is the number of all earlier batches. ``global_step``
differs: in ``on_train_batch_end`` it includes the optimizer step of the current batch, and in
manual optimization it counts the steps of every optimizer.
"""

import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn

from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_lightning.bases import version

Counter = Callable[[Any], int]
say, warn = rank_zero_info, rank_zero_warn


class LightningStepCounter:
    """Counts optimizer steps, samples and tokens, and computes the step of the loggers.

    Args:
        batch_size_fn: returns the number of samples in a batch; ``None`` uses the first dimension
            of the batch's tensors.
        length_fn: returns the number of tokens in a batch; ``None`` counts no tokens.

    Attributes:
        stepped_batches: number of batches so far that ended with an optimizer step; in manual
            optimization, the number of all batches so far.
    """

    def __init__(self, batch_size_fn: Counter | None, length_fn: Counter | None) -> None:
        self._samples_of: Counter | None = batch_size_fn or _first_dimension
        self._tokens_of = length_fn
        self._global_step = 0
        self._samples: float | None = 0
        self._tokens: float | None = 0
        self.stepped_batches = 0

    @property
    def logger_step(self) -> int:
        """The step at which Lightning logs the last batch that ``stepped_batches`` counts."""
        return max(self.stepped_batches - 1, 0)

    def begin(self, trainer: Any) -> None:
        """Set the counts when training starts or resumes from a checkpoint."""
        self._global_step = trainer.global_step
        self._samples = self._tokens = 0
        if trainer.lightning_module.automatic_optimization:
            self.stepped_batches = trainer.global_step

    def count(self, trainer: Any, batch: Any) -> list[tuple[float | None, float | None]]:
        """Count a batch, and return the optimizer steps that ended with it.

        Returns:
            Numbers of samples and tokens of each step, ``None`` if unknown. The list is empty if no
            step ended with the batch.
        """
        self._samples = _plus(self._samples, self._counted(self._samples_of, batch))
        self._tokens = _plus(self._tokens, self._counted(self._tokens_of, batch))
        before, self._global_step = self._global_step, trainer.global_step
        steps = self._global_step - before
        if steps or not trainer.lightning_module.automatic_optimization:
            self.stepped_batches += 1
        if not steps:
            return []
        consumed, self._samples, self._tokens = (self._samples, self._tokens), 0, 0
        # Several optimizers may have used the same samples. Samples count once, for the first step.
        return [consumed] + [(0, None if consumed[1] is None else 0)] * (steps - 1)

    def _counted(self, count: Counter | None, batch: Any) -> float | None:
        """Return ``count(batch)``. After an error, return ``None`` and stop using ``count``."""
        if count is None:
            return None
        try:
            return float(count(batch))
        except Exception as error:  # noqa: BLE001 - counting must not end a training
            warn(
                f"{getattr(count, '__name__', count)} could not count a batch ({error!r}); "
                "figures that need it are left out; give batch_size_fn= or length_fn="
            )
            self._samples_of = None if count is self._samples_of else self._samples_of
            self._tokens_of = None if count is self._tokens_of else self._tokens_of
            return None


def _plus(total: float | None, more: float | None) -> float | None:
    return None if total is None or more is None else total + more


def _first_dimension(batch: Any) -> int:
    """Return the first dimension of a batch's tensors, which must be the same for all of them.

    Raises:
        ValueError: if there is no tensor, or first dimensions differ.
    """
    sizes: set[int] = set()
    apply_to_collection(batch, torch.Tensor, lambda tensor: sizes.update(tensor.shape[:1]))
    if len(sizes) != 1:
        raise ValueError(f"its tensors have the first dimensions {sorted(sizes)}")
    return sizes.pop()


def is_searching(trainer: Any) -> bool:
    """Return whether ``fit`` will first search for a batch size or a learning rate.

    If so, the caller starts the meter before the search. The result is ``False`` if ``fit`` resumes
    a run: the meter must then start later, when the checkpoint of the run has been read.
    """
    kinds = {kind.__name__ for one in trainer.callbacks for kind in type(one).__mro__}
    # These names are the same in both Lightning packages.
    is_there = bool(kinds & {"BatchSizeFinder", "LearningRateFinder"})
    return is_there and trainer.state.fn == "fit" and not trainer.ckpt_path


def planned_steps(trainer: Any) -> int | None:
    """Return the number of optimizer steps that remain in ``fit``; ``None`` if unknown."""
    if not trainer.lightning_module.automatic_optimization:
        # Lightning's estimate assumes one step per batch, which may be wrong here.
        return None
    planned = trainer.estimated_stepping_batches
    return int(planned) - trainer.global_step if 0 < planned < math.inf else None


def run_folder(trainer: Any) -> Path:
    """Return ``<log_dir or default_root_dir>/energy``. All ranks must call this together."""
    log_dir = trainer.log_dir
    is_path = isinstance(log_dir, str | os.PathLike) and bool(str(log_dir))
    return Path(log_dir if is_path else trainer.default_root_dir) / "energy"


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
    meter.start(folder, state=state, process=process, used_gpus=gpus, say=say)


def used_gpus(trainer: Any) -> tuple[int, ...]:
    """Return the ordinals of the GPUs that this process measures; empty on a CPU.

    The first rank of a host measures the GPUs of all ranks of the host. Otherwise the figures,
    which only rank 0 logs, would include a single GPU. The report counts each GPU once.
    """
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return ()
    return tuple(trainer.device_ids) if trainer.local_rank == 0 else (device.index or 0,)

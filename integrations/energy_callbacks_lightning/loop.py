"""Batch sizes, logger steps and devices of a Lightning loop, without touching data.

Lightning's own x-axis is the number of batches that ended in an optimizer step, not
``global_step``: that is one ahead in ``on_train_batch_end`` and counts every optimizer under
manual optimisation.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning_utilities.core.apply_func import apply_to_collection
from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn

from energy_callbacks.accounting.journal.launch import TrainingProcess

Counter = Callable[[Any], int]


class StepCounter:
    """Optimizer steps, samples and the logger's step, from public attributes of the trainer.

    Args:
        batch_size_fn: samples of a batch; ``None`` reads the first dimension of its tensors.
        length_fn: tokens of a batch; ``None`` counts none.
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
        """Where Lightning has put the loss of the last batch that ended in a step."""
        return max(self.stepped_batches - 1, 0)

    def begin(self, trainer: Any) -> None:
        """Training begins, or goes on from a checkpoint."""
        self._global_step = trainer.global_step
        self._samples = self._tokens = 0
        if trainer.lightning_module.automatic_optimization:
            self.stepped_batches = trainer.global_step

    def count(self, trainer: Any, batch: Any) -> list[tuple[float | None, float | None]]:
        """One batch is done: samples and tokens of each optimizer step that ended with it."""
        self._samples = _plus(self._samples, self._counted(self._samples_of, batch))
        self._tokens = _plus(self._tokens, self._counted(self._tokens_of, batch))
        before, self._global_step = self._global_step, trainer.global_step
        steps = self._global_step - before
        if steps or not trainer.lightning_module.automatic_optimization:
            self.stepped_batches += 1
        if not steps:
            return []
        consumed, self._samples, self._tokens = (self._samples, self._tokens), 0, 0
        # Several optimizers stepped on the same samples: these count once.
        return [consumed] + [(0, None if consumed[1] is None else 0)] * (steps - 1)

    def _counted(self, count: Counter | None, batch: Any) -> float | None:
        """The count of a batch by a user's function; one that fails is not called again."""
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
    """The first dimension that all tensors of a batch share, from shapes alone.

    Raises:
        ValueError: if there is none, or tensors differ: then only the user knows.
    """
    sizes: set[int] = set()
    apply_to_collection(batch, torch.Tensor, lambda tensor: sizes.update(tensor.shape[:1]))
    if len(sizes) != 1:
        raise ValueError(f"its tensors have the first dimensions {sorted(sizes)}")
    return sizes.pop()


def is_searching(trainer: Any) -> bool:
    """Whether ``fit`` is going to look for a batch size or a learning rate first.

    Not if it resumes: the checkpoint, which says what run it is, is read after ``setup``.
    """
    kinds = {kind.__name__ for one in trainer.callbacks for kind in type(one).__mro__}
    is_there = bool(kinds & {"BatchSizeFinder", "LearningRateFinder"})  # of either package
    return is_there and trainer.state.fn == "fit" and not trainer.ckpt_path


def planned_steps(trainer: Any) -> int | None:
    """Optimizer steps that ``fit`` is going to make; ``None`` if not known."""
    if not trainer.lightning_module.automatic_optimization:
        return None  # Lightning estimates one step a batch
    planned = trainer.estimated_stepping_batches
    return int(planned) - trainer.global_step if 0 < planned < math.inf else None


def run_folder(trainer: Any) -> Path:
    """Beside the logs: ``<log_dir or default_root_dir>/energy``; all ranks must ask."""
    log_dir = trainer.log_dir
    is_path = isinstance(log_dir, str | os.PathLike) and bool(str(log_dir))
    return Path(log_dir if is_path else trainer.default_root_dir) / "energy"


def process(trainer: Any, version: str) -> TrainingProcess:
    """Which rank this is."""
    return TrainingProcess(
        framework="lightning",
        framework_version=version,
        rank=trainer.global_rank,
        local_rank=trainer.local_rank,
        world_size=trainer.world_size,
        local_world_size=trainer.num_devices,
    )


def used_gpus(trainer: Any) -> tuple[int, ...]:
    """Ordinals of the GPUs that this process answers for; none on a CPU.

    The first rank of a host answers for all of its GPUs, because its figures are the ones that
    are logged; the report counts each card once.
    """
    device = trainer.strategy.root_device
    if device.type != "cuda":
        return ()
    return tuple(trainer.device_ids) if trainer.local_rank == 0 else (device.index or 0,)


def say(message: str) -> None:
    """One line, as Lightning prints its own."""
    rank_zero_info(message)


def warn(message: str) -> None:
    """A warning of the first rank, as Lightning itself warns."""
    rank_zero_warn(message)

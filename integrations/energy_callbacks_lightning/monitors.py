"""Gives our figures to callbacks such as ``ModelCheckpoint`` and ``EarlyStopping``.

Ranks see different joules and would decide differently on them: if several processes train,
nothing is offered.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from energy_callbacks.accounting.metrics.scalars import TAGS
from energy_callbacks_lightning import loop

# Present from the first step on, as NaN until something was seen, so that a checkpoint callback
# that monitors them finds its key.
_MONITORED = ("efficiency/total_j_per_sample",)
_MONITORED_ON_GPU = ("efficiency/gpu_j_per_step", "efficiency/gpu_j_per_sample")


def begin(trainer: Any) -> None:
    """Offer what may be monitored, not known yet; or warn that it is not offered."""
    if trainer.world_size > 1:
        _warn(trainer)
        return
    for tag in _MONITORED + (_MONITORED_ON_GPU if loop.used_gpus(trainer) else ()):
        trainer.callback_metrics.setdefault(tag, torch.tensor(math.nan))


def offer(trainer: Any, scalars: Mapping[str, float]) -> None:
    """The newest figures."""
    if trainer.world_size == 1:
        trainer.callback_metrics.update({t: torch.tensor(v) for t, v in scalars.items()})


def _warn(trainer: Any) -> None:
    for other in trainer.callbacks:
        monitored = getattr(other, "monitor", None)
        if monitored in TAGS:
            loop.warn(
                f"{type(other).__name__} monitors {monitored!r}, which is not offered to "
                "callbacks where several processes train; monitor a metric of the model"
            )

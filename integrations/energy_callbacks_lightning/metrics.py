"""Reads the model's metrics from ``trainer.callback_metrics``, and adds our figures to it.

::

    on_validation_start                   stores the existing metrics
    on_validation_end                     metrics that have changed belong to the validation
    on_train_epoch_end                    ends the epoch; its metrics may be logged after this hook
    on_train_epoch_start | on_train_end   other metrics that have changed since the previous epoch
                                          belong to the epoch that has ended

``callback_metrics`` contains the same tensor until a metric is computed again, so a metric has
changed if its tensor is another object. When this module reads the metrics of a validation or an
epoch, Lightning has just read them for its loggers and progress bar, and reading them again runs no
collective operation. Without loggers and progress bar, only values in host memory are read, because
training would have to wait for values on the device.

If one process trains, our figures are added for callbacks such as ``ModelCheckpoint`` and
``EarlyStopping``. With several ranks they are not added: ranks measure different energies, so a
callback would decide differently on each rank.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from energy_callbacks.accounting.metrics.tags import own_tags
from energy_callbacks.core.guard import ForeignCalls
from energy_callbacks_lightning import loop

Logged = dict[str, Any]
# Tags that are in ``callback_metrics`` from the start of training, with NaN until the figure is
# measured: a checkpoint callback may raise an error if the tag that it monitors is missing.
_MONITORED = ("efficiency/total_j_per_sample",)
_MONITORED_ON_GPU = ("efficiency/gpu_j_per_step", "efficiency/gpu_j_per_sample")


class LoggedMetrics:
    """Finds the metrics in ``trainer.callback_metrics`` that have changed.

    If they cannot be read, for example because Lightning computes one of them and it raises an
    exception, none are found.

    Args:
        now_s: returns the monotonic time, s.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._reads = ForeignCalls("metrics of the model cannot be recorded", now_s)
        self._reported: Logged = {}
        self._before: Logged = {}
        self._of_validation: set[str] = set()
        self._epoch: int | None = None

    def begin_validation(self, trainer: Any) -> None:
        """Store the current metrics. Metrics that change from now on belong to the validation."""
        self._before = self._reads.call(lambda: dict(trainer.callback_metrics)) or {}

    def of_validation(self, trainer: Any) -> dict[str, float]:
        """Return the metrics of the validation that has ended."""
        new = self._reads.call(lambda: _changed(trainer, self._before)) or {}
        self._of_validation |= set(new)
        return _numbers(trainer, new)

    def end_epoch(self, trainer: Any) -> None:
        """Store the number of the epoch that ends. Its metrics may still be logged afterwards."""
        self._epoch = trainer.current_epoch

    def of_epoch(self, trainer: Any) -> tuple[dict[str, float], int | None]:
        """Return the metrics and the number (from 0) of the epoch that has ended.

        Metrics of validations are left out. The number is ``None`` if no epoch has ended since the
        last call of this method.
        """
        epoch, self._epoch = self._epoch, None
        if epoch is None:
            return {}, None
        new = self._reads.call(lambda: _changed(trainer, self._reported)) or {}
        self._reported = self._reported | new
        other = {name: value for name, value in new.items() if name not in self._of_validation}
        return _numbers(trainer, other), epoch


def _changed(trainer: Any, before: Logged) -> Logged:
    """Return the metrics whose tensors are not the same objects as in ``before``."""
    return {k: v for k, v in trainer.callback_metrics.items() if v is not before.get(k)}


def _numbers(trainer: Any, logged: Logged) -> dict[str, float]:
    """Return the metrics that are single numbers and can be read without waiting."""
    was_read = bool(trainer.loggers) or trainer.progress_bar_callback is not None
    return {
        name: value.item()
        for name, value in logged.items()
        # Distributed tensors are excluded: all ranks would have to read them together.
        if type(value) is torch.Tensor and value.numel() == 1 and (was_read or value.is_cpu)
    }


def last_values(trainer: Any) -> dict[str, float]:
    """Return the last values of all metrics that are single numbers.

    The result is empty if several ranks train: reading a metric may compute it over all ranks
    together, but only the first rank calls this function.
    """
    if trainer.world_size > 1:
        return {}
    logged = trainer.callback_metrics.items()
    return {k: float(v) for k, v in logged if isinstance(v, torch.Tensor) and v.numel() == 1}


def offered(trainer: Any) -> Logged | None:
    """Return ``trainer.callback_metrics``; ``None`` if several processes train.

    Lightning keeps this dictionary until the training has ended. Reading it again at each row would
    compute all metrics of the model, and wait for the device if the progress bar shows one of them.
    """
    return trainer.callback_metrics if trainer.world_size == 1 else None


def begin_offers(trainer: Any, tag_prefix: str) -> Logged | None:
    """Add NaN for figures that callbacks may monitor, and return the result of ``offered``.

    With several ranks, nothing is added; a warning names each callback that monitors a figure.

    Args:
        trainer: the trainer.
        tag_prefix: the user's setting ``tag_prefix``.
    """
    if (logged := offered(trainer)) is not None:
        for tag in _MONITORED + (_MONITORED_ON_GPU if loop.used_gpus(trainer) else ()):
            logged.setdefault(tag_prefix + tag, torch.tensor(math.nan))
        return logged
    for other in trainer.callbacks:
        monitored = getattr(other, "monitor", None)
        if monitored in own_tags(tag_prefix):
            loop.warn(
                f"{type(other).__name__} monitors {monitored!r}, which callbacks do not receive "
                "if several processes train; monitor a metric of the model"
            )
    return None


def offer(logged: Logged | None, scalars: Mapping[str, float]) -> None:
    """Add the newest figures to the dictionary that ``offered`` has returned.

    One tensor is created and divided, because each new tensor takes 2 us.
    """
    if logged is not None:
        logged.update(zip(scalars, torch.tensor(list(scalars.values())).unbind(), strict=True))

"""What the model has logged in Lightning, reported once, when Lightning itself has read it.

::

    on_validation_start                 these were there before
    on_validation_end                     what has changed: metrics of the validation
    on_train_epoch_end
    on_train_epoch_start | on_train_end   what has changed since it was reported: the epoch's others

``callback_metrics`` holds the same tensor until a metric is computed anew. At these two moments
Lightning has just read them for its loggers and its progress bar, and nothing is computed over
ranks any more. If it has neither, only what is in the host's memory is read: to read more would
be to wait for the device.
"""

from typing import Any

import torch

Logged = dict[str, Any]


class LoggedMetrics:
    """Numbers of ``trainer.callback_metrics`` that are new."""

    def __init__(self) -> None:
        self._told: Logged = {}
        self._before: Logged = {}
        self._of_validation: set[str] = set()
        self._epoch: int | None = None

    def begin_validation(self, trainer: Any) -> None:
        """Metrics that are logged from here on are of a validation."""
        self._before = dict(trainer.callback_metrics)

    def of_validation(self, trainer: Any) -> dict[str, float]:
        """The metrics of the validation that has ended."""
        new = _changed(trainer, self._before)
        self._of_validation |= set(new)
        return _numbers(trainer, new)

    def end_epoch(self, trainer: Any) -> None:
        """An epoch of training is over, but for what other callbacks and the model log of it."""
        self._epoch = trainer.current_epoch

    def of_epoch(self, trainer: Any) -> tuple[dict[str, float], int | None]:
        """The other metrics of the epoch that has ended, and its number."""
        epoch, self._epoch = self._epoch, None
        if epoch is None:
            return {}, None
        new = _changed(trainer, self._told)
        self._told = dict(trainer.callback_metrics)
        mine = {name: value for name, value in new.items() if name not in self._of_validation}
        return _numbers(trainer, mine), epoch


def _changed(trainer: Any, before: Logged) -> Logged:
    """The metrics that were computed again."""
    return {k: v for k, v in trainer.callback_metrics.items() if v is not before.get(k)}


def _numbers(trainer: Any, logged: Logged) -> dict[str, float]:
    was_read = bool(trainer.loggers) or trainer.progress_bar_callback is not None
    return {
        name: value.item()
        for name, value in logged.items()
        # Not a tensor of a distributed kind, which all ranks must read together.
        if type(value) is torch.Tensor and value.numel() == 1 and (was_read or value.is_cpu)
    }

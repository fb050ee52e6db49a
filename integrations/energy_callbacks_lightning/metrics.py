"""What the model has logged in Lightning, told once, when Lightning itself has read it.

::

    on_validation_start                 these were there before
    on_validation_end                     what has changed: metrics of the validation
    on_train_epoch_end
    on_train_epoch_start | on_train_end   what has changed since it was told: the epoch's others

``callback_metrics`` holds the same tensor until a metric is computed anew. At these two moments
Lightning has just read them for its loggers, and nothing is computed over ranks any more.
"""

from typing import Any

import torch

Logged = dict[str, Any]


class LoggedMetrics:
    """Numbers of ``trainer.callback_metrics`` that are new."""

    def __init__(self) -> None:
        self._told: Logged = {}
        self._before: Logged = {}
        self._epoch: int | None = None

    def begin_validation(self, trainer: Any) -> None:
        """What is logged from here on is of a validation."""
        self._before = dict(trainer.callback_metrics)

    def of_validation(self, trainer: Any) -> dict[str, float]:
        """What a validation has found that is over."""
        return self._tell(trainer, self._before)

    def end_epoch(self, trainer: Any) -> None:
        """An epoch of training is over, but for what other callbacks and the model log of it."""
        self._epoch = trainer.current_epoch

    def of_epoch(self, trainer: Any) -> tuple[dict[str, float], int | None]:
        """What else has been logged of the epoch that is over, and its number."""
        epoch, self._epoch = self._epoch, None
        return ({} if epoch is None else self._tell(trainer, self._told)), epoch

    def _tell(self, trainer: Any, before: Logged) -> dict[str, float]:
        new = {k: v for k, v in trainer.callback_metrics.items() if v is not before.get(k)}
        self._told = self._told | new
        return {
            name: value.item()
            for name, value in new.items()
            if isinstance(value, torch.Tensor) and value.numel() == 1
        }

"""The time that checkpoints take: Lightning tells that one begins, not that it is over."""

from collections.abc import Callable
from typing import Any

from energy_callbacks.meter import EnergyMeter


class SaveWatch:
    """Names the time of every ``trainer.save_checkpoint`` of a training.

    Args:
        meter: is told.
    """

    def __init__(self, meter: EnergyMeter) -> None:
        self._meter = meter
        self._trainer: Any = None
        self._before: Any = None

    def begin(self, trainer: Any) -> None:
        """From now on."""
        self._trainer, self._before = trainer, vars(trainer).get("save_checkpoint")
        trainer.save_checkpoint = _Timed(trainer.save_checkpoint, self._meter)

    def end(self) -> None:
        """Leave the trainer as it was."""
        if self._trainer is not None and self._before is not None:
            self._trainer.save_checkpoint = self._before
        elif self._trainer is not None:
            vars(self._trainer).pop("save_checkpoint", None)
        self._trainer = self._before = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no training."""
        return {"_meter": self._meter, "_trainer": None, "_before": None}


class _Timed:
    """Saves as before, and tells the meter how long it took."""

    def __init__(self, save: Callable[..., Any], meter: EnergyMeter) -> None:
        self._save = save
        self._meter = meter

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        start_s = self._meter.now_s()
        try:
            return self._save(*args, **kwargs)
        finally:
            self._meter.window("checkpoint", start_s, self._meter.now_s())
            self._meter.mark("batch_done")  # what comes next waits for data

    def __reduce__(self) -> tuple[Any, ...]:
        """In a copy of the trainer it is what it was before."""
        return _itself, (self._save,)


def _itself(save: Callable[..., Any]) -> Callable[..., Any]:
    return save

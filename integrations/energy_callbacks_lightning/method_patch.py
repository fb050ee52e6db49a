"""Replaces methods to detect events that have no hook: saving a checkpoint, fetching a batch."""

import functools
from collections.abc import Callable
from typing import Any

from energy_callbacks.accounting.step_marks import READY, StepMarks
from energy_callbacks.meter import EnergyMeter


class MethodPatch:
    """Replaces one method of one object during a training.

    Args:
        name: name of the method.
        around: returns the replacement; its arguments are the original method and the meter.
        meter: receives the events.
    """

    def __init__(
        self,
        name: str,
        around: Callable[[Callable[..., Any], EnergyMeter], "_PatchedMethod"],
        meter: EnergyMeter,
    ) -> None:
        self._name = name
        self._around = around
        self._meter = meter
        self._owner: Any = None
        self._before: Any = None

    def begin(self, owner: Any) -> None:
        """Replace the method of ``owner``."""
        self._owner, self._before = owner, vars(owner).get(self._name)
        setattr(owner, self._name, self._around(getattr(owner, self._name), self._meter))

    def end(self) -> None:
        """Restore the method that was replaced, if any."""
        if self._owner is not None and self._before is not None:
            setattr(self._owner, self._name, self._before)
        elif self._owner is not None:
            vars(self._owner).pop(self._name, None)
        self._owner = self._before = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the objects of a running training."""
        return vars(self) | {"_owner": None, "_before": None}


class _PatchedMethod(functools.partial[Any]):
    """Replacement of a method, which is its first argument; a copy or pickle is the original.

    Calling a ``partial`` takes less time than calling an object with a method ``__call__``.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.args[0],)


def _itself(method: Callable[..., Any]) -> Callable[..., Any]:
    return method


def timed_save(save: Callable[..., Any], meter: EnergyMeter) -> _PatchedMethod:
    """Return a replacement of ``trainer.save_checkpoint`` that reports when it begins and ends."""
    return _PatchedMethod(_save, save, meter, meter._step_marks())


def _save(
    save: Callable[..., Any], meter: EnergyMeter, marks: StepMarks, /, *args: Any, **kwargs: Any
) -> Any:
    """Save the checkpoint, and assign the time of saving to the phase ``checkpoint``."""
    start_s = meter.now_s()
    try:
        return save(*args, **kwargs)
    finally:
        meter.window("checkpoint", start_s, meter.now_s())
        marks.done()  # after a checkpoint the loop waits for data


def timed_fetch(convert: Callable[..., Any], meter: EnergyMeter) -> _PatchedMethod:
    """Return a replacement of ``precision_plugin.convert_input`` that reports a fetched batch.

    ``convert_input`` is the first method that Lightning calls after it has fetched a batch. After
    it, Lightning copies the batch to the device. A copy from unpinned memory waits for all pending
    work of the device. This wait must not count as waiting for data, so data is marked as ready
    before the copy.
    """
    return _PatchedMethod(_fetch, convert, meter._step_marks())


def _fetch(convert: Callable[..., Any], marks: StepMarks, data: Any) -> Any:
    """Mark that data is ready, and call the original method; see ``step_marks`` for the reason."""
    marks.append((READY, marks.now_s(), None, None, None))
    return convert(data)

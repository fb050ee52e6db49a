"""Replaces methods to detect events that have no hook: saving a checkpoint, fetching a batch."""

import functools
from collections.abc import Callable
from typing import Any

from energy_callbacks.accounting.step_marks import FETCH, READY, StepMarks
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
        """Replace the method of ``owner``, if it has one of this name."""
        if (method := getattr(owner, self._name, None)) is not None:
            self._owner, self._before = owner, vars(owner).get(self._name)
            setattr(owner, self._name, self._around(method, self._meter))

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


def _timed_save(save: Callable[..., Any], meter: EnergyMeter) -> _PatchedMethod:
    """Return a replacement of ``trainer.save_checkpoint`` that reports when it begins and ends."""
    return _PatchedMethod(_save, save, meter)


def _save(save: Callable[..., Any], meter: EnergyMeter, /, *args: Any, **kwargs: Any) -> Any:
    """Save the checkpoint, and assign the time of saving to the phase ``checkpoint``."""
    start_s = meter._begin_window()
    try:
        return save(*args, **kwargs)
    finally:
        meter.window("checkpoint", start_s, meter.now_s())


def _waiting(method: Callable[..., Any], meter: EnergyMeter) -> _PatchedMethod:
    return _PatchedMethod(_wait, method, meter._step_marks())


def _wait(method: Callable[..., Any], marks: StepMarks, /, *args: Any) -> Any:
    """Call the original method, and report that the training waits for data meanwhile."""
    marks.done()
    try:
        return method(*args)
    finally:
        marks.ready()


def _marked(kind: int, method: Callable[..., Any], meter: EnergyMeter) -> _PatchedMethod:
    return _PatchedMethod(_mark, method, kind, meter._step_marks())


def _mark(method: Callable[..., Any], kind: int, marks: StepMarks) -> Any:
    """Report the event, and call the original method; see ``step_marks`` for the reason."""
    marks.append((kind, marks.now_s(), None, None, None))
    return method()


class TrainerPatches:
    """Replaces methods of a trainer and of its epoch loop during a training.

    The training waits for data while ``on_run_start`` creates the iterator of an epoch, and from
    ``_on_before_fetch`` to ``_on_after_fetch``, which Lightning calls for its own profiler (2.4 to
    2.6). What comes before a batch is fetched must not count: other callbacks, and with several
    ranks an exchange that waits until the GPU has done its work. Nor must the copy to the device
    that comes afterwards: if memory is not pinned, it waits for the same.

    Args:
        meter: receives the events.
    """

    def __init__(self, meter: EnergyMeter) -> None:
        self._saves = MethodPatch("save_checkpoint", _timed_save, meter)
        self._waits = (
            MethodPatch("on_run_start", _waiting, meter),
            MethodPatch("_on_before_fetch", functools.partial(_marked, FETCH), meter),
            MethodPatch("_on_after_fetch", functools.partial(_marked, READY), meter),
        )

    def begin(self, trainer: Any) -> None:
        """Replace the methods."""
        self._saves.begin(trainer)
        for patch in self._waits:
            patch.begin(trainer.fit_loop.epoch_loop)

    def end(self) -> None:
        """Restore the methods that were replaced."""
        for patch in (self._saves, *self._waits):
            patch.end()

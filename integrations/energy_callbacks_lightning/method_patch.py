"""Replaces methods to detect events that have no hook: saving a checkpoint, fetching a batch."""

from collections.abc import Callable
from typing import Any

from energy_callbacks.meter import EnergyMeter


class MethodPatch:
    """Replaces one method of one object during a training.

    Args:
        name: name of the method.
        around: class of the replacement; its arguments are the original method and the meter.
        meter: receives the events.
    """

    def __init__(self, name: str, around: "type[_PatchedMethod]", meter: EnergyMeter) -> None:
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


class _PatchedMethod:
    """Replacement of a method. A copy or pickle of it is the original method."""

    def __init__(self, method: Callable[..., Any], meter: EnergyMeter) -> None:
        self._method = method
        self._meter = meter
        self._marks = meter._step_marks()

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._method,)


class TimedSave(_PatchedMethod):
    """Replaces ``trainer.save_checkpoint``, and reports when it begins and ends."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Save the checkpoint, and assign the time of saving to the phase ``checkpoint``."""
        start_s = self._meter.now_s()
        try:
            return self._method(*args, **kwargs)
        finally:
            self._meter.window("checkpoint", start_s, self._meter.now_s())
            self._marks.done()  # after a checkpoint the loop waits for data


class TimedFetch(_PatchedMethod):
    """Replaces ``precision_plugin.convert_input``, to detect that a batch has been fetched.

    ``convert_input`` is the first method that Lightning calls after it has fetched a batch. After
    it, Lightning copies the batch to the device. A copy from unpinned memory waits for all pending
    work of the device. This wait must not count as waiting for data, so data is marked as ready
    before the copy.
    """

    def __init__(self, method: Callable[..., Any], meter: EnergyMeter) -> None:
        super().__init__(method, meter)
        self._ready = self._marks.ready

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Mark that data is ready, and call the original method."""
        self._ready()
        return self._method(*args, **kwargs)


def _itself(method: Callable[..., Any]) -> Callable[..., Any]:
    return method

"""What Lightning has no hook for: how long a checkpoint takes, and when a batch was fetched."""

from collections.abc import Callable
from typing import Any

from energy_callbacks.meter import EnergyMeter


class MethodPatch:
    """Hears every call of one method of one object, for the time of a training.

    Args:
        name: of the method.
        around: makes what stands in its place.
        meter: gets the events.
    """

    def __init__(self, name: str, around: "type[_PatchedMethod]", meter: EnergyMeter) -> None:
        self._name = name
        self._around = around
        self._meter = meter
        self._owner: Any = None
        self._before: Any = None

    def begin(self, owner: Any) -> None:
        """From now on."""
        self._owner, self._before = owner, vars(owner).get(self._name)
        setattr(owner, self._name, self._around(getattr(owner, self._name), self._meter))

    def end(self) -> None:
        """Leave the object as it was."""
        if self._owner is not None and self._before is not None:
            setattr(self._owner, self._name, self._before)
        elif self._owner is not None:
            vars(self._owner).pop(self._name, None)
        self._owner = self._before = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no training."""
        return vars(self) | {"_owner": None, "_before": None}


class _PatchedMethod:
    """In a method's place; in a copy of its object it is the method again."""

    def __init__(self, method: Callable[..., Any], meter: EnergyMeter) -> None:
        self._method = method
        self._meter = meter

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._method,)


class TimedSave(_PatchedMethod):
    """``trainer.save_checkpoint``: its time has a name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Save as before, and report how long it took."""
        start_s = self._meter.now_s()
        try:
            return self._method(*args, **kwargs)
        finally:
            self._meter.window("checkpoint", start_s, self._meter.now_s())
            self._meter.mark("batch_done")  # what comes next waits for data


class TimedFetch(_PatchedMethod):
    """``precision_plugin.convert_input``: the first that is done with a batch from the loader.

    Its copy to the device comes next, and from memory that is not pinned a copy waits for all
    work that the device still has: that is no waiting for data.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The batch is there."""
        self._meter.mark("data_ready")
        return self._method(*args, **kwargs)


def _itself(method: Callable[..., Any]) -> Callable[..., Any]:
    return method

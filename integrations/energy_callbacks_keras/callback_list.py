"""The other callbacks: our place before them, TensorBoard's writer, which values they see.

Keras gives a callback neither the list nor the others in it. What ours adds to ``logs`` reaches all
that stand behind it in Keras' own list of the call. Three kinds must not see it: TensorBoard and
the progress bar would repeat it under names of their own, and a callback that monitors a figure
would take NaN, the value before anything was measured, for the best one forever. Filters before
and behind such a callback hide it.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import keras

from energy_callbacks.accounting.metrics.scalars import expected_tags
from energy_callbacks.core.active_call import find_callback_list
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_keras.checkpoints import ears

_OURS: Final = frozenset(expected_tags(gpu=True, tokens=True, waits=True))
_BLIND: Final = (keras.callbacks.TensorBoard, keras.callbacks.ProgbarLogger)

Logs = dict[str, Any]


class OtherCallbacks:
    """Keras' own list of the callbacks of one call, found on the stack of one of its hooks.

    Attributes:
        all: that list itself; empty if it was not found.

    Args:
        member: our callback.
    """

    def __init__(self, member: keras.callbacks.Callback) -> None:
        self._member = member
        self.all: list[Any] = find_callback_list(member) or []
        self._curtains: list[keras.callbacks.Callback] = []

    @property
    def tensorboard(self) -> Any:
        """The first TensorBoard callback; ``None`` if there is none."""
        found = (one for one in self.all if isinstance(one, keras.callbacks.TensorBoard))
        return next(found, None)

    def lead(self) -> bool:
        """Move before all others but those of our kind; whether we stood there already.

        Safe while Keras iterates over the list: no callback behind ours moves.
        """
        for one in self.all:
            if one is self._member:
                return True
            if not isinstance(one, type(self._member)):
                self.all.remove(self._member)
                self.all.insert(0, self._member)
                return False
        return False

    def draw_curtains(self, meter: EnergyMeter) -> None:
        """Hide our figures from those who must not see them, and listen to those that save.

        Only if ``lead`` was true.
        """
        if self._curtains:
            return
        for one in tuple(self.all):
            hides = _hides_from(one)
            for pair in (_pair(hides) if hides else (), ears(one, meter)):
                if pair:
                    at = self.all.index(one)
                    self.all[at : at + 1] = [pair[0], one, pair[1]]
                    self._curtains += pair

    def add_rear(self, act: Callable[[], None]) -> None:
        """Do something once all callbacks have had the hook that is being called now."""

        def last() -> None:
            self.all.remove(rear)
            act()

        rear = _LastCallback(last)
        self.all.append(rear)

    def remove_curtains(self) -> None:
        """Leave the list as it was, but for our place."""
        self.all[:] = [one for one in self.all if one not in self._curtains]
        self._curtains = []


def _hides_from(sibling: Any) -> Callable[[float], bool] | None:
    """Which of our values another callback must not see; ``None`` if it may see all."""
    if isinstance(sibling, _BLIND):
        return lambda _: True
    monitor = getattr(sibling, "monitor", None)
    if isinstance(monitor, str) and monitor in _OURS:
        return math.isnan
    return None


def _pair(hides: Callable[[float], bool]) -> "tuple[_LogFilter, _LogFilter]":
    held: Logs = {}

    def hide(logs: Logs) -> None:
        for tag in _OURS.intersection(logs):
            if hides(logs[tag]):
                held[tag] = logs.pop(tag)

    def show(logs: Logs) -> None:
        logs.update(held)
        held.clear()

    return _LogFilter(hide), _LogFilter(show)


class _LogFilter(keras.callbacks.Callback):
    """No hook of batches, which would end Keras' asynchronous dispatch."""

    def __init__(self, act: Callable[[Logs], None]) -> None:
        super().__init__()
        self._act = act

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            self._act(logs)


class _LastCallback(keras.callbacks.Callback):
    """Stands last for the rest of one hook."""

    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self._act = act

    def on_test_end(self, logs: Logs | None = None) -> None:
        self._act()

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._act()

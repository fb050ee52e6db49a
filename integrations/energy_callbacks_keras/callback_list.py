"""Finds the other callbacks of a call such as ``fit``, and hides our figures from some of them.

Keras does not pass the list of callbacks to a callback. Figures that our callback adds to ``logs``
reach all callbacks after it. A filter before another callback removes figures from ``logs``, and a
filter after that callback adds them again. Filters hide

- all figures from TensorBoard and the progress bar, which would repeat them under other names;
- figures that are NaN (before the first measurement) from each callback that monitors a figure:
  such a callback would store NaN as the best value, and no later value would replace it, because
  no number is less or greater than NaN.
"""

import math
from collections.abc import Callable
from typing import Any, Final

import keras

from energy_callbacks.accounting.metrics.tags import own_tags
from energy_callbacks.core.active_call import find_callback_list
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_keras.checkpoints import save_timers, saves_within_epochs

_BLIND: Final = (keras.callbacks.TensorBoard, keras.callbacks.ProgbarLogger)

Logs = dict[str, Any]


class OtherKerasCallbacks:
    """Keras' list of the callbacks of one call, found on the stack inside a hook.

    Args:
        member: our callback.

    Attributes:
        all: Keras' own list, including our callback; empty if the list was not found.
    """

    def __init__(self, member: keras.callbacks.Callback) -> None:
        self._member = member
        self.all: list[Any] = find_callback_list(member) or []
        self._filters: list[keras.callbacks.Callback] = []
        self._timers: list[keras.callbacks.Callback] = []

    @property
    def tensorboard(self) -> Any:
        """The first TensorBoard callback; ``None`` if there is none."""
        found = (one for one in self.all if isinstance(one, keras.callbacks.TensorBoard))
        return next(found, None)

    def lead(self) -> bool:
        """Make sure that our callback comes before all callbacks of other classes.

        This is safe while Keras iterates over the list: callbacks after ours keep their places, so
        that Keras skips none and calls none twice.

        Returns:
            Whether our callback already came before them; ``False`` if the list was not found.
        """
        for one in self.all:
            if one is self._member:
                return True
            if not isinstance(one, type(self._member)):
                self.all.remove(self._member)
                self.all.insert(0, self._member)
                return False
        return False

    def add_timers(self, meter: EnergyMeter) -> None:
        """Measure callbacks that save checkpoints within epochs.

        Call this method and ``add_filters`` only if ``lead`` has returned ``True``. Otherwise
        Keras, which is iterating over the list, would call some callbacks twice.
        """
        if not self._timers:
            for one in tuple(self.all):
                if saves_within_epochs(one):
                    self._timers += self._put_around(one, save_timers(one, meter))

    def add_filters(self, meter: EnergyMeter) -> None:
        """Hide our figures from some callbacks, and measure callbacks that save after an epoch.

        The callbacks that this adds are needed at the end of an epoch only. Within an epoch, each
        would take about two microseconds per batch, although its hooks are empty.
        """
        ours = own_tags(meter.config.tag_prefix)
        for one in tuple(self.all):
            if hides := _hides_from(one, ours):
                self._filters += self._put_around(one, _pair(hides, ours))
            if not saves_within_epochs(one):
                self._filters += self._put_around(one, save_timers(one, meter))

    def _put_around(self, one: Any, pair: tuple[Any, ...]) -> tuple[Any, ...]:
        if pair:
            at = self.all.index(one)
            self.all[at : at + 1] = [pair[0], one, pair[1]]
        return pair

    def call_last(self, act: Callable[[], None]) -> None:
        """Call ``act`` when all callbacks have received the current event.

        The event is the end of an epoch, an evaluation or a prediction.
        """

        def last(*_: Any) -> None:
            self.all.remove(callback)
            act()

        events = ("on_epoch_end", "on_test_end", "on_predict_end")
        callback = keras.callbacks.LambdaCallback(**dict.fromkeys(events, last))
        self.all.append(callback)

    def remove_filters(self) -> None:
        """Remove what ``add_filters`` has added; call this as the last one of an event."""
        self.all[:] = [one for one in self.all if one not in self._filters]
        self._filters = []

    def remove_all(self) -> None:
        """Remove filters and checkpoint timers from the list; our callback keeps its place."""
        self.remove_filters()
        self.all[:] = [one for one in self.all if one not in self._timers]
        self._timers = []


def _hides_from(other: Any, ours: frozenset[str]) -> Callable[[float], bool] | None:
    """Return the condition for hiding a value from ``other``; ``None`` if nothing is hidden."""
    if isinstance(other, _BLIND):
        return lambda _: True
    monitor = getattr(other, "monitor", None)
    if isinstance(monitor, str) and monitor in ours:
        return math.isnan
    return None


def _pair(hides: Callable[[float], bool], ours: frozenset[str]) -> "tuple[_LogFilter, _LogFilter]":
    """Return two filters: the first one hides our figures, the second one shows them again."""
    held: Logs = {}

    def hide(logs: Logs) -> None:
        for tag in ours.intersection(logs):
            if hides(logs[tag]):
                held[tag] = logs.pop(tag)

    def show(logs: Logs) -> None:
        logs.update(held)
        held.clear()

    return _LogFilter(hide), _LogFilter(show)


class _LogFilter(keras.callbacks.Callback):
    """Filters the logs of epochs.

    It has no hook for batches: the logs of batches contain no figures of ours, and such a hook
    takes time at every batch.
    """

    def __init__(self, act: Callable[[Logs], None]) -> None:
        super().__init__()
        self._act = act

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            self._act(logs)

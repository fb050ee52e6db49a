"""Saves function calls between Lightning and our callback at every step of a training.

Lightning calls six hooks of every callback in each step, whether the callback defines them or not,
and opens a context of its profiler for each. It skips hooks that are not callable
(``_call_callback_hooks`` in Lightning 2.4 to 2.6). So during a training, our callback has instance
attributes with the names of the five hooks that it does not use, whose value is ``None``.

Hooks that a subclass overrides are left as they are, and so are hooks that somebody has replaced in
the instance.
"""

from collections.abc import Callable
from typing import Any, Final

from energy_callbacks_lightning.bases import bases

_UNUSED: Final = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
)


class HookShortcuts:
    """Replaces hooks in a callback while it trains.

    Args:
        kind: class of the callback that defines ``on_train_batch_end``.
    """

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self._names: list[str] = []

    def begin(self, callback: Any, on_train_batch_end: Callable[..., None]) -> None:
        """Replace hooks.

        Args:
            callback: the callback.
            on_train_batch_end: function that the hook of this name calls.
        """
        hooks: dict[str, Any] = dict.fromkeys(_UNUSED)
        hooks["on_train_batch_end"] = on_train_batch_end
        for name, hook in hooks.items():
            originals = [getattr(one, name) for one in (*bases, self._kind)]
            if getattr(type(callback), name) in originals and name not in vars(callback):
                vars(callback)[name] = hook
                self._names.append(name)

    def end(self, callback: Any) -> None:
        """Restore the hooks that were replaced."""
        for name in self._names:
            vars(callback).pop(name, None)
        self._names = []

"""One profiler of PyTorch at a time: a process has but one, and two end each other.

If the training makes a profiler of its own while a window of ours is open, Kineto is reset
under ours, and to end ours then ends the process (torch 2.13). So ours ends before.
"""

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

_WINDOW: Final = threading.Lock()
_kept: list[Any] = []


def take() -> bool:
    """Whether the process's profiler is now the caller's, until ``give``; does not wait."""
    return _WINDOW.acquire(blocking=False)


def is_foreign() -> bool:
    """Whether another profiler is running or waiting for its turn."""
    if _WINDOW.locked():
        return False
    torch: Any = sys.modules["torch"]
    if torch.autograd._profiler_enabled():  # noqa: SLF001 - it has no public name
        return True
    if not _has_other(torch.profiler.profile):
        return False
    gc.collect()  # one that is over stays in a cycle
    return _has_other(torch.profiler.profile)


def _has_other(profile: type) -> bool:
    kinds = map(type, gc.get_objects())  # isinstance would wake lazy objects
    return any(issubclass(kind, profile) and kind.__module__ != __name__ for kind in kinds)


def profile(**settings: Any) -> Any:
    """A ``torch.profiler.profile`` of ours, recognised by the module of its class."""
    import torch.profiler

    return type("profile", (torch.profiler.profile,), {"__module__": __name__})(**settings)


def watch(leave: Callable[[], None]) -> None:
    """Until ``give``: call ``leave`` before another profiler is made; once."""
    kind: Any = sys.modules["torch.autograd.profiler"].profile
    made = kind.__init__
    _kept[:] = [kind, made]

    def leaving(other: Any, *args: Any, **settings: Any) -> None:
        if _kept and _kept[1] is made:
            leave()
            give()
        made(other, *args, **settings)

    kind.__init__ = leaving


def give() -> None:
    """The window is over; harmless if none is open."""
    if _kept:
        kind, made = _kept
        kind.__init__ = made
        _kept.clear()
    if _WINDOW.locked():
        _WINDOW.release()

"""One profiler of PyTorch at a time: a process has but one, whoever starts it."""

import threading
from typing import Final

_WINDOW: Final = threading.Lock()


def take() -> bool:
    """Whether the process's profiler is now the caller's, until ``give``; waits for nobody."""
    return _WINDOW.acquire(blocking=False)


def give() -> None:
    """The window is over; harmless where none is open."""
    if _WINDOW.locked():
        _WINDOW.release()

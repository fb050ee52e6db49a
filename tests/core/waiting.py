"""Waits for what another thread or process does."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(find: Callable[[], T | None], timeout_s: float = 300.0) -> T:
    """Wait until a function returns a true value, and return that value.

    Raises:
        AssertionError: after ``timeout_s`` seconds. On a busy machine, all takes longer than usual,
            so a limit that is part of what is tested should be measured differently.
    """
    end_s = time.monotonic() + timeout_s
    while not (found := find()):
        assert time.monotonic() < end_s, f"not true after {timeout_s:g} s"
        time.sleep(0.01)
    return found


def until_ended(thread_name: str) -> None:
    """Wait until the threads of a name have ended."""
    for thread in threading.enumerate():
        if thread.name == thread_name:
            thread.join()

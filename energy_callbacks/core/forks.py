"""Counts forks, so that an object knows that it is a copy in a forked child; locks for that case.

An object compares ``generation`` with the value of ``generation`` at the object's creation.
Comparing process ids would also work, but the system call of ``os.getpid()`` takes 7 us with cold
caches, and the comparison runs at every step of the training.
"""

import os
import threading
from collections.abc import Callable

generation = 0
"""Number of forks between the process that first imported this module and this process."""


def _next_generation() -> None:
    global generation  # noqa: PLW0603 - one counter per process
    generation += 1


def call_in_children(function: Callable[[], None]) -> None:
    """Call a function in each forked child, before the child's own code runs."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


call_in_children(_next_generation)


class ProcessLock:
    """A re-entrant lock that is free in a forked child, even if a thread of the parent held it."""

    def __init__(self) -> None:
        self._renew()
        call_in_children(self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

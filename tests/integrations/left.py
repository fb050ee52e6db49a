"""What a training has left in this process: threads of ours, and processes.

Those that are about to end may need a moment for that, so each is waited for.
"""

import multiprocessing
import threading
from collections.abc import Iterable
from typing import Final

_MOMENT_S: Final = 60.0


def threads_left(before: Iterable[threading.Thread]) -> list[str]:
    """Return the names of our threads that began after ``before`` and do not end."""
    ours = [t for t in set(threading.enumerate()) - set(before) if "energy_callbacks" in t.name]
    for thread in ours:
        thread.join(_MOMENT_S)
    return [thread.name for thread in ours if thread.is_alive()]


def children_left() -> int:
    """Return the number of child processes of ``multiprocessing`` that do not end."""
    for child in multiprocessing.active_children():
        child.join(_MOMENT_S)
    return len(multiprocessing.active_children())

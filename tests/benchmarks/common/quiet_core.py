"""Finds the processor core on which other load of the machine disturbs a loop least.

A loop bound by its launches runs as fast as its core: on a virtual machine rounds of half a second
vary by 7 to 15 %, because neighbours share cores and the loop moves between them. Only the calling
thread is bound; existing threads stay free.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Final

from tests.benchmarks.common.loops import Loop

_STEPS: Final = 20


@contextlib.contextmanager
def quiet_core(loop: Loop) -> Iterator[Callable[[], None]]:
    """Yield a function that binds this thread to the quietest core; at the end it is free again."""
    if not hasattr(os, "sched_setaffinity"):
        yield lambda: None
        return
    allowed = os.sched_getaffinity(0)

    def seconds_on(core: int) -> float:
        os.sched_setaffinity(0, {core})
        return loop.seconds(_STEPS)

    def bind() -> None:
        os.sched_setaffinity(0, {min(allowed, key=seconds_on)})

    try:
        yield bind
    finally:
        os.sched_setaffinity(0, allowed)

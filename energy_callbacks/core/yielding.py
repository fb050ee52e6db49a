"""Divides the work of background threads into short pieces, between which other threads can run.

Only one thread at a time can run Python code. A thread that needs the interpreter waits until the
thread that holds it waits for something itself, or for 5 ms (``sys.getswitchinterval``). Background
threads therefore pause by themselves after a much shorter time.
"""

import math
import threading
import time
from collections.abc import Iterator
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Element = TypeVar("Element", bound=np.generic)

# Time after which a background thread pauses, s. The work between two calls of ``yield_if_due``
# adds to it; together they should be at most 1 ms.
_PIECE_S: Final = 0.00025
# Length of a pause, s. Another thread that waited for the interpreter ran in all pauses of this
# length, but only in 80 % of the calls of ``time.sleep(0)``, which often takes the interpreter back
# before the other thread has woken up (Python 3.11, two cores without other programs).
_PAUSE_S: Final = 0.00005


class _Piece(threading.local):
    """Moment at which the present piece of work began; infinite on threads that do not pause."""

    began_s = math.inf


_piece = _Piece()


def begin() -> None:
    """Make this thread pause in ``yield_if_due``; called before each piece of background work."""
    _piece.began_s = time.monotonic()


def leave() -> None:
    """Make this thread no longer pause in ``yield_if_due``."""
    _piece.began_s = math.inf


def yield_if_due() -> None:
    """Let other threads run if this background thread has run for some time without a pause.

    On other threads, such as that of the training, this does nothing. The caller must not hold a
    lock for which the training could wait.
    """
    if time.monotonic() - _piece.began_s > _PIECE_S:
        pause()


def pause() -> None:
    """Let other threads run, whatever the thread."""
    time.sleep(_PAUSE_S)
    begin()


def pieces(values: NDArray[Element], size: int) -> Iterator[NDArray[Element]]:
    """Yield consecutive parts of ``values`` with at most ``size`` elements, and pause in between.

    If there are no elements, one empty part is yielded.
    """
    for start in range(0, max(len(values), 1), size):
        yield_if_due()
        yield values[start : start + size]


class YieldingLock:
    """A re-entrant lock, before which background threads call ``yield_if_due``."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        yield_if_due()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

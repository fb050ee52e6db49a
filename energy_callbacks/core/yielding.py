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
# After a long pause, the next piece may take this share of the pause. A C function that holds the
# interpreter for 0.1 s makes each pause as long, so ten pauses would take a second. Pauses of 5 ms,
# as in a training that runs Python code, do not make pieces longer.
_SHARE: Final = 0.05


class _Piece(threading.local):
    """The present piece of work of a thread.

    Attributes:
        began_s: moment at which it began; infinite on threads that do not pause.
        length_s: time after which the thread pauses.
    """

    began_s = math.inf
    length_s = _PIECE_S


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
    if time.monotonic() - _piece.began_s > _piece.length_s:
        pause()


def pause() -> None:
    """Let other threads run, whatever the thread."""
    paused_s = time.monotonic()
    time.sleep(_PAUSE_S)
    begin()
    _piece.length_s = max(_SHARE * (_piece.began_s - paused_s), _PIECE_S)


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

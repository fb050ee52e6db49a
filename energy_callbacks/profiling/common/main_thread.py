"""Runs calls on the main thread between two bytecodes, requested on any thread.

CPython keeps a queue of such calls (``Py_AddPendingCall``): they are made after a call, at a
function's entry, at a loop's jump back, and by the main thread only (3.11 to 3.13,
``make_pending_calls`` in ``ceval_gil.c``). There is no signal and no timer.

What is queued is ``PyObject_IsTrue`` of an object of ours, whose ``__bool__`` makes the call. That
is a C function with the type that the queue wants, so an exception that a handler of a signal
raises in ``__bool__`` reaches the user's code; through a callback of ctypes it would be printed
and lost.
"""

import ctypes
import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from energy_callbacks.core import forks
from energy_callbacks.core.guard import pass_on_signals

logger = logging.getLogger("energy_callbacks")


class Pending:
    """A call that can be asked for again and again; it is kept permanently.

    Args:
        job: called with the frame that it interrupts between two bytecodes; ``None`` for nothing.

    Attributes:
        is_lost: the user's code was as deep as it may be, so the call was not made.

    Raises:
        RuntimeError: if this interpreter cannot.
    """

    def __init__(self, job: Callable[[FrameType], None]) -> None:
        self.job: Callable[[FrameType], None] | None = job
        self.is_lost = False
        try:
            api: Any = ctypes.pythonapi
            add, truth = api.Py_AddPendingCall, api.PyObject_IsTrue
        except AttributeError as error:
            raise RuntimeError(
                f"this interpreter cannot be asked for its stack: {sys.implementation.name} has "
                "no Py_AddPendingCall; use CPython"
            ) from error
        add.argtypes, add.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
        api.Py_IncRef(ctypes.py_object(self))  # a request may be served after all else is gone
        self._add = add
        self._function = ctypes.cast(truth, ctypes.c_void_p)
        self._argument = ctypes.c_void_p(id(self))

    def ask(self) -> bool:
        """Queue the call; ``False`` if 32 calls of others are waiting."""
        return bool(self._add(self._function, self._argument) == 0)

    def __bool__(self) -> bool:
        try:
            if self.job is not None:
                self.job(sys._getframe(1))  # noqa: SLF001 - of this thread
        except RecursionError:
            self.is_lost = True
        return False


def on_thread(thread: int, job: Callable[[], None]) -> bool:
    """Make a call on a thread: now if it is this one, soon if it is the main one.

    Args:
        thread: its identity, of ``threading.get_ident``.
        job: the call; made soon, its errors are logged.

    Returns:
        Whether the call was made or will be; ``False`` on any other thread.
    """
    if thread == threading.get_ident():
        job()
        return True
    return thread == threading.main_thread().ident and _soon(job)


def _soon(job: Callable[[], None]) -> bool:
    generation = forks.generation

    def make(_: FrameType) -> None:
        pending.job = None
        if forks.generation != generation:
            return
        try:
            job()
        except Exception:
            pass_on_signals()
            logger.warning("a call on the main thread failed", exc_info=True)

    try:
        pending = Pending(make)
    except RuntimeError:
        return False
    return pending.ask()

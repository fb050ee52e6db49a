"""Lets any thread run a function on the main thread, between two bytecode instructions.

CPython has a queue of pending calls (``Py_AddPendingCall``). The main thread makes these calls when
it enters a Python function, after it has called a function, and when a loop jumps back (CPython
3.11 to 3.13, ``make_pending_calls``). No signal and no timer is involved.

This module adds the C function ``PyObject_IsTrue`` to the queue, with an object whose ``__bool__``
runs the job. If a signal handler raises an exception in ``__bool__``, the exception reaches the
user's code. A ctypes callback in the queue would print and discard the exception.
"""

import ctypes
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from energy_callbacks.core import forks
from energy_callbacks.core.guard import logger, pass_on_signals


class Pending:
    """A call on the main thread that can be requested repeatedly; the object is never freed.

    Args:
        job: function to call; its argument is the frame that the main thread was executing.

    Attributes:
        job: the function; while it is ``None``, the requested calls do nothing.
        is_lost: whether a call failed because the stack had its maximum depth.

    Raises:
        RuntimeError: if this interpreter has no queue of pending calls.
    """

    def __init__(self, job: Callable[[FrameType], None]) -> None:
        self.job: Callable[[FrameType], None] | None = job
        self.is_lost = False
        try:
            api: Any = ctypes.pythonapi
            add, truth = api.Py_AddPendingCall, api.PyObject_IsTrue
        except AttributeError as error:
            raise RuntimeError(
                f"the stack of the main thread cannot be read: {sys.implementation.name} has no "
                "Py_AddPendingCall; use CPython"
            ) from error
        add.argtypes, add.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int
        api.Py_IncRef(ctypes.py_object(self))  # the queue itself keeps no reference
        self._add = add
        self._function = ctypes.cast(truth, ctypes.c_void_p)
        self._argument = ctypes.c_void_p(id(self))

    def ask(self) -> bool:
        """Request the call; return ``False`` if the queue is full (with about 32 calls)."""
        return bool(self._add(self._function, self._argument) == 0)

    def __bool__(self) -> bool:
        try:
            if self.job is not None:
                self.job(sys._getframe(1))  # noqa: SLF001 - the interrupted frame
        except RecursionError:
            self.is_lost = True
        return False


def on_thread(thread: int, job: Callable[[], None]) -> bool:
    """Call a function on a thread: immediately on this thread, or soon on the main thread.

    Args:
        thread: identifier of this thread or of the main thread, from ``threading.get_ident``.
        job: the function. On this thread, its exceptions propagate; on the main thread, they are
            logged.

    Returns:
        ``True`` if the function was called or its call is in the queue of pending calls. ``False``
        if ``thread`` is neither this thread nor the main thread, or if the queue is full or
        missing. If the process is forked before a queued call, the child does not make the call.
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

"""Finds a running call of the user, from inside it, and watches it from other threads.

Keras and Hugging Face pass a callback neither the trainer nor the list of callbacks, and call no
hook after an exception or Ctrl-C. Both are on the stack while a hook runs: the call that trains,
and the object that holds the callbacks. See ``docs/adr/0007-the-call-that-trains.md``.

A thread only walks its own stack: walking another thread's can end the process (CPython 3.11).
"""

import contextlib
import gc
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any


class ActiveCall:
    """One call of a function, found in one of its hooks.

    Keeps the frame of the call, and everything that it refers to, until ``let_go``.

    Args:
        frame: frame of the call, which is executing.
        package: package of the function.
    """

    def __init__(self, frame: FrameType, package: str) -> None:
        # Keras removes the call's frame from tracebacks, but not that of the wrapper that does so.
        wrapper = frame.f_back
        is_wrapped = wrapper is not None and _package(wrapper) == package
        self._frames: tuple[FrameType | None, ...] = (frame, wrapper if is_wrapped else None)
        self._can_tell = not gc.is_tracked(frame)

    @classmethod
    def find(cls, *names: str, package: str) -> "ActiveCall | None":
        """Return the innermost call of a function on the caller's stack, if there is one.

        Args:
            names: possible names of the function, such as ``fit``.
            package: package of the function, such as ``keras``.
        """
        for frame in _outwards(sys._getframe(1)):  # noqa: SLF001 - see the module's docstring
            if frame.f_code.co_name in names and _package(frame) == package:
                return cls(frame, package)
        return None

    def is_under_way(self) -> bool:
        """Return whether the call has neither returned nor raised, on any thread.

        CPython lets its garbage collector track a frame when its execution has ended, not before
        (``take_ownership`` in ``frame.c``). In other interpreters the call is under way until
        ``let_go``.
        """
        frames = self._frames  # another thread may call ``let_go`` meanwhile
        return bool(frames) and not (self._can_tell and gc.is_tracked(frames[0]))

    def local(self, name: str) -> Any:
        """Return a local variable of the call while it is under way; ``None`` if there is none."""
        frames = self._frames
        frame = frames[0] if frames and self.is_under_way() else None
        return None if frame is None else frame.f_locals.get(name)

    def error(self) -> BaseException | None:
        """Return the exception that ended the call, if the interpreter has kept it.

        Interactive shells keep an uncaught exception, and scripts keep it until they exit.
        """
        error = _last_error()
        trace = None if error is None else error.__traceback__
        while trace is not None:
            if trace.tb_frame in self._frames:
                return error
            trace = trace.tb_next
        return None

    def let_go(self) -> None:
        """Release the frame of the call and everything that it refers to."""
        self._frames = ()


def keep_interrupt() -> None:
    """Let an uncaught Ctrl-C end the process as it would without this package.

    After an uncaught ``KeyboardInterrupt`` the interpreter ends itself by SIGINT. It forgets to do
    so when code is executed from a string, as imports of dataclasses do, and remembers it when such
    code raises the exception again (CPython 3.11 to 3.14, ``run_eval_code_obj`` in
    ``pythonrun.c``). For exit handlers only.
    """
    if isinstance(_last_error(), KeyboardInterrupt):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # noqa: S102 - see above


def find_callback_list(member: object) -> list[Any] | None:
    """Return the list ``callbacks`` of the nearest calling object that contains ``member``.

    Args:
        member: compared by identity.
    """
    for frame in _outwards(sys._getframe(1)):  # noqa: SLF001 - see the module's docstring
        owner = frame.f_locals.get("self")
        callbacks = getattr(owner, "__dict__", {}).get("callbacks")  # runs no property
        if isinstance(callbacks, list) and any(one is member for one in callbacks):
            return callbacks
    return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _last_error() -> BaseException | None:
    """Return the last uncaught exception, if the interpreter has kept it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None

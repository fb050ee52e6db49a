"""Finds the call of a training function, such as ``fit``, on the stack; detects when it ends.

Keras and Hugging Face do not give a callback the list of callbacks, and call no hook after an
exception or Ctrl-C. While a hook of a callback runs, the stack contains both the call of the
training function and the object with the list of callbacks. See ``docs/adr/0007``.

A thread walks only its own stack, because walking the stack of another thread can crash the
process (CPython 3.11).
"""

import contextlib
import gc
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any


class ActiveCall:
    """A running call of a function, such as ``fit``, found by a hook that runs inside it.

    The object keeps the frame of the call, and all objects that the frame refers to, until
    ``let_go`` is called.

    Args:
        frame: frame of the call, which must be executing.
        package: top-level package of the function.
    """

    def __init__(self, frame: FrameType, package: str) -> None:
        # Keras wraps the function. The wrapper removes the frame of the call from tracebacks, but
        # keeps its own frame. ``error`` therefore searches a traceback for either frame.
        wrapper = frame.f_back
        is_wrapped = wrapper is not None and _package(wrapper) == package
        self._frames: tuple[FrameType | None, ...] = (frame, wrapper if is_wrapped else None)
        self._can_tell = not gc.is_tracked(frame)

    @classmethod
    def find(cls, *names: str, package: str) -> "ActiveCall | None":
        """Return the innermost matching call on the caller's stack; ``None`` if there is none.

        Args:
            names: possible names of the function, such as ``fit``.
            package: top-level package of the function, such as ``keras``.
        """
        for frame in outwards(sys._getframe(1)):  # noqa: SLF001 - see the module's docstring
            if frame.f_code.co_name in names and _package(frame) == package:
                return cls(frame, package)
        return None

    def is_under_way(self) -> bool:
        """Return whether the call has neither returned nor raised; ``False`` after ``let_go``.

        Any thread may call this method. CPython's garbage collector starts to track a frame when
        the execution of the frame ends (``take_ownership`` in ``frame.c``). A tracked frame
        therefore means that the call has ended. In interpreters that also track frames during their
        execution, the result is ``True`` until ``let_go``.
        """
        frames = self._frames  # a copy, because another thread may call ``let_go``
        return bool(frames) and not (self._can_tell and gc.is_tracked(frames[0]))

    def local(self, name: str) -> Any:
        """Return a local variable of the call; ``None`` if it is not set or the call has ended."""
        frames = self._frames
        frame = frames[0] if frames and self.is_under_way() else None
        return None if frame is None else frame.f_locals.get(name)

    def error(self) -> BaseException | None:
        """Return the exception that ended the call; ``None`` if the interpreter has not kept it.

        Interactive shells keep an uncaught exception; scripts keep it for their exit handlers.
        """
        error = _last_error()
        trace = None if error is None else error.__traceback__
        while trace is not None:
            if trace.tb_frame in self._frames:
                return error
            trace = trace.tb_next
        return None

    def let_go(self) -> None:
        """Release the frame of the call and all objects that the frame refers to."""
        self._frames = ()


def keep_interrupt() -> None:
    """Let an uncaught Ctrl-C end the process as it would without this package.

    An uncaught ``KeyboardInterrupt`` sets a flag, which makes the interpreter end itself by SIGINT
    after its exit handlers. Executing code from a string, as the definition of a dataclass does,
    clears the flag. This function sets the flag again: it executes a string that raises
    ``KeyboardInterrupt`` (CPython 3.11 to 3.14, ``run_eval_code_obj`` in ``pythonrun.c``). Only
    exit handlers may call this function.

    IPython also keeps the exception of a cell as the last one, although it does not end the
    interpreter.
    """
    error = _last_error()
    trace = error.__traceback__ if isinstance(error, KeyboardInterrupt) else None
    if trace is not None and _package(trace.tb_frame) != "IPython":
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # noqa: S102 - see above


def find_callback_list(member: object) -> list[Any] | None:
    """Return ``self.callbacks`` of the nearest caller for which this list contains ``member``.

    Args:
        member: callback to search for; compared by identity.

    Returns:
        ``None`` if no caller has such a list.
    """
    for frame in outwards(sys._getframe(1)):  # noqa: SLF001 - see the module's docstring
        owner = frame.f_locals.get("self")
        callbacks = getattr(owner, "__dict__", {}).get("callbacks")  # does not run a property
        if isinstance(callbacks, list) and any(one is member for one in callbacks):
            return callbacks
    return None


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, its caller, the caller's caller, and so on."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _last_error() -> BaseException | None:
    """Return the last uncaught exception; ``None`` if the interpreter has not kept it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None

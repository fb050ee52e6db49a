"""A running call of the user's, found from inside it and watched from other threads.

Keras and Hugging Face hand a callback neither the trainer nor the list of callbacks, and fire no
hook after an exception or Ctrl-C. Both are on the stack while a hook runs: the call that trains,
and the object that keeps the callbacks. See ``docs/adr/0007``.

A thread walks its own stack only: to walk another's can end the process (CPython 3.11).
"""

import contextlib
import gc
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any


class ActiveCall:
    """One call of a function, from one of its hooks until it returns or raises.

    Its frame is kept until ``let_go``, and with it what the call holds.

    Args:
        frame: of the call, which is executing.
        package: whose function it is.
    """

    def __init__(self, frame: FrameType, package: str) -> None:
        # Keras cuts the call's frame out of a traceback, but not that of the wrapper that cuts.
        wrapper = frame.f_back
        is_wrapped = wrapper is not None and _package(wrapper) == package
        self._frames: tuple[FrameType | None, ...] = (frame, wrapper if is_wrapped else None)
        self._can_tell = not gc.is_tracked(frame)

    @classmethod
    def find(cls, *names: str, package: str) -> "ActiveCall | None":
        """The innermost call of a function with one of these names on the caller's stack.

        Args:
            names: of functions, such as ``fit``.
            package: whose function it is, such as ``keras``.
        """
        for frame in _outwards(sys._getframe(1)):  # noqa: SLF001 - see the module's docstring
            if frame.f_code.co_name in names and _package(frame) == package:
                return cls(frame, package)
        return None

    def is_under_way(self) -> bool:
        """Whether the call has neither returned nor raised; may be asked on any thread.

        CPython shows a frame to its garbage collector when its execution has ended, not before
        (``take_ownership`` in ``frame.c``). In an interpreter that does otherwise
        the call ends when it is released.
        """
        frames = self._frames  # another thread may release it meanwhile
        return bool(frames) and not (self._can_tell and gc.is_tracked(frames[0]))

    def local(self, name: str) -> Any:
        """A local variable, to be asked inside the call; ``None`` if there is none."""
        frames = self._frames
        frame = frames[0] if frames and self.is_under_way() else None
        return None if frame is None else frame.f_locals.get(name)

    def error(self) -> BaseException | None:
        """The exception that ended the call, as far as the interpreter still knows it.

        Interactive shells and a script's last moments keep it; one that was caught is forgotten.
        """
        error = _last_error()
        trace = None if error is None else error.__traceback__
        while trace is not None:
            if trace.tb_frame in self._frames:
                return error
            trace = trace.tb_next
        return None

    def let_go(self) -> None:
        """Release the call: what it holds can be freed."""
        self._frames = ()


def keep_interrupt() -> None:
    """Let an uncaught Ctrl-C end the process as it would without this package.

    The interpreter ends itself by SIGINT after one, but forgets that as soon as any code is
    executed from a string, as imports of dataclasses do. Code that raises one sets it again
    (CPython 3.11 to 3.14, ``run_eval_code_obj`` in ``pythonrun.c``). For handlers of exit only.
    """
    if isinstance(_last_error(), KeyboardInterrupt):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # noqa: S102 - see above


def find_callback_list(member: object, attribute: str = "callbacks") -> list[Any] | None:
    """The list that the nearest caller's ``self`` keeps in an attribute, with ``member`` in it.

    Args:
        member: compared by identity.
        attribute: of the calling object.
    """
    for frame in _outwards(sys._getframe(1)):  # noqa: SLF001 - see the module's docstring
        owner = frame.f_locals.get("self")
        held = getattr(owner, "__dict__", {}).get(attribute)  # runs no property of the user's
        if isinstance(held, list) and any(one is member for one in held):
            return held
    return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _last_error() -> BaseException | None:
    """The last uncaught exception, if the interpreter has kept it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None

"""A call of the user's that is under way, seen from inside it and from other threads.

Keras and Hugging Face hand a callback neither the trainer nor the list of callbacks, and fire no
hook after an exception or Ctrl-C. Both are on the stack while a hook runs: the call that trains,
and the object that keeps the callbacks. See ``docs/adr/0007-the-call-that-trains.md``.
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

# A generator that yields while another thread walks the stack through it cuts the way outwards.
_LOOKS: Final = 3


class OngoingCall:
    """One call of a function, from one of its hooks until it returns or raises.

    The frame is kept until ``error`` is asked after the end, and with it what the call holds.

    Args:
        frame: of the call.
        thread_id: of the thread it runs on.
        package: whose function it is.
    """

    def __init__(self, frame: FrameType, thread_id: int, package: str) -> None:
        self._frame: FrameType | None = frame
        # Keras cuts the call's frame out of a traceback, but not that of the wrapper that cuts.
        is_wrapped = frame.f_back is not None and _package(frame.f_back) == package
        self._raising: tuple[FrameType | None, ...] = (
            frame,
            frame.f_back if is_wrapped else None,
        )
        self._thread_id = thread_id
        self._has_ended = False

    @classmethod
    def find(cls, *names: str, package: str) -> "OngoingCall | None":
        """The innermost call of a function so named on the stack of the caller.

        Args:
            names: of functions, such as ``fit``.
            package: whose function it is, such as ``keras``.
        """
        for frame in _outwards(sys._getframe(1)):  # noqa: SLF001 - see the module's docstring
            if frame.f_code.co_name in names and _package(frame) == package:
                return cls(frame, threading.get_ident(), package)
        return None

    def is_under_way(self) -> bool:
        """Whether the call has neither returned nor raised; may be asked on any thread."""
        if not self._has_ended:
            self._has_ended = not any(self._is_on_stack() for _ in range(_LOOKS))
        return not self._has_ended

    def _is_on_stack(self) -> bool:
        innermost = sys._current_frames().get(self._thread_id)  # noqa: SLF001 - as above
        return any(frame is self._frame for frame in _outwards(innermost))

    def local(self, name: str) -> Any:
        """A local variable of the call; ``None`` where there is none, or the call has ended."""
        return self._frame.f_locals.get(name) if self._frame and self.is_under_way() else None

    def error(self) -> BaseException | None:
        """The exception that ended the call, as far as the interpreter still knows it.

        Interactive shells and a script's last moments keep it; one that was caught is forgotten.
        Asked once: it lets go of the call's frame.
        """
        frames, self._raising = self._raising, ()
        self._frame, self._has_ended = None, True
        return _raised_through(frames)


def keep_interrupt() -> None:
    """Let a Ctrl-C that nobody caught end the process as it would without us.

    The interpreter ends itself by SIGINT after one, but forgets that as soon as any code is
    executed from a string, as imports of dataclasses do. Code that raises one reminds it
    (CPython 3.11 to 3.14, ``run_eval_code_obj`` in ``pythonrun.c``). For handlers of exit only.
    """
    if isinstance(_last_error(), KeyboardInterrupt):
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")  # noqa: S102 - see above


def list_holding(member: object, attribute: str = "callbacks") -> list[Any] | None:
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


def _raised_through(frames: tuple[FrameType | None, ...]) -> BaseException | None:
    """The interpreter's last unhandled exception, where it passed through one of these frames."""
    error = _last_error()
    trace = None if error is None else error.__traceback__
    while trace is not None:
        if any(trace.tb_frame is frame for frame in frames):
            return error
        trace = trace.tb_next
    return None


def _last_error() -> BaseException | None:
    """What the interpreter keeps of the last exception that nobody caught."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None

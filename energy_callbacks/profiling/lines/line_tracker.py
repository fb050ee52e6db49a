"""Traces the line of the user's source that the training thread executes, for a few steps.

A trace of PyTorch names functions but not the lines in them (torch 2.13: ``with_stack`` gives the
line of ``def``). So for the steps of a window this thread follows itself with ``sys.settrace``, in
the user's files only; the time at which a kernel was launched then gives its line, on whatever
thread that was.
"""

import sys
import threading
import time
from bisect import bisect_right
from types import FrameType
from typing import Any, Final

from energy_callbacks.core import forks
from energy_callbacks.profiling.lines.source_location import Line, is_users

MOST_MOMENTS: Final = 500_000
MOST_IN_A_CALL: Final = 20_000
"""Lines of one call that are followed, about 20 ms: a loop over numbers launches no kernels."""


class TrackedLines:
    """Lines and the moments, Unix time in nanoseconds, at which each was begun."""

    def __init__(self) -> None:
        self._unix_ns: list[int] = []
        self._lines: list[Line | None] = []

    def add(self, unix_ns: int, line: Line | None) -> None:
        """From now on it is this line, outside of the user's code ``None``."""
        self._unix_ns.append(unix_ns)
        self._lines.append(line)

    def __len__(self) -> int:
        return len(self._unix_ns)

    def at(self, unix_ns: float) -> Line | None:
        """The line at a moment; ``None`` before the first one."""
        number = bisect_right(self._unix_ns, unix_ns) - 1
        return self._lines[number] if number >= 0 else None


class LineTracker:
    """Follows the thread that starts it until ``stop``; ends itself after many lines.

    A call with very many lines is followed no further: what it launches then is unattributed.
    """

    def __init__(self) -> None:
        self.followed = TrackedLines()
        self._thread = threading.get_ident()
        self._generation = forks.generation
        self._is_on = False
        self._lines: dict[FrameType, int] = {}

    def start(self) -> bool:
        """Whether it can: not if a debugger or a coverage tool traces already."""
        if sys.gettrace() is not None:
            return False
        self._is_on = True
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - of this thread
        self.followed.add(time.time_ns(), _nearest(frame))
        while frame is not None:  # frames that are running are not asked by settrace
            if is_users(frame.f_code.co_filename):
                frame.f_trace = self._in_user
            frame = frame.f_back
        sys.settrace(self._call)
        return True

    def stop(self) -> None:
        """On another thread it ends with the next line."""
        self._is_on = False
        self._lines.clear()  # no frame is held, nor what its call holds
        if threading.get_ident() != self._thread:
            return
        if sys.gettrace() == self._call:
            sys.settrace(None)
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - of this thread
        while frame is not None:
            if frame.f_trace == self._in_user:
                frame.f_trace = None
            frame = frame.f_back

    @property
    def _is_over(self) -> bool:
        """Whether no caller listens: it was stopped, or this is a forked child."""
        return not self._is_on or self._generation != forks.generation

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if self._is_over:
            sys.settrace(None)
            return None
        return self._in_user if is_users(frame.f_code.co_filename) else None

    def _in_user(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if self._is_over:
            frame.f_trace = None
            if sys.gettrace() == self._call:
                sys.settrace(None)
            return None
        if event == "line":
            count = self._lines[frame] = self._lines.get(frame, 0) + 1
            is_endless = count > MOST_IN_A_CALL
            self.followed.add(time.time_ns(), None if is_endless else _line(frame))
            if is_endless:
                del self._lines[frame]
                frame.f_trace = None
                return None
        elif event == "return":
            self._lines.pop(frame, None)
            self.followed.add(time.time_ns(), _nearest(frame.f_back))
        if len(self.followed) >= MOST_MOMENTS:
            self.followed.add(time.time_ns(), None)
            self._is_on = False
        return self._in_user


def _nearest(frame: FrameType | None) -> Line | None:
    """The innermost line of the user's on a stack."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return _line(frame)
        frame = frame.f_back
    return None


def _line(frame: FrameType) -> Line:
    code = frame.f_code
    return Line(code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_qualname)

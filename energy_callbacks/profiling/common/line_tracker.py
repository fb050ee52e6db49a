"""Records which source lines of the user's code the training thread executes, for a few steps.

Traces of PyTorch contain the names of functions but not the executed lines (torch 2.13:
``with_stack`` gives the line of ``def``). Therefore the training thread traces itself with
``sys.settrace`` during these steps, in the user's files only. A kernel is assigned to the line that
the training thread executed when the kernel was launched, even if another thread launched it.
"""

import sys
import threading
import time
from bisect import bisect_right
from types import FrameType
from typing import Any, Final

from energy_callbacks.core import forks
from energy_callbacks.core.active_call import outwards
from energy_callbacks.profiling.common.source_location import Line, is_users

MOST_MOMENTS: Final = 500_000
"""Maximum number of records of a tracker: executed lines and returns from functions."""
MOST_IN_A_CALL: Final = 20_000
"""Maximum number of traced lines of one call; tracing them takes about 20 ms. A call that executes
more lines usually contains a loop that launches no kernels, so tracing further lines is useless."""


class LineTracker:
    """Traces the thread that creates it, until ``stop`` or until ``MOST_MOMENTS`` records exist.

    A call is traced for at most ``MOST_IN_A_CALL`` lines. Kernels that the call launches later are
    assigned to no line, or to an earlier line of the call.
    """

    def __init__(self) -> None:
        self._unix_ns: list[int] = []
        self._lines: list[Line | None] = []
        self._thread = threading.get_ident()
        self._generation = forks.generation
        self._is_on = False
        self._counts: dict[FrameType, int] = {}

    def start(self) -> bool:
        """Begin to trace; return ``False`` if a debugger or a coverage tool is tracing already."""
        if sys.gettrace() is not None:
            return False
        self._is_on = True
        here = sys._getframe()  # noqa: SLF001 - no public function returns a frame
        self.add(time.time_ns(), _nearest(here))
        # ``sys.settrace`` applies only to calls that begin later, so ``f_trace`` is set in the
        # frames of the calls that are already running.
        for frame in outwards(here):
            if is_users(frame.f_code.co_filename):
                frame.f_trace = self._trace_line
        sys.settrace(self._trace_call)
        return True

    def stop(self) -> None:
        """Stop tracing; if another thread calls this, tracing stops at the next traced line."""
        self._is_on = False
        self._counts.clear()  # its keys are frames, which keep the variables of calls alive
        if threading.get_ident() != self._thread:
            return
        if sys.gettrace() == self._trace_call:
            sys.settrace(None)
        for frame in outwards(sys._getframe()):  # noqa: SLF001 - no public function returns a frame
            if frame.f_trace == self._trace_line:
                frame.f_trace = None

    @property
    def _is_over(self) -> bool:
        """Whether tracing was stopped, or this process is a fork of the traced process."""
        return not self._is_on or self._generation != forks.generation

    def add(self, unix_ns: int, line: Line | None) -> None:
        """Record the line executed since a Unix time in ns; ``None`` outside the user's code."""
        self._unix_ns.append(unix_ns)
        self._lines.append(line)

    def __len__(self) -> int:
        return len(self._unix_ns)

    def at(self, unix_ns: float) -> Line | None:
        """Return the line executed at a Unix time in ns; ``None`` if unknown or not the user's."""
        number = bisect_right(self._unix_ns, unix_ns) - 1
        return self._lines[number] if number >= 0 else None

    def _trace_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if self._is_over:
            sys.settrace(None)
            return None
        return self._trace_line if is_users(frame.f_code.co_filename) else None

    def _trace_line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if self._is_over:
            frame.f_trace = None
            if sys.gettrace() == self._trace_call:
                sys.settrace(None)
            return None
        if event == "line":
            count = self._counts[frame] = self._counts.get(frame, 0) + 1
            is_endless = count > MOST_IN_A_CALL
            self.add(time.time_ns(), None if is_endless else _line(frame))
            if is_endless:
                del self._counts[frame]
                frame.f_trace = None
                return None
        elif event == "return":
            self._counts.pop(frame, None)
            self.add(time.time_ns(), _nearest(frame.f_back))
        if len(self) >= MOST_MOMENTS:
            self.add(time.time_ns(), None)
            self._is_on = False
        return self._trace_line


def _nearest(frame: FrameType | None) -> Line | None:
    """Return the line of the innermost user frame on a stack; ``None`` if there is none."""
    users = (one for one in outwards(frame) if is_users(one.f_code.co_filename))
    return next(map(_line, users), None)


def _line(frame: FrameType) -> Line:
    code = frame.f_code
    return Line(code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_qualname)

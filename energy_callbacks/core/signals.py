"""Holds back signals while child processes run, and returns the signals to pass on to them.

Only Linux can wait for signals and tells who sent them. On macOS and Windows, handlers record the
signals, and those that a terminal can send are assumed to come from the terminal.
"""

import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

# Longest wait where signals cannot be waited for, s.
_POLL_S: Final = 0.1


def existing(*names: str) -> tuple[signal.Signals, ...]:
    """Return the signals with these names, without those that this operating system lacks."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


# Signals by which a user, a scheduler or a terminal ends a program.
ENDING: Final = existing("SIGINT", "SIGTERM", "SIGHUP")
_OF_TERMINALS: Final = existing("SIGINT", "SIGQUIT", "SIGHUP")


class SignalHold:
    """Holds back signals inside the context ``held``, until ``wait`` fetches them.

    A terminal sends a signal, such as SIGINT at Ctrl-C, to all processes of its foreground group,
    so child processes receive the signal themselves. A signal from another process usually reaches
    only this process; ``wait`` returns the signal, so that the caller can pass it on.

    Args:
        numbers: signals to hold back. They may include signals that this process ignores, such as
            SIGHUP under ``nohup``; ``wait`` also returns ignored signals.

    Attributes:
        first: number of the first signal that arrived, not counting ignored signals; ``None`` if
            there was none.
        mask_before: signals that were already blocked when ``held`` was entered.
    """

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self.first: int | None = None
        self.mask_before: set[int] = set()
        # ``getsignal`` returns None for a handler that Python did not install and cannot restore.
        self._handled = [n for n in numbers if signal.getsignal(n) not in (signal.SIG_IGN, None)]
        self._held = {*numbers, *existing("SIGCHLD")}
        self._to_pass_on: list[int] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Let signals set ``first`` inside the context, instead of ending this process.

        ``SIGCHLD`` has its default action there: if it is ignored, as by some parents, the exit
        codes of child processes are lost.
        """
        before = {number: signal.signal(number, self._handle) for number in self._handled}
        for number in existing("SIGCHLD"):
            if signal.getsignal(number) == signal.SIG_IGN:
                before[number] = signal.signal(number, signal.SIG_DFL)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold back the signals for ``wait``, also in threads that start inside the context.

        ``wait`` also returns signals that arrive in a thread that was started earlier.
        """
        with self.recorded():
            self.mask_before = _set_mask("SIG_BLOCK", self._held)
            try:
                yield
            finally:
                _set_mask("SIG_SETMASK", self.mask_before)

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Restore ``mask_before`` inside the context, for programs that are started in it."""
        _set_mask("SIG_SETMASK", self.mask_before)
        try:
            yield
        finally:
            _set_mask("SIG_BLOCK", self._held)

    def wait(self, timeout_s: float) -> list[int]:
        """Wait for a signal, and return the signals to pass on to child processes.

        Args:
            timeout_s: maximum time to wait, s. The wait ends early if a signal arrives or a child
                process ends; on macOS and Windows, after 0.1 s.
        """
        if sys.platform != "linux":
            time.sleep(min(timeout_s, _POLL_S))
        elif (found := signal.sigtimedwait(self._held, timeout_s)) is not None:
            if found.si_signo != signal.SIGCHLD:
                # si_code is positive if the kernel sent it, as for a terminal (sigaction(2)).
                self._record(found.si_signo, pass_on=found.si_code <= 0)
        received, self._to_pass_on = self._to_pass_on, []
        return received

    def _handle(self, number: int, _: FrameType | None) -> None:
        is_ours = sys.platform == "linux" or number not in _OF_TERMINALS
        self._record(number, pass_on=is_ours)

    def _record(self, number: int, *, pass_on: bool) -> None:
        if self.first is None and number in self._handled:
            self.first = number
        if pass_on:
            self._to_pass_on.append(number)


def _set_mask(how: str, numbers: Collection[int]) -> set[int]:
    """Change the blocked signals of this thread on Linux, and return those blocked before."""
    if sys.platform != "linux":
        return set()
    return signal.pthread_sigmask(getattr(signal, how), numbers)

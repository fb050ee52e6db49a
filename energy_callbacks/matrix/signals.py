"""Signals that end a matrix, received in one place with their sender.

A terminal's Ctrl-C reaches all programs of its group, so the jobs have it already; what another
process has sent to this one alone is passed on to them.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from energy_callbacks.core.signals import next_signal

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalHold:
    """Holds the signals that end a program while jobs run; main thread only.

    Those that were ignored, as nohup has it, stay so.

    Attributes:
        first: the first of them that came.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self._ending = [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]
        self._held = {*self._ending, signal.SIGCHLD}
        self._to_pass_on: list[int] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        """None of them ends this process inside."""
        before = {number: signal.signal(number, self._handle) for number in self._ending}
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._held)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """A program that is started inside finds signals as this one did."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._held)

    def wait(self, timeout_s: float) -> list[int]:
        """Signals to pass on to the jobs; returns early if one came or a job has ended."""
        if (found := next_signal(self._held, timeout_s)) is not None:
            self._hear(found.number, pass_on=found.is_for_this_process)
        heard, self._to_pass_on = self._to_pass_on, []
        return heard

    def _handle(self, number: int, _: FrameType | None) -> None:
        self._hear(number, pass_on=True)

    def _hear(self, number: int, *, pass_on: bool) -> None:
        self.first = self.first or number
        if pass_on:
            self._to_pass_on.append(number)

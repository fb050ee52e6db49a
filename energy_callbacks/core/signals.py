"""Signals that are waited for and passed on to other programs."""

import signal
from collections.abc import Collection
from typing import NamedTuple


class Received(NamedTuple):
    """A signal, and whether a process sent it to this one alone.

    One from the terminal, such as Ctrl-C, has reached every program of the process group.
    """

    number: int
    is_for_this_process: bool


def next_signal(held: Collection[int], timeout_s: float) -> Received | None:
    """The next of the signals that this thread blocks.

    Args:
        held: signals that are blocked, ``SIGCHLD`` among them: it ends the wait.
        timeout_s: at most this long.

    Returns:
        ``None`` after the time, and when a child has ended.
    """
    found = signal.sigtimedwait(held, timeout_s)
    if found is None or found.si_signo == signal.SIGCHLD:
        return None
    # si_code is above zero for what the kernel sends, as it does for the terminal (sigaction(2)).
    return Received(found.si_signo, found.si_code <= 0)

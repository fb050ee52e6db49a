"""Runs a command transparently: same streams, same signals, same exit status.

Signals are taken in one place, by ``sigtimedwait``, so that none interrupts the measuring: one that
was sent to this process alone is passed on; one from the terminal has reached the child as well.
"""

import contextlib
import errno
import os
import resource
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from energy_callbacks.core.signals import next_signal

# What a user, a scheduler or a terminal may send; the others stop or end a process as ever.
_PASSED_ON: Final = tuple(
    getattr(signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
)
_WAITED_FOR: Final = {*_PASSED_ON, signal.SIGCHLD}
# Python ignores these for itself, and an ignored signal stays ignored in a new program.
_PYTHONS_OWN: Final = (signal.SIGPIPE, signal.SIGXFSZ)


class Child:
    """A program that runs beside this process, in its process group.

    Args:
        command: program and arguments; the program is looked for as a shell does.
        environment: all of it.
        mask: signals that it is to find blocked, from ``signals_held``.

    Raises:
        OSError: if it cannot be started.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], mask: Collection[int] = ()
    ) -> None:
        def spawn(*words: str) -> int:
            return os.posix_spawnp(
                words[0], words, environment, setsigmask=mask, setsigdef=_PYTHONS_OWN
            )

        try:
            self.pid = spawn(*command)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            self.pid = spawn("/bin/sh", *command)  # a script without a first line, as shells do

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, negative for a signal; ``None`` if it goes on.

        Args:
            timeout_s: at most this long.
        """
        if (code := self._ended()) is not None:
            return code
        found = next_signal(_WAITED_FOR, timeout_s)
        if found is not None and found.is_for_this_process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, found.number)
        return self._ended()

    def _ended(self) -> int | None:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None


@contextlib.contextmanager
def signals_held() -> Iterator[Collection[int]]:
    """No signal that is passed on to a child ends this process; the mask as it was before.

    Threads that begin inside hold them too.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    try:
        yield before
    finally:
        while signal.sigtimedwait(_WAITED_FOR - before, 0) is not None:
            pass  # one that came after the child had ended
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def first_pending() -> int | None:
    """A signal that has come since they are held, before the child was started.

    One that this process ignores, as jobs in a shell's background do, is none: so will the child.
    """
    pending = signal.sigpending() & set(_PASSED_ON)
    return min((n for n in pending if signal.getsignal(n) != signal.SIG_IGN), default=None)


def end_as(code: int) -> int:
    """End as a child has ended: by the same signal, for the program that waits for this process.

    Args:
        code: its exit code, negative for a signal.

    Returns:
        The exit code, if it was no signal.
    """
    if code >= 0:
        return code
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left its own
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code  # a signal that ends no process: what shells say

"""Runs a command as a shell does: how it starts, and how its end is reported."""

import errno
import os
import resource
import shutil
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from energy_callbacks.core.signals import ENDING

# Python ignores these for itself, and an ignored signal stays ignored in a new program.
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def problem(program: str) -> tuple[int, str] | None:
    """Return the exit code and message of a shell that cannot run a program, else ``None``."""
    if shutil.which(program) is not None:
        return None
    exists = os.sep in program and Path(program).exists()
    return (126, "permission denied") if exists else (127, "command not found")


class Child:
    """A running command with the streams, open files and process group of this process.

    The command finds the signal mask and the dispositions that it would have without this process.

    Args:
        command: program and arguments; the program is searched in ``PATH``.
        environment: all variables of the command.
        mask: signals that are blocked in the command.

    Raises:
        OSError: if it cannot be started.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], mask: Collection[int] = ()
    ) -> None:
        def spawn(*words: str) -> int:
            return os.posix_spawnp(
                words[0], words, environment, setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
            )

        self._code: int | None = None
        try:
            self.pid = spawn(*command)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            self.pid = spawn("/bin/sh", *command)  # a script without a shebang line

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; ``None`` while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, number: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def as_error(code: int) -> BaseException | None:
    """Return the end of a command as an error for the report; ``None`` for exit code 0.

    Args:
        code: exit code, negative for a signal.
    """
    if code == 0:
        return None
    if code > 0:
        return ChildProcessError(f"exit code {code}")
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return KeyboardInterrupt(name) if -code in ENDING else ChildProcessError(f"ended by {name}")


def end_as(code: int) -> int:
    """End this process as the command ended, by the same signal if it was one.

    Args:
        code: exit code of the command, negative for a signal.

    Returns:
        The exit code, if no signal ended this process.
    """
    if code >= 0:
        return code
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has written its own core file
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code  # the exit code of shells for a signal that does not end a process

"""Starts a command, and reports how it ended."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from energy_callbacks.core.signals import ENDING, existing

# Signals that Python ignores; for the command their default action is restored.
_IGNORED_BY_PYTHON: Final = existing("SIGPIPE", "SIGXFSZ")


def problem(program: str) -> tuple[int, str] | None:
    """Return a shell's exit code and message for a program that cannot run; otherwise ``None``."""
    if shutil.which(program) is not None:
        return None
    exists = os.sep in program and Path(program).exists()
    code, reason = (126, "permission denied") if exists else (127, "command not found")
    return code, f"{reason}; write: python {program}" if program.endswith(".py") else reason


class Child:
    """A running command.

    The command inherits the process group and the inheritable file descriptors of this process,
    such as the standard streams. ``SIGPIPE`` and ``SIGXFSZ``, which Python ignores, have their
    default action in the command.

    Args:
        command: name or path of the program, and its arguments; a name without a slash is searched
            in ``PATH``.
        environment: all environment variables of the command.
        mask: numbers of the signals that are blocked in the command.
        own_stdout: whether the command inherits standard output; otherwise, it prints to standard
            error instead.

    Raises:
        OSError: if the command cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        mask: Collection[int] = (),
        *,
        own_stdout: bool = True,
    ) -> None:
        def spawn(*words: str) -> int:
            if sys.platform == "win32":
                raise OSError("use start() on Windows")
            to_stderr = ((os.POSIX_SPAWN_DUP2, 2, 1),)
            return os.posix_spawnp(
                words[0],
                words,
                environment,
                file_actions=() if own_stdout else to_stderr,
                setsigmask=mask,
                setsigdef=_IGNORED_BY_PYTHON,
            )

        self._code: int | None = None
        try:
            self.pid = spawn(*command)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a line #!; a shell may not search it in PATH.
            script = shutil.which(command[0]) or command[0]
            self.pid = spawn("/bin/sh", script, *command[1:])

    def poll(self) -> int | None:
        """Return the exit code, or minus the number of the signal that ended the command.

        Returns ``None`` while the command is running.
        """
        if sys.platform != "win32" and self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal to the command, unless the command has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def start(
    command: Sequence[str], environment: Mapping[str, str], mask: Collection[int], own_stdout: bool
) -> "Child | subprocess.Popen[bytes]":
    """Start a command; for the arguments see ``Child``.

    Windows has no ``posix_spawnp`` and no signal mask: there, ``subprocess`` starts the command.

    Raises:
        OSError: if the command cannot be started.
    """
    if sys.platform != "win32":
        return Child(command, environment, mask, own_stdout=own_stdout)
    stdout = None if own_stdout else 2
    return subprocess.Popen(command, env=environment, stdout=stdout)  # noqa: S603 - the user's


def as_error(code: int) -> BaseException | None:
    """Return the exception that the report shows for an exit code; ``None`` for code 0.

    Args:
        code: exit code, or minus the number of the signal that ended the command.
    """
    if code == 0:
        return None
    if code > 0:
        return ChildProcessError(f"exit code {code}")
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return KeyboardInterrupt(name) if -code in ENDING else ChildProcessError(f"ended by {name}")


def end_as(code: int) -> int:
    """End this process by the signal that ended the command, or return the command's exit code.

    Args:
        code: exit code, or minus the number of the signal that ended the command.

    Returns:
        The exit code for this process, if no signal has ended this process here.
    """
    if code >= 0 or sys.platform == "win32":
        return code
    import resource

    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # only the command leaves a core file
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code  # if the signal does not end this process: the exit code that shells use

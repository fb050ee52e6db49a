"""Runs a command as a shell does: how it starts, and how its end is reported."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from energy_callbacks.core.signals import ENDING


def problem(program: str) -> tuple[int, str] | None:
    """Return the exit code and message of a shell that cannot run a program, else ``None``."""
    if shutil.which(program) is not None:
        return None
    exists = os.sep in program and Path(program).exists()
    return (126, "permission denied") if exists else (127, "command not found")


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command with the streams and open files of this process, in its process group.

    Args:
        command: program and arguments; the program is searched in ``PATH``.
        environment: all variables of the command.

    Raises:
        OSError: if it cannot be started.
    """
    try:
        return subprocess.Popen(command, env=environment, close_fds=False)  # noqa: S603 - the user's
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        return start(["/bin/sh", *command], environment)  # a script without a shebang line


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

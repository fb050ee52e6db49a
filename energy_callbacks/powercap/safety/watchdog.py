"""Starts the watchdog: a process that restores settings of GPUs when this process has ended."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.safety import watchdog_main

# Longest time until the watchdog is ready, s. It takes 0.2 s if the driver answers at once. Without
# the persistence daemon, the driver takes one to three seconds to initialise each GPU (NVIDIA,
# "Driver Persistence").
_START_S: Final = 20.0
# Longest time to wait for the end of the watchdog after all settings were restored, s.
_END_S: Final = 1.0


class Watchdog:
    """A process in a session of its own, which signals to the job's processes do not reach.

    Args:
        actuator: the actuator that restores settings, as ``module:class``.
        uuids: UUIDs of the GPUs.
        folder: folder of the state files.
        inherited: descriptors that the process keeps open, such as those of locks.

    Raises:
        ActuatorError: if the process does not start, or cannot restore settings.
    """

    def __init__(
        self, actuator: str, uuids: Sequence[str], folder: Path, inherited: Sequence[int]
    ) -> None:
        is_python = Path(sys.executable or "").name.startswith(("python", "pypy"))
        if not is_python or getattr(sys, "frozen", False):
            raise ActuatorError("the watchdog process cannot be started: no Python interpreter")
        words = [str(os.getpid()), str(folder.absolute()), actuator, *uuids]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", watchdog_main.__file__, *words],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
                },
                cwd="/",
                pass_fds=inherited,
                start_new_session=True,
            )
        except (OSError, RuntimeError) as error:
            raise ActuatorError(f"the watchdog process cannot be started: {error}") from error
        answer = self._first_line(time.monotonic() + _START_S)
        if answer != watchdog_main.READY:
            self._process.kill()
            self.close()
            raise ActuatorError(
                "the watchdog process, which restores settings after a crash, is not ready",
                answer or f"it has ended or gave no answer within {_START_S:g} s",
            )

    def _first_line(self, end_s: float) -> str:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            line = b""
            while not line.endswith(b"\n"):
                left_s = max(end_s - time.monotonic(), 0.0)
                if not select.select([pipe], [], [], left_s)[0] or not (more := pipe.read(4096)):
                    break
                line += more
        return line.decode(errors="replace").strip()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def close(self) -> None:
        """Close the pipe, which ends the process, and wait for its end for one second."""
        self.close_pipe()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    def close_pipe(self) -> None:
        """Close this process's end of the pipe, as a forked child must do with its copy."""
        assert self._process.stdin is not None
        self._process.stdin.close()

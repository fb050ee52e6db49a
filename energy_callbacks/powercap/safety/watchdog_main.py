"""The watchdog program: waits for the end of a job, then restores the settings of its GPUs.

It is started by its path, as ``python watchdog_main.py PID FOLDER ACTUATOR UUID...``. It prints
``ready`` once it has asked the driver about each GPU, or the reason why it cannot restore settings.
Standard input is a pipe from the job, which is closed when the job ends.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

READY: Final = "ready"
# How often the watchdog checks that its parent process is still the job, s. The pipe tells the end
# of the job at once, unless a child of the job has inherited its other end.
_POLL_S: Final = 0.5
# How often the state file is marked as in use, s: programs that clean /tmp remove files that have
# not changed for some days (tmpfiles.d(5): 10 days).
_REFRESH_S: Final = 3600.0


def main(arguments: Sequence[str]) -> int:
    """Wait for the end of the job, and restore the settings of its GPUs.

    Args:
        arguments: process id of the job, folder of the state files, the actuator as
            ``module:class``, and the UUIDs of the GPUs.

    Returns:
        0 if no setting is left changed, otherwise 1.
    """
    # The job may be ended by a signal to all its processes; it may still use the GPU for a while.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows lacks the last
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    _leave_out_package()
    from energy_callbacks.core.errors import PowerCapError
    from energy_callbacks.powercap.safety.heal import actuator_named, restore_card
    from energy_callbacks.powercap.safety.state_file import StateFile

    pid, folder, name, *uuids = arguments
    actuator = actuator_named(name)
    for uuid in uuids:
        probe = actuator.probe(uuid)
        if probe.can_write is False:
            _say(f"{uuid}: {probe.found}; {probe.needs}")
            return 1
    _say(READY)
    files = [StateFile(Path(folder), uuid) for uuid in uuids]
    _wait_for_end(int(pid), [file.path for file in files])
    is_left = False
    for file in files:
        try:
            for one in restore_card(file, actuator):
                sys.stderr.write(f"energy_callbacks: {one.message}\n")
                is_left |= one.is_problem
        except (PowerCapError, OSError) as error:
            sys.stderr.write(f"energy_callbacks: {error}\n")
            is_left = True
    return int(is_left)


def _leave_out_package() -> None:
    """Let modules of the package be imported without ``energy_callbacks/__init__.py``.

    The public names that it imports need NumPy, which would take most of the start.
    """
    if "energy_callbacks" not in sys.modules:
        package = ModuleType("energy_callbacks")
        package.__path__ = [str(Path(__file__).parents[2])]
        sys.modules["energy_callbacks"] = package


def _say(line: str) -> None:
    """Print a line to the job, and close standard output."""
    os.write(1, f"{line}\n".encode())
    os.close(1)


def _wait_for_end(pid: int, files: Sequence[Path]) -> None:
    """Return when standard input is closed, or when this process is no longer a child of ``pid``.

    Args:
        pid: process id of the job.
        files: state files, which are marked as in use.
    """
    refresh_s = time.monotonic() + _REFRESH_S
    while os.getppid() == pid:
        if select.select([0], [], [], _POLL_S)[0] and not os.read(0, 1):
            return
        if time.monotonic() >= refresh_s:
            refresh_s += _REFRESH_S
            for path in files:
                if path.exists():
                    os.utime(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

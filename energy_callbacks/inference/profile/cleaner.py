"""Ends all processes of a profile, and removes its folder.

As a program, ``python cleaner.py PID FOLDER``, it waits for the end of the profile. Standard input
is a pipe from the profile, which is closed when the profile ends in any way. The file imports
nothing of the package, so that it starts quickly.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

MARK: Final = "ENERGY_CALLBACKS_PROFILE"
"""Environment variable that all processes of a profile have: ``FOLDER/tenant`` or ``FOLDER/mps``.

Processes are found by it and ended by their process ids, never by their names: other users and
other profiles may have processes with the same name.
"""
CONTROL: Final = "nvidia-cuda-mps-control"
# Time for tenants to end by themselves, s. They end after the batch that runs. MPS's server may
# hang after a client was killed during a kernel (NVIDIA, "Multi-Process Service", client
# termination), so that tenants are killed only after this time.
_TENANTS_S: Final = 5.0
# Time for MPS to end after ``quit``, and for killed processes to end, s.
_END_S: Final = 5.0
# How often the program checks that its parent process is still the profile, s. The pipe tells the
# end at once, unless another process has inherited its other end.
_POLL_S: Final = 0.5
# How often processes are looked for while they end, s.
_LOOK_S: Final = 0.05


def mps_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables of the profile's MPS daemon and of its clients."""
    return {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
    }


def clean(folder: Path) -> None:
    """End tenants, then MPS, then whatever is left, and remove the folder; safe to call twice."""
    tenants, mps = f"{folder}/tenant", f"{folder}/mps"
    _wait(tenants, _TENANTS_S)
    _kill(tenants)
    if _marked(mps):
        _quit_mps(folder)
        _wait(mps, _END_S)
    _kill(str(folder))
    shutil.rmtree(folder, ignore_errors=True)


def _marked(prefix: str) -> list[psutil.Process]:
    """Return the processes whose mark begins with ``prefix``, without those that have ended."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # of other users; the environment of zombies is empty
            if process.environ().get(MARK, "").startswith(prefix):
                found.append(process)
    return found


def _wait(prefix: str, timeout_s: float) -> None:
    """Wait until no process has the mark, at most ``timeout_s`` seconds."""
    end_s = time.monotonic() + timeout_s
    while _marked(prefix) and time.monotonic() < end_s:
        time.sleep(_LOOK_S)


def _kill(prefix: str) -> None:
    for process in _marked(prefix):
        with suppress(psutil.Error):  # psutil checks that the id was not given to another process
            process.kill()
    _wait(prefix, _END_S)


def _quit_mps(folder: Path) -> None:
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(  # noqa: S603 - a program of NVIDIA's driver
            [CONTROL],
            input=b"quit\n",
            env=os.environ | mps_environment(folder) | {MARK: f"{folder}/mps"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_END_S,
            check=False,
        )


def main(pid: str, folder: str) -> None:
    """Wait for the end of the profile with this process id, and clean up its folder."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows lacks the last
        signal.signal(getattr(signal, name), signal.SIG_IGN)  # a batch system may send them to all
    while os.getppid() == int(pid):
        if select.select([0], [], [], _POLL_S)[0] and not os.read(0, 1):
            break
    clean(Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])

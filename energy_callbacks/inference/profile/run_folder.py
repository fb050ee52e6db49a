"""The temporary folder of a profile, its MPS daemon, and the process that cleans up after it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final, Self

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.inference.profile import cleaner

SHARE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Environment variable with the share of a process, in percent."""
# Time to start the MPS daemon, s; it takes 0.1 s on an H200.
_START_S: Final = 20.0
# Longest path of the folder for temporary files, in bytes. MPS has Unix sockets in the profile's
# folder, such as /ec-12345678/pipe/control_privileged; their paths have at most 107 bytes.
_LONGEST_PATH: Final = 107 - 36
# Longest time to wait for the cleaner, s: longer than all that it waits for.
_CLEAN_S: Final = 30.0


class RunFolder(AbstractContextManager["RunFolder"]):
    """A folder that exists while a profile runs.

    However this process ends, another process, the cleaner, ends all processes that have the
    folder's mark in their environment, and removes the folder.

    Attributes:
        path: the folder.
        has_mps: whether the profile's MPS daemon runs.

    Raises:
        ActuatorError: if the operating system is not Linux.
    """

    def __init__(self) -> None:
        _check_system()
        is_long = len(os.fsencode(tempfile.gettempdir())) > _LONGEST_PATH
        short = "/tmp" if is_long else None  # noqa: S108 - mkdtemp makes a new folder in it
        self.path: Final = Path(tempfile.mkdtemp(prefix="ec-", dir=short))
        self.has_mps = False
        self._cleaner = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-P", cleaner.__file__, str(os.getpid()), str(self.path)],
            stdin=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd="/",
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes of the profile, and remove the folder."""
        assert self._cleaner.stdin is not None
        self._cleaner.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._cleaner.wait(_CLEAN_S)
        cleaner.clean(self.path)  # finds nothing, unless the cleaner was killed

    def environment(self, role: str) -> dict[str, str]:
        """Return the environment of a process of the profile.

        Args:
            role: ``tenant`` or ``mps``.
        """
        mps = cleaner.mps_environment(self.path) if self.has_mps or role == "mps" else {}
        return {**os.environ, **mps, cleaner.MARK: f"{self.path}/{role}"}

    def start_mps(self, variables: Mapping[str, str]) -> None:
        """Start an MPS daemon of this profile only; the compute mode of the GPU is not changed.

        Args:
            variables: more environment variables for the daemon.

        Raises:
            ActuatorError: if the daemon does not start.
        """
        for folder in cleaner.mps_environment(self.path).values():
            Path(folder).mkdir()
        output = self.path / "mps.txt"  # not a pipe, which would stay open as long as the daemon
        try:
            with output.open("wb") as file:
                code = subprocess.run(  # noqa: S603 - a program of NVIDIA's driver
                    [cleaner.CONTROL, "-d"],
                    # The share of the daemon is an upper limit of those of its tenants.
                    env=self.environment("mps") | dict(variables) | {SHARE: "100"},
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    timeout=_START_S,
                    check=False,
                    start_new_session=True,
                ).returncode
        except FileNotFoundError as error:
            raise ActuatorError(
                f"shares need MPS, and {cleaner.CONTROL} is not in PATH",
                "install the utilities of NVIDIA's driver, or profile one tenant with share 100",
            ) from error
        except subprocess.TimeoutExpired as error:
            raise ActuatorError(f"MPS has not started within {_START_S:g} s") from error
        if code:
            text = output.read_text(encoding="utf-8", errors="replace").strip()
            raise ActuatorError(f"MPS does not start: {text or f'exit code {code}'}")
        self.has_mps = True


def _check_system() -> None:
    if sys.platform != "linux":
        raise ActuatorError(f"models share a device only on Linux, and this is {sys.platform}")

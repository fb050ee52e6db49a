"""Changes settings of NVIDIA cards by ``sudo -n nvidia-smi``; never asks for a password."""

import os
import shutil
import subprocess
from typing import Final

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.nvidia_card import NvidiaActuator
from energy_callbacks.powercap.settings import KnobRange, Setting
from energy_callbacks.sensing import time_limit

# Time limit for nvidia-smi, s. Without the persistence daemon, the driver takes one to three
# seconds to initialise each GPU (NVIDIA, "Driver Persistence"), and nvidia-smi initialises all.
_PATIENCE_S: Final = 30.0
_NEEDS: Final = (
    "it needs a rule of sudo that permits nvidia-smi without a password, for example "
    "'USER ALL=(root) NOPASSWD: /usr/bin/nvidia-smi' in a file of /etc/sudoers.d"
)


class NvidiaSmiActuator(NvidiaActuator):
    """Runs ``nvidia-smi`` as root through ``sudo -n``."""

    name = "nvidia-smi"
    needs = _NEEDS

    def _permission(self, uuid: str) -> tuple[bool | None, str]:
        """Ask sudo whether it permits nvidia-smi.

        ``sudo -l`` only lists what is permitted. It also lists commands for which sudo asks for a
        password.
        """
        missing = [name for name in ("sudo", "nvidia-smi") if shutil.which(name) is None]
        if missing:
            return False, f"{' and '.join(missing)} not found on the PATH"
        try:
            code, text = _run(["sudo", "-n", "-l", "nvidia-smi", "-i", uuid, "--power-limit=1"])
        except ActuatorError as error:
            return False, str(error)
        if code:
            return False, f"sudo does not permit nvidia-smi without a password: {text}"
        return None, "sudo permits nvidia-smi, perhaps with a password only"

    def _write(self, uuid: str, setting: Setting, within: KnobRange) -> None:
        command = ["sudo", "-n", "nvidia-smi", "-i", uuid, _option(setting, within)]
        code, text = _run(command)
        if code:
            raise ActuatorError(f"{uuid}: {' '.join(command)} fails: {text}", _NEEDS)


def _option(setting: Setting, within: KnobRange) -> str:
    """Return the option of nvidia-smi for a setting."""
    value = setting.value
    if setting.knob == "limit":
        return f"--power-limit={value:.2f}"
    clocks = "gpu-clocks" if setting.knob == "clock" else "memory-clocks"
    if value is None:
        return f"--reset-{clocks}"
    lowest_mhz = within.lowest if setting.knob == "clock" else value
    return f"--lock-{clocks}={lowest_mhz:.0f},{value:.0f}"


def _run(command: list[str]) -> tuple[int, str]:
    """Run a command, and return its exit status and the last line of its output.

    A process of sudo cannot be ended by its user. Therefore the time limit is that of a thread, and
    not that of ``subprocess``, which would end the process and wait for it.
    """

    def ended() -> tuple[int, str]:
        done = subprocess.run(  # noqa: S603 - a list of arguments, none from outside
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
        return done.returncode, (done.stdout.strip().splitlines() or ["no output"])[-1]

    try:
        return time_limit.within(_PATIENCE_S, ended, " ".join(command[:3]))
    except (OSError, TimeoutError) as error:
        raise ActuatorError(f"{' '.join(command[:3])} does not run ({error})") from error

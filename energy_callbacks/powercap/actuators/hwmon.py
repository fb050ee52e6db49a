"""Changes the power limit of AMD and Intel GPUs through files of hwmon, the kernel's sensors.

Limits are in microwatts (Linux, gpu/amdgpu/thermal.rst, and ABI/testing/sysfs-driver-intel-i915-
hwmon and -xe-hwmon). They last until the driver is loaded again.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.protocol import Actuator, Probe, check_limit
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.sources.sysfs.drm import text, whole
from energy_callbacks.sensing.sources.sysfs.family import sysfs_root

Answer = TypeVar("Answer")


# Files of a vendor's driver, by the vendor's PCI id: the limit, the lowest one (older versions of
# ``amdgpu`` always show 0), the highest one, and the one after the driver is loaded.
_FILES: Final = {
    "0x1002": ("power1_cap", "power1_cap_min", "power1_cap_max", "power1_cap_default"),
    # The sustained limit, PL1. Drivers accept values up to the rated limit, and state no lowest.
    "0x8086": ("power1_max", "", "power1_rated_max", "power1_rated_max"),
}
# Lowest limit as a share of the highest if the driver states none. It is our choice, near that of
# NVIDIA's cards (A100: 100 of 400 W, V100: 150 of 300 W).
_LOWEST: Final = 0.5
_UW_PER_W: Final = 1e6
_LEAST_W: Final = 1.0
_NEEDS: Final = "it needs an AMD or Intel GPU whose driver shows its power limit in hwmon"


class HwmonActuator(Actuator):
    """Writes the files of hwmon, if this process may write to them.

    A GPU is named by its PCI address, such as ``0000:03:00.0``, or by ``GPU-`` and the content of
    its file ``unique_id``, which AMD GPUs have.

    Args:
        root: folder such as ``/sys``; ``None`` for the one that the environment variable
            ``ENERGY_CALLBACKS_SYSFS`` names, or else ``/sys``.
    """

    name = "hwmon"

    def __init__(self, root: Path | None = None) -> None:
        self._root = root or sysfs_root()

    def probe(self, uuid: str) -> Probe:
        """See ``Actuator``."""
        try:
            self.range(uuid, "limit")
            file = self._files(uuid)[0]
        except ActuatorError as error:
            return Probe(
                actuator=self.name, knobs=(), can_write=False, needs=_NEEDS, found=str(error)
            )
        can_write = os.access(file, os.W_OK)
        found = f"{file} is {'writable' if can_write else 'not writable for this user'}"
        return Probe(
            actuator=self.name,
            knobs=("limit",),
            can_write=can_write,
            needs=_needs(file),
            found=found,
        )

    def range(self, uuid: str, knob: Knob) -> KnobRange:
        """See ``Actuator``; without a lowest limit of the driver, half of the highest is used."""
        if knob != "limit":
            raise ActuatorError(f"{self.name} cannot change {knob!r}", "it has limit")
        files = self._files(uuid)
        present_w, lowest_w, highest_w, default_w = _answered(
            uuid, lambda: list(map(_watts, files))
        )
        if not present_w:
            raise ActuatorError(
                f"{uuid}: the power limit in {files[0]} is disabled or cannot be read",
                "write a limit to the file as root; on an AMD card with two GPUs, name the other",
            )
        highest_w = max(highest_w, present_w)
        return KnobRange(
            knob="limit",
            lowest=min(lowest_w or _LOWEST * highest_w, present_w),
            highest=highest_w,
            present=present_w,
            default=default_w or None,
        )

    def write(self, uuid: str, setting: Setting) -> None:
        """See ``Actuator``. The lowest limit is not checked: one that was found may be below it."""
        self.range(uuid, setting.knob)
        if not setting.value or setting.value < _LEAST_W:
            raise ValueError(f"limit must be a power of at least 1 W, got {setting.value!r}")
        file, content = self._files(uuid)[0], f"{round(setting.value * _UW_PER_W)}"
        _answered(uuid, lambda: file.write_text(content, encoding="ascii"), _needs(file))
        check_limit(self, uuid, setting)

    def _files(self, uuid: str) -> list[Path]:
        """Return the files in ``_FILES`` of a GPU.

        Raises:
            ActuatorError: if there is no such GPU, or if it has no file with its limit.
        """
        devices = self._root / "bus/pci/devices"
        numbers = devices.glob("*/unique_id")
        named = (file.parent for file in numbers if f"GPU-{text(file)}" == uuid)
        folder = next(named, devices / uuid)
        if names := _FILES.get(text(folder / "vendor")):
            for limit in sorted(folder.glob(f"hwmon/hwmon*/{names[0]}")):
                return [limit.parent / name for name in names]
        raise ActuatorError(f"{uuid}: no power limit of an AMD or Intel GPU in {self._root}")


def _needs(file: Path) -> str:
    """Return what is needed to write a file, with a rule that permits it to a group."""
    chip = text(file.with_name("name"))
    change = f"chgrp video /sys%p/{file.name} && chmod g+w /sys%p/{file.name}"
    return (
        "it needs root, or this rule in a file of /etc/udev/rules.d, which permits changes to the "
        f'group video: SUBSYSTEM=="hwmon", ATTR{{name}}=="{chip}", RUN+="/bin/sh -c \'{change}\'" '
        "(in a container, /sys must be writable)"
    )


def _answered(uuid: str, ask: Callable[[], Answer], fix: str = "") -> Answer:
    """Return ``ask()``; raise ``ActuatorError`` if the driver refuses or does not answer."""
    try:
        return time_limit.within(time_limit.PATIENCE_S, ask, f"power limit of {uuid}")
    except (OSError, TimeoutError) as error:
        what = f"{uuid}: the power limit cannot be changed or read ({error})"
        raise ActuatorError(what, fix) from error


def _watts(file: Path) -> float:
    """Return the limit in a file, W; 0 if it does not exist or has no number."""
    return whole(text(file)) / _UW_PER_W

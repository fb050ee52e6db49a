"""Describes Intel GPUs, with the drivers ``i915`` and ``xe``.

Neither driver has a file for load or used memory. Their files for throttling state whether the
clock is reduced at the moment, but not for how long; they are not read.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from energy_callbacks.core.records import Device
from energy_callbacks.sensing.sources.sysfs.drm import cards, text
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor, FoundDevice
from energy_callbacks.sensing.sources.sysfs.hwmon import chip_name

_VENDOR: Final = "0x8086"
# hwmon chips of a whole device. Their energy is that of the GPU package, except where xe has the
# label ``card``, and where i915 also has chips of parts, ``i915_gt0`` and so on: these are included
# in that of the device (xe_hwmon.c; hwm_get_preregistration_info in i915_hwmon.c).
_CHIPS: Final = ("i915", "xe")
# Integrated GPUs have this address, and their virtual functions have other function numbers
# (igt-gpu-tools, igt_device_scan.h, INTEGRATED_I915_GPU_PCI_ID).
_INTEGRATED: Final = "0000:00:02."
_ABI: Final = "Linux, ABI/testing/sysfs-driver-intel-i915-hwmon and -xe-hwmon, "


_SENSORS: Final = (
    # Each read of the file adds the increase of a register of 32 bits to a sum of 64 bits, so that
    # the file does not wrap. It must be read before the register wraps twice: 4.36 minutes at
    # 1000 W (comment in i915_hwmon.c). 0 means that xe could not read its counter (xe_hwmon.c).
    FileSensor(
        "energy",
        ("{hwmon}/energy{channel}_input",),
        1e-6,
        _ABI + "energy1_input and energy2_input; bound assumed",
        kind="counter",
        missing=(0.0,),
        relative_error=0.1,
        # A register has 2**14 units for each J (same comment), and a read wakes a card that sleeps:
        # a counter that stands still has stopped.
        stale_s=5.0,
    ),
    FileSensor(
        "power_limit",
        ("{hwmon}/power1_max", "{hwmon}/power2_max"),
        1e-6,
        _ABI + "power1_max",
        missing=(0.0,),  # the limit is disabled
    ),
    # xe has the number 2 for the GPU package, i915 the number 1.
    FileSensor(
        "temperature", ("{hwmon}/temp2_input", "{hwmon}/temp1_input"), 1e-3, _ABI + "temp2_input"
    ),
    FileSensor(
        "clock",
        ("tile0/gt0/freq0/act_freq", "drm/card*/gt/gt0/rps_act_freq_mhz"),
        1e6,
        "Linux, gpu/xe/xe_gt_freq.rst; i915, intel_gt_sysfs_pm.c",
    ),
)


def _find(root: Path) -> Iterator[FoundDevice]:
    for pci, folder in cards(root, _VENDOR):
        chips = {chip_name(one): one for one in folder.glob("hwmon/hwmon*")}
        chip = next((chips[name] for name in _CHIPS if name in chips), None)
        is_card = "i915_gt0" in chips or (chip and text(chip / "energy1_label") == "card")
        is_package = chip and not is_card
        device = Device(
            key=f"gpu-{pci}",
            kind="gpu",
            scope="gpu",
            name=f"Intel GPU {text(folder / 'device').removeprefix('0x').upper()}",
            uuid=pci,
            notes=("energy of the GPU package, not of the whole card",) if is_package else (),
        )
        yield FoundDevice(
            device=device,
            folder=folder,
            pci=pci,
            is_integrated=chip is None and pci.startswith(_INTEGRATED),
            places=_places(chip) if chip else {},
        )


def _places(chip: Path) -> dict[str, str]:
    """Return the places of a chip: energy is that of the card, or of the package without it."""
    channel = "1" if (chip / "energy1_input").exists() else "2"
    return {"hwmon": f"hwmon/{chip.name}", "channel": channel}


INTEL_GPU: Final = Family(
    name="Intel GPU",
    find=_find,
    sensors=_SENSORS,
    absence_fix=(
        "integrated GPUs have no separate counter: RAPL measures them as a part of the CPU "
        "package. Other GPUs need Linux 6.2 (driver i915) or 6.8 (driver xe) and a physical "
        "function, because virtual functions have no sensors"
    ),
    covers="the whole card, or the GPU package if the driver has no counter of the card",
)

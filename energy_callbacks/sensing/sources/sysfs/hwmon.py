"""Finds sensors by the labels of hwmon, and describes NVIDIA Grace and ACPI power meters.

hwmon is the kernel's interface to the sensors of a machine. Each chip has a folder with the file
``name``, and the labels of its channels state what they measure.

Left out are ``amd_energy``, because RAPL reads the same counters, the sensors of IBM POWER servers,
because the kernel does not document their labels, and X-Gene, because it is not documented which
parts of the machine its two sensors include.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from energy_callbacks.core.records import Device
from energy_callbacks.sensing.scopes import NAMED_MACHINE
from energy_callbacks.sensing.sources.sysfs.drm import text
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor, FoundDevice

# Folders of chips. The second is for the driver of Jetson Linux 32, which uses IIO (Linux's
# interface to industrial sensors).
_CHIPS: Final = ("class/hwmon/hwmon*", "bus/i2c/drivers/ina3221x/*/iio:device*")
# Files with a label: of a channel, whose number is part of the name, or of a chip with one channel
# (Linux, hwmon/sysfs-interface.rst and hwmon/acpi_power_meter.rst; ina3221x.c of Jetson Linux).
# In older kernels, the files of ACPI meters are in ``device``.
_LABELS: Final = (
    *("in*_label", "label", "rail_name_*"),
    *("power*_oem_info", "device/power*_oem_info"),
)


def labelled(
    root: Path, chips: str, table: Mapping[str, Device]
) -> Iterator[tuple[Device, Path, str]]:
    """Yield (device, folder of the chip, number of the channel) for each label in a table.

    The folders have no links in their paths.

    Args:
        root: folder such as ``/sys``.
        chips: regular expression for the names of the chips.
        table: for each regular expression for a label, the device. ``{}`` in its key and name
            stands for the first group of the expression, or for the label if there is no group.
    """
    for folder in sorted(link.resolve() for place in _CHIPS for link in root.glob(place)):
        if not re.fullmatch(chips, chip_name(folder)):
            continue
        for file in sorted(file for pattern in _LABELS for file in folder.glob(pattern)):
            number = re.search(r"\d+", file.name)
            for pattern, device in table.items():
                if match := re.fullmatch(pattern, text(file)):
                    shown = match[match.lastindex or 0]
                    key, name = device.key.format(shown.lower()), device.name.format(shown)
                    yield replace(device, key=key, name=name), folder, number[0] if number else "1"


def chip_name(folder: Path) -> str:
    """Return the name of a chip, such as ``i915``; empty if it has none."""
    return text(folder / "name") or text(folder / "device/name")


_METER: Final = "power_meter"
# The driver multiplies the milliwatts of the firmware by 1000. 0xFFFFFFFF mW means that the power
# is not known; newer kernels return an error instead.
_AVERAGE: Final = FileSensor(
    "power",
    ("power1_average", "device/power1_average"),
    1e-6,
    "Linux, hwmon/acpi_power_meter.rst and acpi_power_meter.c; bound assumed",
    missing=(0xFFFFFFFF * 1e3,),
    relative_error=0.1,
)
# The firmware averages over 50 ms, unless power1_average_interval is changed to 1 s, and the driver
# asks for a new value after the same time. A value belongs to the middle of its window, and is on
# average half a period old when it is read.
_GRACE_AVERAGE: Final = replace(
    _AVERAGE,
    period_s=0.05,
    window_s=0.05,
    lag_s=0.05,
    citation="NVIDIA Grace Performance Tuning Guide, Power Telemetry; times: power meters of TH500 "
    "in NVIDIA's edk2-nvidia; bound assumed",
)
# "CPU Power Socket" and "SysIO Power Socket" are parts of "Grace Power Socket".
_SOCKETS: Final = {
    r"Module Power Socket (\d+)": Device(
        key="module{}",
        kind="machine",
        scope="machine",
        name="NVIDIA Grace module {}",
        parent=NAMED_MACHINE,
        notes=("CPU, GPU, their memory and the losses of voltage regulators",),
    ),
    r"Grace Power Socket (\d+)": Device(
        key="cpu{}",
        kind="cpu",
        scope="host",
        name="NVIDIA Grace CPU {}",
        notes=("includes the memory of the CPU",),
    ),
}
_OTHER_METERS: Final = {
    "(?!.* Power Socket ).*": Device(
        key=NAMED_MACHINE, kind="machine", scope="machine", name="whole machine (ACPI)"
    )
}


def _find_grace(root: Path) -> Iterator[FoundDevice]:
    for device, folder, _ in labelled(root, _METER, _SOCKETS):
        yield FoundDevice(device=device, folder=folder)


def _find_meter(root: Path) -> list[FoundDevice]:
    """Return the ACPI power meter of the machine, if there is one that is not of a battery.

    If there are several, none is used, because it is not known whether one includes another.
    """
    found = [
        FoundDevice(device=device, folder=folder)
        for device, folder, _ in labelled(root, _METER, _OTHER_METERS)
        if "1" not in (text(folder / f"{place}power1_is_battery") for place in ("", "device/"))
    ]
    return found if len(found) == 1 else []


GRACE: Final = Family(
    name="NVIDIA Grace",
    find=_find_grace,
    sensors=(_GRACE_AVERAGE,),
    absence_fix="load the kernel module acpi_power_meter",
    covers="a CPU with its memory; a module of CPU, GPU and their memory",
    included_kinds=("cpu", "dram"),
)
ACPI_METER: Final = Family(
    name="ACPI power meter",
    find=_find_meter,
    sensors=(_AVERAGE,),
    absence_fix="load the kernel module acpi_power_meter; if the machine has no such meter, its "
    "power may be available through IPMI",
    covers="the whole machine",
)

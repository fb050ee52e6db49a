"""Adds hosts whose power is in hwmon to a tree: NVIDIA Grace and ACPI power meters.

Sources: Documentation/hwmon/acpi_power_meter.rst; NVIDIA Grace Performance Tuning Guide, Power
Telemetry.
"""

from tests.sensing.sources.trees.devices import MICRO, hwmon
from tests.sensing.sources.trees.live_files import LiveDevice, number
from tests.sensing.sources.trees.tree import Tree


def grace_socket(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a socket of an NVIDIA Grace CPU, with the files of newer kernels."""
    return _meter(tree, index, f"Grace Power Socket {index}", start_j)


def grace_module(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add an NVIDIA Grace Hopper module, with the files of newer kernels."""
    return _meter(tree, index, f"Module Power Socket {index}", start_j)


def acpi_meter(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add the ACPI power meter of a server."""
    return _meter(tree, index, "", start_j)


def _meter(tree: Tree, index: int, label: str, start_j: float) -> LiveDevice:
    folder = f"devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:{index:02d}"
    files = {"power1_oem_info": label, "power1_is_battery": 0, "power1_average_interval": 50}
    path = hwmon(tree, folder, index, "power_meter", files)
    power = number(f"{path.removeprefix(f'{folder}/')}/power1_average", "power", MICRO)
    return LiveDevice(folder=folder, files=(power,), start_j=start_j)

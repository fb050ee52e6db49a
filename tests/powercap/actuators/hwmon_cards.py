"""GPUs of AMD and Intel as small trees of files, such as ``/sys`` has them.

Files and units: Linux, gpu/amdgpu/thermal.rst, gpu/amdgpu/driver-misc.rst (``unique_id``), and
ABI/testing/sysfs-driver-intel-i915-hwmon.
"""

from pathlib import Path
from typing import Final

ADDRESSES: Final = ("0000:03:00.0", "0000:83:00.0")


def amd_card(root: Path, address: str = ADDRESSES[0], **changes: str) -> Path:
    """Add an AMD GPU with a limit of 700 W, 200 to 700 W; return the file with its limit."""
    limits = {
        "power1_cap": "700000000",
        "power1_cap_min": "200000000",
        "power1_cap_max": "700000000",
        "power1_cap_default": "700000000",
    }
    _write(root, address, vendor="0x1002")
    return _write(root, address, "hwmon/hwmon4", name="amdgpu", **limits | changes) / "power1_cap"


def intel_card(root: Path, address: str = ADDRESSES[1], **changes: str) -> Path:
    """Add an Intel GPU with a limit of 190 W, which is the rated one, and return its file."""
    limits = {"power1_max": "190000000", "power1_rated_max": "190000000"}
    _write(root, address, vendor="0x8086")
    _write(root, address, "hwmon/hwmon2", name="i915_gt0", energy1_input="5")
    return _write(root, address, "hwmon/hwmon3", name="i915", **limits | changes) / "power1_max"


def set_unique_id(root: Path, address: str, text: str) -> None:
    """Give an AMD GPU a number of its own."""
    _write(root, address, unique_id=text)


def _write(root: Path, address: str, folder: str = "", **files: str) -> Path:
    path = root / "bus/pci/devices" / address / folder
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(f"{text}\n")
    return path

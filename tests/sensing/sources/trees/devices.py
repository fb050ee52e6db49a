"""Adds known devices to a tree, with the files that the kernel documents for them.

Sources: Documentation/gpu/amdgpu/thermal.rst, Documentation/ABI/testing/sysfs-driver-intel-i915-
hwmon and -xe-hwmon, Documentation/hwmon/ina3221.rst, Documentation/power/powercap/powercap.rst.
"""

from collections.abc import Callable, Mapping
from typing import Final

from tests.sensing.sources.trees.live_files import LiveDevice, number
from tests.sensing.sources.trees.tree import Files, Tree

MICRO: Final = 1e-6
MILLI: Final = 1e-3
RAPL_RANGE_UJ: Final = 262_143_328_850


def drm_card(tree: Tree, index: int, ids: Files, *, driver: str, pci: str) -> str:
    """Add a card with its links below ``class/drm``, and return its folder.

    A connector is added too, which has a folder with a similar name.

    Args:
        tree: the tree.
        index: number of the card.
        ids: files of the PCI device, such as ``vendor``.
        driver: name of the kernel driver.
        pci: PCI address, such as ``0000:03:00.0``.
    """
    folder = f"devices/pci0000:00/{pci}"
    tree.write({"uevent": f"DRIVER={driver}\nPCI_SLOT_NAME={pci}", **ids}, folder)
    card = f"{folder}/drm/card{index}"
    tree.write({"dev": f"226:{index}", f"card{index}-DP-1/status": "connected"}, card)
    tree.link(f"{card}/device", folder)
    tree.link(f"class/drm/card{index}", card)
    tree.link(f"class/drm/card{index}-DP-1", f"{card}/card{index}-DP-1")
    tree.link(f"bus/pci/devices/{pci}", folder)
    tree.link(f"{folder}/driver", f"bus/pci/drivers/{driver}")
    return folder


def hwmon(tree: Tree, folder: str, index: int, name: str, files: Files) -> str:
    """Add a hwmon folder to a device with its link below ``class/hwmon``, and return its path."""
    path = f"{folder}/hwmon/hwmon{index}"
    tree.write({"name": name, **files}, path)
    tree.link(f"{path}/device", folder)
    tree.link(f"class/hwmon/hwmon{index}", path)
    return path


def amd_gpu(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a discrete AMD GPU without energy counter (RX 7900 XTX)."""
    pci = f"0000:{3 + index:02x}:00.0"
    ids: Files = {
        "vendor": "0x1002",
        "device": "0x744c",
        "unique_id": f"{0xA1B2C3D400000000 + index:016x}",
        "mem_info_vram_total": 25_753_026_560,
        "mem_info_vram_used": 2**30,
        "gpu_busy_percent": 50,
    }
    folder = drm_card(tree, index, ids, driver="amdgpu", pci=pci)
    sensors: Files = {
        "temp1_input": 56000,
        "temp1_label": "edge",
        "temp2_input": 73000,
        "temp2_label": "junction",
        "freq1_input": 2_304_000_000,
        "freq1_label": "sclk",
        "power1_cap": 339_000_000,
        "power1_label": "PPT",
    }
    hwmon(tree, folder, index, "amdgpu", sensors)
    power = number(f"hwmon/hwmon{index}/power1_average", "power", MICRO)
    return LiveDevice(folder=folder, files=(power,), start_j=start_j)


def intel_gpu(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a discrete Intel GPU of the driver i915 (Arc A770)."""
    pci = f"0000:{3 + index:02x}:00.0"
    ids = {"vendor": "0x8086", "device": "0x56a0"}
    folder = drm_card(tree, index, ids, driver="i915", pci=pci)
    tree.write({f"drm/card{index}/gt/gt0/rps_act_freq_mhz": 2400}, folder)
    hwmon(tree, folder, index, "i915", {"power1_max": 190_000_000})
    hwmon(tree, folder, 100 + index, "i915_gt0", {"energy1_input": 5_000_000})
    energy = number(f"hwmon/hwmon{index}/energy1_input", "energy", MICRO)
    return LiveDevice(folder=folder, files=(energy,), start_j=start_j)


def xe_gpu(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a discrete Intel GPU of the driver xe (Arc B580), with energy of card and package."""
    pci = f"0000:{3 + index:02x}:00.0"
    ids = {"vendor": "0x8086", "device": "0xe20b"}
    folder = drm_card(tree, index, ids, driver="xe", pci=pci)
    tree.write({"tile0/gt0/freq0/act_freq": 2850}, folder)
    labels: Files = {"energy1_label": "card", "energy2_label": "pkg", "power1_max": 190_000_000}
    hwmon(tree, folder, index, "xe", labels)
    inside = f"hwmon/hwmon{index}"
    energy = number(f"{inside}/energy1_input", "energy", MICRO)
    package = number(f"{inside}/energy2_input", "", MICRO)
    return LiveDevice(folder=folder, files=(energy, package), start_j=start_j)


def ina3221(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a chip that measures voltage and current of three rails, as on a Jetson Orin NX.

    The power of the device is that of the board, rail ``VDD_IN``, at 5 V. The other rails have 40 %
    and 20 % of it.
    """
    folder = f"bus/i2c/drivers/ina3221/1-{40 + index}"
    labels = {"in1_label": "VDD_IN", "in2_label": "VDD_CPU_GPU_CV", "in3_label": "VDD_SOC"}
    volts = {f"in{rail}_input": 5000 for rail in (1, 2, 3)}
    path = hwmon(tree, folder, index, "ina3221", {**labels, **volts})
    inside = path.removeprefix(f"{folder}/")
    board = number(f"{inside}/curr1_input", "power", MILLI * 5.0)
    rails = (
        number(f"{inside}/curr{rail}_input", "power", MILLI * 5.0 / share)
        for rail, share in ((2, 0.4), (3, 0.2))
    )
    return LiveDevice(folder=folder, files=(board, *rails), start_j=start_j)


def rapl_package(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a CPU package of RAPL, whose counter wraps."""
    folder = f"devices/virtual/powercap/intel-rapl/intel-rapl:{index}"
    tree.write({"name": f"package-{index}", "max_energy_range_uj": RAPL_RANGE_UJ}, folder)
    tree.link(f"class/powercap/intel-rapl:{index}", folder)
    energy = number("energy_uj", "energy", MICRO, wrap=RAPL_RANGE_UJ)
    return LiveDevice(folder=folder, files=(energy,), start_j=start_j)


MakeDevice = Callable[..., LiveDevice]
KINDS: Final[Mapping[str, MakeDevice]] = {
    "amd": amd_gpu,
    "i915": intel_gpu,
    "xe": xe_gpu,
    "jetson": ina3221,
    "rapl": rapl_package,
}
"""Devices by name, for ``python -m tests.sensing.sources.trees``."""

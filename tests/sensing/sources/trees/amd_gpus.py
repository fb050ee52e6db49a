"""Adds AMD GPUs to a tree: accelerators with energy counter, a card of two dies, and an APU.

The files are those of ``Documentation/gpu/amdgpu/thermal.rst`` and ``driver-misc.rst``, and which
of them a GPU has is decided by ``hwmon_attributes_visible`` and ``default_attr_update`` in
``drivers/gpu/drm/amd/pm/amdgpu_pm.c`` of Linux 6.12. ``devices.amd_gpu`` is a graphics card.
"""

from dataclasses import replace
from typing import Final

from tests.sensing.sources.trees.devices import MICRO, amd_gpu, drm_card, hwmon
from tests.sensing.sources.trees.gpu_metrics import gpu_metrics
from tests.sensing.sources.trees.live_files import LiveDevice, LiveFile, State, number
from tests.sensing.sources.trees.tree import Files, Tree

UNIT_J: Final = 2.0**-16
GIB: Final = 2**30


def metrics(revision: tuple[int, int], *, bits: int = 64, gain: float = 1.0) -> LiveFile:
    """The file ``gpu_metrics`` of a layout, whose counter has 32 or 64 bits.

    Args:
        revision: revision of the layout.
        bits: size of the counter.
        gain: what the counter counts, as a share of the energy.
    """

    def content(state: State) -> bytes:
        units = round(gain * state.energy_j / UNIT_J) % 2**bits
        clock_ns = round(state.t_s * 1e9)
        return gpu_metrics(revision, energy_accumulator=units, system_clock_counter=clock_ns)

    wrap = 2**bits - 1 if bits < 64 else None  # 64 bits are 12 000 years at 750 W
    return LiveFile(path="gpu_metrics", content=content, quantity="energy", wrap=wrap, unit=UNIT_J)


def navi(tree: Tree, index: int = 0, *, start_j: float = 5000.0) -> LiveDevice:
    """Add a graphics card whose counter has 32 bits, as those of RDNA 2."""
    card = amd_gpu(tree, index)
    return replace(card, files=(*card.files, metrics((1, 3), bits=32)), start_j=start_j)


def mi300x(
    tree: Tree,
    index: int = 0,
    *,
    start_j: float = 1e6,
    revision: tuple[int, int] = (1, 6),
    gain: float = 1.0,
) -> LiveDevice:
    """Add an MI300X: instantaneous power and a counter of 64 bits."""
    ids: Files = {
        "vendor": "0x1002",
        "device": "0x74a1",
        "revision": "0x00",
        "unique_id": f"{0x5A0D000000000000 + index:016x}",
        "product_name": "AMD Instinct MI300X OAM",
        "current_compute_partition": "SPX",
        "gpu_busy_percent": 97,
        "mem_busy_percent": 41,
        "mem_info_vram_total": 192 * GIB,
        "mem_info_vram_used": 80 * GIB,
        "mem_info_gtt_total": 1000 * GIB,
        "mem_info_gtt_used": GIB,
    }
    folder = drm_card(tree, index, ids, driver="amdgpu", pci=f"0000:{0x0C + 16 * index:02x}:00.0")
    sensors: Files = {
        "temp2_input": 71000,
        "temp2_label": "junction",
        "temp3_input": 52000,
        "temp3_label": "mem",
        "freq1_input": 2_100_000_000,
        "freq2_input": 1_300_000_000,
        "power1_cap": 750_000_000,
    }
    hwmon(tree, folder, index, "amdgpu", sensors)
    power = number(f"hwmon/hwmon{index}/power1_input", "power", MICRO)
    files = (power, metrics(revision, gain=gain))
    return LiveDevice(folder=folder, files=files, start_j=start_j)


def mi250x(tree: Tree, index: int = 0, *, start_j: float = 1e6) -> LiveDevice:
    """Add an MI250X, which is two GPUs; return the first die, which measures both."""
    first = _die(tree, 2 * index, {"power1_cap": 560_000_000})
    second = _die(tree, 2 * index + 1, {"power1_cap": 0, "power1_average": 0})
    tree.set(f"{second}/gpu_metrics", gpu_metrics((1, 3), energy_accumulator=0))
    power = number(f"hwmon/hwmon{2 * index}/power1_average", "power", MICRO)
    return LiveDevice(folder=first, files=(power, metrics((1, 3))), start_j=start_j)


def _die(tree: Tree, index: int, sensors: Files) -> str:
    ids: Files = {
        "vendor": "0x1002",
        "device": "0x7408",
        "unique_id": f"{0x2500000000000000 + index:016x}",
        "gpu_busy_percent": 88,
        "mem_info_vram_total": 64 * GIB,
        "mem_info_vram_used": GIB,
    }
    pci = f"0000:{0xC1 + 5 * index:02x}:00.0"
    folder = drm_card(tree, index, ids, driver="amdgpu", pci=pci)
    hwmon(tree, folder, index, "amdgpu", {"temp2_input": 60000, **sensors})
    return folder


def apu(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add the GPU of an APU (Ryzen AI Max): no counter, a small VRAM, most memory in GTT."""
    ids: Files = {
        "vendor": "0x1002",
        "device": "0x1586",
        "gpu_busy_percent": 60,
        "mem_info_vram_total": GIB // 2,
        "mem_info_vram_used": GIB // 4,
        "mem_info_gtt_total": 64 * GIB,
        "mem_info_gtt_used": 30 * GIB,
        "gpu_metrics": b"\x08\x01\x03\x00" + b"\xff" * 260,
    }
    folder = drm_card(tree, index, ids, driver="amdgpu", pci=f"0000:{0xC5 + index:02x}:00.0")
    sensors: Files = {
        "temp1_input": 58000,
        "temp1_label": "edge",
        "in0_label": "vddgfx",
        "in1_label": "vddnb",
        "freq1_input": 2_900_000_000,
    }
    hwmon(tree, folder, index, "amdgpu", sensors)
    power = number(f"hwmon/hwmon{index}/power1_input", "power", MICRO)
    return LiveDevice(folder=folder, files=(power,), start_j=start_j)

"""Lists the GPUs whose sensors are files: those of all vendors except NVIDIA.

The host has one list of GPUs. NVIDIA's cards are first and have NVML's indices. The others follow,
discrete before integrated ones, both in the order of their PCI addresses.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from energy_callbacks.sensing.gpus.devices import GpuInfo
from energy_callbacks.sensing.gpus.level_zero import IntelGpu
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.drm import text
from energy_callbacks.sensing.sources.sysfs.family import Family, FoundDevice

_INTEL: Final = "0x8086"


class DrmGpu(NamedTuple):
    """A GPU with its sensors.

    Attributes:
        info: index, UUID and PCI address.
        family: family of its sensors.
        found: the device with its folder; its key is that of ``info``.
    """

    info: GpuInfo
    family: Family
    found: FoundDevice


def inventory(root: Path) -> tuple[DrmGpu, ...]:
    """Return all GPUs of the machine except NVIDIA's.

    Args:
        root: folder such as ``/sys``.
    """
    found = [(family, one) for family in families.GPU_FAMILIES for one in family.find(root)]
    found.sort(key=lambda pair: (pair[1].is_integrated, pair[1].pci or str(pair[1].folder)))
    first = nvidia_count(root)
    return tuple(_gpu(first + i, family, one) for i, (family, one) in enumerate(found))


def _gpu(index: int, family: Family, found: FoundDevice) -> DrmGpu:
    device, address = found.device, found.pci or str(found.folder)
    info = GpuInfo(index=index, uuid=device.uuid or address, name=device.name, pci_bus_id=address)
    device = replace(device, key=info.key, index=index, uuid=info.uuid)
    return DrmGpu(info, family, replace(found, device=device))


def nvidia_count(root: Path) -> int:
    """Return the number of cards that NVIDIA's driver controls, without asking the driver.

    A driver that hangs therefore changes no index.

    Args:
        root: folder such as ``/sys``.
    """
    # Audio functions of a card have another driver; virtual functions (vGPU) are no cards.
    cards = (root / "bus/pci/drivers/nvidia").glob("*:*:*.*")
    return sum(not (card / "physfn").exists() for card in cards)


def with_meters(chosen: Sequence[DrmGpu], gpus: Sequence[DrmGpu]) -> list[DrmGpu]:
    """Return the chosen GPUs, and those of ``gpus`` that measure the energy of a chosen one."""
    meters = {gpu.found.energy_pci for gpu in chosen} - {None}
    return [*chosen, *(gpu for gpu in gpus if gpu.found.pci in meters and gpu not in chosen)]


def intel(gpus: Sequence[DrmGpu]) -> list[IntelGpu]:
    """Return Intel's GPUs among ``gpus``, with the number of their tiles."""
    return [
        IntelGpu(gpu.info.pci_bus_id, gpu.found.is_integrated, _tiles(gpu.found))
        for gpu in gpus
        if text(gpu.found.folder / "vendor") == _INTEL
    ]


def _tiles(found: FoundDevice) -> int:
    """Return the number of tiles of a GPU.

    The driver xe has a folder for each (Linux, ``xe_tile_sysfs.c``). i915 has a folder for each GT;
    on discrete GPUs that is a tile, on integrated ones it may be for media (``intel_gt_sysfs.c``).
    """
    tiles = len(list(found.folder.glob("tile[0-9]*")))
    if not (tiles or found.is_integrated):
        tiles = len(list(found.folder.glob("drm/card*/gt/gt[0-9]*")))
    return max(tiles, 1)

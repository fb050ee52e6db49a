"""Finds the order of Intel's GPUs in Level Zero and ``torch.xpu``, without initialising them.

Level Zero numbers discrete GPUs before integrated ones, both in the order of their PCI addresses
(intel/compute-runtime, ``comparePciIdBusNumber``). By default, each tile of a GPU is a device
(Level Zero specification, "ZE_FLAT_DEVICE_HIERARCHY"). Masks only remove devices; the order stays.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple


class IntelGpu(NamedTuple):
    """A GPU as Level Zero sees it.

    Attributes:
        pci: PCI address, such as ``0000:3b:00.0``.
        is_integrated: whether it is part of a processor.
        tiles: number of its tiles.
    """

    pci: str
    is_integrated: bool
    tiles: int


_Devices = Sequence[tuple[IntelGpu, int | None]]
"""Devices of Level Zero: a GPU with the number of its tile, or ``None`` for the whole GPU."""
_TERM: Final = re.compile(r"(!?)(\*|[a-z_]+):(.+)")


def visible(environment: Mapping[str, str], gpus: Sequence[IntelGpu]) -> tuple[str, ...]:
    """Return the PCI addresses of the devices ``xpu:0``, ``xpu:1``, ..., one for each tile.

    PyTorch uses integrated GPUs only if no discrete one is visible (``c10/xpu/XPUFunctions.cpp``).

    Args:
        environment: environment variables, which may contain masks.
        gpus: all Intel GPUs of the machine.
    """
    by_address = environment.get("ZE_ENABLE_PCI_ID_DEVICE_ORDER") == "1"
    ordered = sorted(gpus, key=lambda gpu: (gpu.is_integrated and not by_address, gpu.pci))
    devices = _affinity(environment, ordered)
    selector = environment.get("ONEAPI_DEVICE_SELECTOR", "").lower()
    shown = [gpu for gpu, _ in (_chosen(selector, devices) if selector else devices)]
    discrete = [gpu.pci for gpu in shown if not gpu.is_integrated]
    return tuple(discrete or [gpu.pci for gpu in shown])


def _affinity(environment: Mapping[str, str], gpus: Sequence[IntelGpu]) -> _Devices:
    """Return the devices that ``ZE_AFFINITY_MASK`` leaves.

    If tiles are devices, the entries are numbers of tiles over all GPUs, and entries such as
    ``0.1`` are ignored. If whole GPUs are devices (``ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE``), ``0.1``
    is a tile of GPU 0 (intel/compute-runtime, ``parseAffinityMask``).
    """
    are_whole = environment.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE"
    devices: _Devices = [
        (gpu, None if are_whole else tile)
        for gpu in gpus
        for tile in range(1 if are_whole else gpu.tiles)
    ]
    mask = environment.get("ZE_AFFINITY_MASK", "")
    if mask in ("", "default"):
        return devices
    numbers = [entry.strip().partition(".") for entry in mask.split(",")]
    kept = {
        number
        for number, _, tile in numbers
        if not tile or (are_whole and _is_tile(number, tile, gpus))
    }
    return [device for number, device in enumerate(devices) if str(number) in kept]


def _is_tile(number: str, tile: str, gpus: Sequence[IntelGpu]) -> bool:
    are_numbers = number.isdecimal() and tile.isdecimal() and int(number) < len(gpus)
    return are_numbers and int(tile) < gpus[int(number)].tiles


def _chosen(selector: str, devices: _Devices) -> _Devices:
    """Return the devices that ``ONEAPI_DEVICE_SELECTOR`` leaves.

    The selector is a list of terms such as ``level_zero:0,1``. A term that begins with ``!``
    removes devices; if all terms do, they remove from all devices (DPC++, "Environment
    Variables").
    """
    terms = [match for term in selector.split(";") if (match := _TERM.fullmatch(term.strip()))]
    ours = [
        (sign, names)
        for sign, backend, names in (term.groups() for term in terms)
        if backend in ("*", "level_zero")
    ]
    accepted = [names for sign, names in ours if not sign]
    if not any(not term[1] for term in terms):
        accepted = ["*"]
    removed = [names for sign, names in ours if sign]
    return [
        device
        for number, device in enumerate(devices)
        if _is_named(number, accepted) and not _is_named(number, removed)
    ]


def _is_named(number: int, lists: Sequence[str]) -> bool:
    """Return whether one of the lists names a device by number, by ``*`` or by its type.

    A part of a device, such as ``0.1``, counts as the device.
    """
    names = {name.strip().partition(".")[0] for one in lists for name in one.split(",")}
    return bool(names & {str(number), "*", "gpu"})

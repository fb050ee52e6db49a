"""Finds the order of Intel's GPUs in Level Zero and ``torch.xpu``, without initialising them.

Level Zero numbers discrete GPUs before integrated ones, both in the order of their PCI addresses
(intel/compute-runtime, ``comparePciIdBusNumber``). By default, each tile of a GPU is a device
(Level Zero specification, "ZE_FLAT_DEVICE_HIERARCHY"). Masks only remove devices; the order stays.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

_TERM: Final = re.compile(r"(!?)(\*|[a-z_]+):(.+)")
_Environment = Mapping[str, str]


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


def visible(environment: _Environment, gpus: Sequence[IntelGpu]) -> tuple[str, ...]:
    """Return the PCI addresses of the devices ``xpu:0``, ``xpu:1``, ..., one for each tile.

    PyTorch uses integrated GPUs only if no discrete one is visible (``c10/xpu/XPUFunctions.cpp``).

    Args:
        environment: environment variables, which may contain masks.
        gpus: all Intel GPUs of the machine.
    """
    by_address = environment.get("ZE_ENABLE_PCI_ID_DEVICE_ORDER") == "1"
    ordered = sorted(gpus, key=lambda gpu: (gpu.is_integrated and not by_address, gpu.pci))
    shown = _selected(environment, _unmasked(environment, ordered))
    discrete = tuple(gpu.pci for gpu in shown if not gpu.is_integrated)
    return discrete or tuple(gpu.pci for gpu in shown)


def _unmasked(environment: _Environment, gpus: Sequence[IntelGpu]) -> Sequence[IntelGpu]:
    """Return the GPU of each device that ``ZE_AFFINITY_MASK`` leaves.

    If tiles are devices, the entries are numbers of tiles over all GPUs, and entries such as
    ``0.1`` are ignored. If whole GPUs are devices (``ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE``), ``0.1``
    is a part of GPU 0 (intel/compute-runtime, ``parseAffinityMask``).
    """
    are_whole = environment.get("ZE_FLAT_DEVICE_HIERARCHY") == "COMPOSITE"
    devices = [gpu for gpu in gpus for _ in range(1 if are_whole else gpu.tiles)]
    mask = environment.get("ZE_AFFINITY_MASK", "")
    if mask in ("", "default"):
        return devices
    entries = [entry.strip().partition(".") for entry in mask.split(",")]
    kept = {number for number, _, tile in entries if are_whole or not tile}
    return [gpu for number, gpu in enumerate(devices) if str(number) in kept]


def _selected(environment: _Environment, devices: Sequence[IntelGpu]) -> Sequence[IntelGpu]:
    """Return the devices that ``ONEAPI_DEVICE_SELECTOR`` leaves.

    The selector is a list of terms such as ``level_zero:0,1``. A term that begins with ``!``
    removes devices; if all terms do, they remove from all devices (DPC++, "Environment
    Variables").
    """
    selector = environment.get("ONEAPI_DEVICE_SELECTOR", "").lower()
    terms = [found.groups() for term in selector.split(";") if (found := _TERM.fullmatch(term))]
    ours = [(sign, names) for sign, backend, names in terms if backend in ("*", "level_zero")]
    accepted = [names for sign, names in ours if not sign]
    accepts_all = all(sign for sign, _, _ in terms)
    removed = [names for sign, names in ours if sign]
    return [
        gpu
        for number, gpu in enumerate(devices)
        if (accepts_all or _is_named(number, accepted)) and not _is_named(number, removed)
    ]


def _is_named(number: int, lists: Sequence[str]) -> bool:
    """Return whether one of the lists names a device by number, by ``*`` or by its type.

    A part of a device, such as ``0.1``, counts as the device.
    """
    names = {name.strip().partition(".")[0] for one in lists for name in one.split(",")}
    return bool(names & {str(number), "*", "gpu"})

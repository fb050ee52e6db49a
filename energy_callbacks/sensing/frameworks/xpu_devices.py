"""Queries PyTorch about the Intel GPUs of this process, if it has initialised them."""

import sys
from typing import Any, Final

_INTEL: Final = b"\x86\x80"  # PCI vendor id 0x8086, little endian


def pci_addresses() -> tuple[str, ...] | None:
    """Return the PCI addresses of the devices ``xpu:0``, ``xpu:1``, ..., as in ``0000:3b:00.0``.

    ``None`` if ``torch.xpu`` is not initialised in this process, or its UUIDs contain no address.
    """
    torch: Any = sys.modules.get("torch")
    xpu = getattr(torch, "xpu", None)  # the oldest supported PyTorch has no torch.xpu
    if xpu is None or not xpu.is_initialized():
        return None
    properties = [xpu.get_device_properties(ordinal) for ordinal in range(xpu.device_count())]
    # Before PyTorch 2.5, the properties have no UUID.
    known = tuple(_address(bytes(getattr(one, "uuid", b""))) for one in properties)
    return tuple(filter(None, known)) if all(known) else None


def _address(uuid: bytes) -> str:
    """Return the address in a UUID; empty if there is none.

    The UUID consists of vendor, device and revision id, PCI domain (2 bytes each, little endian),
    bus, device and function (1 byte each), and the number of the tile (intel/compute-runtime,
    ``generateUuidFromPciBusInfo``). Drivers of some GPUs make it from a serial number.

    >>> _address(bytes.fromhex("8680 0be2 0000 0000 03 00 00 00000000 00"))
    '0000:03:00.0'
    """
    if len(uuid) < 11 or not uuid.startswith(_INTEL):
        return ""
    domain = int.from_bytes(uuid[6:8], "little")
    return f"{domain:04x}:{uuid[8]:02x}:{uuid[9]:02x}.{uuid[10]}"

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from energy_callbacks.sensing.frameworks import xpu_devices

# Vendor, device, revision, domain; bus, device, function, four unused bytes; tile.
A = bytes.fromhex("8680 0be2 0000 000003 00 00 00000000 00")
TILE = bytes.fromhex("8680 d50b 2f00 01008a 1f 02 00000000 02")
OF_SERIAL_NUMBER = bytes.fromhex("1234567890abcdef0000000000000000")


def pretend(monkeypatch: pytest.MonkeyPatch, *uuids: Any, is_initialized: bool = True) -> None:
    """Import a PyTorch whose devices have these UUIDs."""

    def properties(ordinal: int) -> Any:
        if not is_initialized:
            pytest.fail("the question initialises the devices")
        return SimpleNamespace() if uuids[ordinal] is None else SimpleNamespace(uuid=uuids[ordinal])

    xpu = SimpleNamespace(
        is_initialized=lambda: is_initialized,
        device_count=lambda: len(uuids),
        get_device_properties=properties,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(xpu=xpu))


@pytest.mark.parametrize("as_type", [bytes, list])
def test_addresses(monkeypatch: pytest.MonkeyPatch, as_type: Any) -> None:
    """The PCI address is part of the UUID, also of that of a tile."""
    pretend(monkeypatch, as_type(A), as_type(TILE))

    assert xpu_devices.pci_addresses() == ("0000:03:00.0", "0001:8a:1f.2")


@pytest.mark.parametrize("uuid", [OF_SERIAL_NUMBER, b"", None])
def test_uuid_without_address(monkeypatch: pytest.MonkeyPatch, uuid: bytes | None) -> None:
    """If one UUID has no address, nothing is known."""
    pretend(monkeypatch, A, uuid)

    assert xpu_devices.pci_addresses() is None


def test_pytorch_that_has_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the devices are initialised, nothing is asked."""
    pretend(monkeypatch, A, is_initialized=False)

    assert xpu_devices.pci_addresses() is None


@pytest.mark.parametrize("torch", [None, SimpleNamespace()])
def test_without_xpu(monkeypatch: pytest.MonkeyPatch, torch: object) -> None:
    """Without PyTorch, or with an old one, nothing is known."""
    monkeypatch.setitem(sys.modules, "torch", torch)

    assert xpu_devices.pci_addresses() is None

"""Lists the GPUs of a vendor in ``/sys/class/drm``, where all drivers of GPUs in Linux appear."""

from pathlib import Path


def cards(root: Path, vendor: str) -> list[tuple[str, Path]]:
    """Return (PCI address, folder of the device) of each GPU, in the order of addresses.

    Connectors (``card0-DP-1``) and the partitions of a GPU are left out, because they have no
    vendor id.

    Args:
        root: folder such as ``/sys``.
        vendor: PCI vendor id, such as ``0x1002`` for AMD.
    """
    folders = (card / "device" for card in (root / "class/drm").glob("card*"))
    found = {address(folder): folder for folder in folders if text(folder / "vendor") == vendor}
    return sorted(found.items())


def address(folder: Path) -> str:
    """Return the PCI address of a device, such as ``0000:3b:00.0``.

    Without ``uevent``, it is the name of the folder to which the link ``folder`` leads.
    """
    lines = text(folder / "uevent").splitlines()
    key = "PCI_SLOT_NAME="
    named = (line.removeprefix(key) for line in lines if line.startswith(key))
    return next(named, folder.resolve().name).lower()


def text(path: Path) -> str:
    """Return the text of a small file; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def first_text(folder: Path, pattern: str) -> str:
    """Return the text of the first file that fits a pattern; empty if none can be read."""
    return next(filter(None, map(text, sorted(folder.glob(pattern)))), "")


def whole(digits: str) -> int:
    """Return a number that was read from a file; 0 if the text is not a number."""
    return int(digits) if digits.isdigit() else 0

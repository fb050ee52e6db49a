"""A made-up vendor: the one file that a new family needs, and its case."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from energy_callbacks.core.records import Device
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor, FoundDevice
from tests.sensing.sources.conformance.case import family_case
from tests.sensing.sources.trees import LiveDevice, Tree, number

WRAP: Final = 2**36 - 1
_DOCUMENT: Final = "Acme, Sensors of the Anvil, section 3"


# --- the family


def _find(root: Path) -> Iterator[FoundDevice]:
    for folder in sorted(root.glob("class/acme/anvil*")):
        slot = (folder / "slot").read_text().strip()
        device = Device(key="gpu", kind="gpu", scope="gpu", name="Acme Anvil", uuid=slot)
        yield FoundDevice(device=device, folder=folder, pci=slot)


FAMILY: Final = Family(
    name="Acme GPU",
    find=_find,
    sensors=(
        FileSensor(
            quantity="energy",
            kind="counter",
            files=("energy_uj",),
            unit=1e-6,
            wrap=WRAP,
            period_s=0.001,
            relative_error=0.05,
            stale_s=5.0,
            citation=_DOCUMENT,
        ),
        FileSensor(
            quantity="power",
            kind="gauge",
            files=("power_mw",),
            unit=1e-3,
            missing=(0xFFFF,),
            period_s=0.1,
            relative_error=0.05,
            citation=_DOCUMENT,
        ),
        FileSensor(
            quantity="temperature",
            kind="gauge",
            files=("sensor*/temp_mc",),
            unit=1e-3,
            citation=_DOCUMENT,
        ),
        FileSensor(
            quantity="power_limit",
            kind="gauge",
            files=("limit_mw",),
            unit=1e-3,
            citation=_DOCUMENT,
        ),
    ),
    permission_fix="add yourself to the group acme",
    absence_fix="load the kernel module acme",
)


# --- its tree


def anvil(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a device with a counter and power."""
    return _anvil(tree, index, start_j=start_j)


def hammer(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a device without a counter."""
    device = _anvil(tree, index, start_j=start_j)
    return replace(device, files=tuple(f for f in device.files if f.quantity == "power"))


def chisel(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a device with a counter and without power."""
    device = _anvil(tree, index, start_j=start_j)
    return replace(device, files=tuple(f for f in device.files if f.quantity == "energy"))


def _anvil(tree: Tree, index: int, *, start_j: float) -> LiveDevice:
    folder = f"class/acme/anvil{index}"
    fixed = {
        "slot": f"0000:{3 + index:02x}:00.0",
        "limit_mw": 300_000,
        "sensor4/temp_mc": 56_000,
    }
    tree.write(fixed, folder)
    energy = number("energy_uj", "energy", 1e-6, wrap=WRAP)
    power = number("power_mw", "power", 1e-3)
    return LiveDevice(folder=folder, files=(energy, power), start_j=start_j)


CASES: Final = tuple(
    family_case(
        FAMILY,
        make,
        name=f"acme {make.__name__}",
        gauges={"temperature": 56.0, "power_limit": 300.0},
    )
    for make in (anvil, hammer, chisel)
)

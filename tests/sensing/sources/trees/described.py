"""Makes trees from descriptions in ``tests/data/trees``, and reads the devices in them."""

from pathlib import Path
from typing import Final

from energy_callbacks.core.records import Device, Quantity
from energy_callbacks.sensing.sources.sysfs.family import Family
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource
from energy_callbacks.testing import FakeClock
from tests.sensing.sources.trees.tree import Tree

_DESCRIPTIONS: Final = Path(__file__).parents[3] / "data/trees"


def described(name: str, folder: Path) -> Tree:
    """Make the tree of a description.

    Args:
        name: name of the description, without ``.toml``.
        folder: folder in which the tree is made.
    """
    tree = Tree(folder / name)
    tree.load(_DESCRIPTIONS / f"{name}.toml")
    return tree


def values(family: Family, root: Path) -> dict[str, dict[Quantity, float]]:
    """Return what all devices of a family report in one read, by key and quantity."""
    found: dict[str, dict[Quantity, float]] = {}
    for one in family.find(root):
        source = SysfsSource(FakeClock(), family, one)
        source.open()
        readings = source.read()
        source.close()
        found[one.device.key] = {one.channel.quantity: one.value for one in readings}
    return found


def devices(family: Family, root: Path) -> dict[str, Device]:
    """Return the devices of a family in a tree by key."""
    return {one.device.key: one.device for one in family.find(root)}

"""Describes files whose content follows the power of a device."""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class State:
    """What a device does at one moment.

    Attributes:
        t_s: seconds since the start of the tree.
        power_w: power of the device.
        energy_j: energy of the device, counted as its counter counts.
    """

    t_s: float
    power_w: float
    energy_j: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A file that changes.

    Attributes:
        path: path, relative to the folder of the device.
        content: returns the content in a state.
        quantity: ``power`` or ``energy`` if the file has only that; faults are injected by it.
        wrap: largest raw value of the counter; ``None`` if it does not wrap.
        unit: one unit of the file in W or J.
    """

    path: str
    content: Callable[[State], bytes]
    quantity: str = ""
    wrap: int | None = None
    unit: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDevice:
    """A device of a tree.

    Attributes:
        folder: its folder, relative to the root of the tree.
        files: the files that change; all others are in the tree already.
        start_j: value of its energy counter at the start of the tree.
    """

    folder: str
    files: tuple[LiveFile, ...]
    start_j: float = 0.0

    def path(self, quantity: str) -> str:
        """Return the path of the first file of a quantity, relative to the root."""
        return next(f"{self.folder}/{f.path}" for f in self.files if f.quantity == quantity)


def number(path: str, quantity: str, unit: float, *, wrap: int | None = None) -> LiveFile:
    """Return a file with power or energy as a whole number.

    Args:
        path: path, relative to the folder of the device.
        quantity: ``power`` or ``energy``.
        unit: one unit of the file in W or J, such as 1e-6.
        wrap: largest value, after which the file continues at 0.
    """

    def content(state: State) -> bytes:
        value = state.power_w if quantity == "power" else state.energy_j
        raw = math.floor(value / unit + 0.5)
        return b"%d\n" % (raw if wrap is None else raw % (wrap + 1))

    return LiveFile(path=path, content=content, quantity=quantity, wrap=wrap, unit=unit)

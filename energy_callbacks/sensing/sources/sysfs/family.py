"""Describes families of sensors whose values are in files of Linux, such as those of AMD GPUs.

A family is a table: each row (``FileSensor``) names the files of one quantity, their unit, and what
is known about the sensor. ``source.SysfsSource`` reads every family. A new family is a file beside
this one and a line in ``families.py``.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, Protocol

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.core.records import Channel, Device, Kind, Quantity, Reading
from energy_callbacks.sensing.clock import Clock

SYSFS: Final = Path("/sys")
SYSFS_VARIABLE: Final = "ENERGY_CALLBACKS_SYSFS"
"""Environment variable with the path at which a container mounts the host's ``/sys``."""
HIDDEN_FIX: Final = (
    "all users may read these files, unless a container or a security module hides them: mount "
    f"the host's /sys to another path and set {SYSFS_VARIABLE} to that path"
)
"""What the user can do if files cannot be read that the kernel makes readable for all users."""

ALL_ONES: Final = (2**32 - 1, 2**64 - 1)
"""Values of many drivers and libraries for "no value": all bits set."""


def sysfs_root() -> Path:
    """Return the folder below which the files are: ``/sys``, or where a container mounts it."""
    return Path(os.environ.get(SYSFS_VARIABLE) or SYSFS)


def whole_number(content: bytes) -> int:
    r"""Return the number that a file contains, raise ``ReadingMissed`` if it is not a number.

    >>> whole_number(b"42000000\n")
    42000000
    """
    try:
        return int(content)
    except ValueError as error:
        text = content[:40].decode(errors="replace")
        raise ReadingMissed(f"it contains {text!r} instead of a number") from error


@dataclass(frozen=True, slots=True)
class FileSensor:
    """How one quantity of a device is read; a row of the table of a family.

    Attributes:
        quantity: the quantity.
        files: patterns (as for ``Path.glob``) of files, relative to the folder of the device. The
            first file that exists and has a value is used. Names in braces stand for the
            ``places`` of the device; patterns with other names are left out.
        unit: one unit of the file in the unit of the quantity, such as 1e-6 for microwatts.
        citation: document that states meaning and unit of the file.
        kind: meaning of a value, as in ``Channel``.
        parse: returns the raw value that the content of a file has; raises ``ReadingMissed`` if it
            has none.
        times: patterns of a second file, whose value is multiplied with that of the first, such as
            the current for a voltage; relative to the folder of the device. Empty for none.
        plus: patterns of a second file, whose value is added, such as the other kind of memory of
            an APU; relative to the folder of the device. Empty for none.
        missing: raw values by which the driver says that it has no value, such as 0xFFFF. All
            ones in 32 and 64 bits are never a value, and need not be listed.
        wrap: largest raw value, after which a counter continues at 0; ``None`` if it never does.
        period_s: see ``Sensor``.
        window_s: see ``Sensor``.
        lag_s: see ``Sensor``.
        relative_error: see ``Sensor``.
        stale_s: time without a change after which a counter counts as stopped: its readings are
            then missed until it changes, and the amount in between is not known. Before that, no
            reading repeats a value. ``None`` if it may stand still.
        is_checked: see ``Sensor``.
    """

    quantity: Quantity
    files: tuple[str, ...]
    unit: float
    citation: str
    _: KW_ONLY
    kind: Kind = "gauge"
    parse: Callable[[bytes], float] = whole_number
    times: tuple[str, ...] = ()
    plus: tuple[str, ...] = ()
    missing: tuple[float, ...] = ()
    wrap: float | None = None
    period_s: float | None = None
    window_s: float | None = None
    lag_s: float = 0.0
    relative_error: float = 0.0
    stale_s: float | None = None
    is_checked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDevice:
    """A device of a family on this machine.

    Attributes:
        device: key, name and scope. GPUs have the PCI address as ``uuid`` if they have no other;
            their key and index are set by the list of all GPUs.
        folder: folder of the device, to which the patterns of its sensors are relative.
        pci: PCI address in the form ``0000:3b:00.0``; ``None`` if it has none.
        is_integrated: whether a GPU is part of a processor, and shares its memory.
        places: what names in braces stand for in the patterns of files, such as ``channel`` for a
            chip that measures several devices.
        energy_pci: PCI address of the GPU whose sensors measure the energy of this GPU too, if this
            GPU has none; ``None`` for all other GPUs.
    """

    device: Device
    folder: Path
    pci: str | None = None
    is_integrated: bool = False
    places: Mapping[str, str] = field(default_factory=dict, hash=False)
    energy_pci: str | None = None


class DeviceSensor(Protocol):
    """Reads one quantity of a device that is open.

    Attributes:
        channel: channel of its readings.
    """

    channel: Channel

    @property
    def wraps(self) -> int:
        """Number of times that its counter restarted at the end of its range; 0 for a gauge."""
        ...

    def read(self) -> Reading:
        """Return the present value; counters count from about the first call.

        Raises:
            ReadingMissed: if there is no value.
            OSError: if a file cannot be read.
        """
        ...


Library = Callable[[Clock, FoundDevice, Collection[Quantity]], Sequence[DeviceSensor]]
"""Returns the sensors of a vendor's library for quantities of a device that are not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A family of devices whose sensors have the same files.

    Attributes:
        name: name for messages, such as ``AMD GPU``.
        find: returns the devices of the family below a folder such as ``/sys``, in the order of
            their PCI addresses or paths.
        sensors: all quantities; a device has those whose files exist. If several sensors have the
            same quantity, the first that can be read is used.
        absence_fix: what the user can do if a device has no file of power or energy.
        permission_fix: what the user can do if the files cannot be read.
        library: adds quantities that a device has no files for; ``None`` for none.
        covers: what power and energy include, for the page of sensors.
        included_kinds: kinds of devices, such as ``dram``, whose energy is part of that of the
            family's devices, so that it must not be estimated in addition.
    """

    name: str
    find: Callable[[Path], Iterable[FoundDevice]]
    sensors: tuple[FileSensor, ...]
    absence_fix: str
    permission_fix: str = HIDDEN_FIX
    library: Library | None = None
    covers: str = "the whole device"
    included_kinds: tuple[str, ...] = ()

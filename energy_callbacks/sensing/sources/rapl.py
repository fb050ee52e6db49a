"""Reads the energy of CPU packages and their memory from RAPL counters in Linux's powercap folder.

RAPL (Running Average Power Limit) is Intel's name for these counters; AMD's counters have the same
``intel-rapl`` names. Each counter belongs to a zone, which is a folder. The zones ``package-*`` and
their child zones ``dram`` are read. The other zones are left out: ``core`` and ``uncore`` (parts of
the package), ``psys`` (contains the package) and ``intel-rapl-mmio`` (the same package through
another register).
"""

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.core.units import joules_from_microjoules
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources.sysfs.counter import Counter, wrap_remarks
from energy_callbacks.sensing.sources.sysfs.drm import text, whole
from energy_callbacks.sensing.sources.sysfs.family import ALL_ONES
from energy_callbacks.sensing.sources.sysfs.open_files import read_start
from energy_callbacks.sensing.sources.sysfs.read_all import read_all

POWERCAP = Path("/sys/class/powercap")

# Time between two updates of a counter, s: its register, the energy status register, is updated
# about every millisecond (Intel SDM volume 3B, 15.10.3).
PERIOD_S = 0.001

# Time without a change after which a counter has stopped, s, as in some virtual machines. Also an
# idle package, and its memory, use far more than one unit of the counter in this time.
STALE_S = 5.0

# Time between two readings after a change of phase, s. Reading a file of this folder takes
# microseconds. The energy of a phase is then wrong by at most the energy of one such interval at
# each of its two edges.
QUICK_S = 0.05

# Bounds of the relative error of the counters of packages and memory. No vendor states an error:
# the bounds are assumed, and wide enough for Intel and AMD. Since Haswell, Intel's counters are
# based on measurements (Hackenberg et al., IPDPSW 2015, doi 10.1109/IPDPSW.2015.70) and follow the
# power measured at the plug closely (Khan et al., ToMPECS 2018). AMD's built-in monitoring has
# known limits (Schoene et al., 2021). The counter of memory differs from a meter by an offset,
# which matters most if the memory is idle (Desrochers et al., MEMSYS 2016).
_PACKAGE_ERROR = 0.1
_DRAM_ERROR = 0.2
_CITATION = (
    "bound assumed, no vendor states one: doi 10.1145/3177754 (Intel), arXiv 2108.00808 (AMD), "
    "doi 10.1145/2989081.2989088 (memory)"
)

# The zones of all dies of a package may show the same package-wide counter (mlco2/codecarbon issue
# 1274). Two zones of a package count as one if their values differ by less than this, in
# microjoules. A package uses less energy than this in the few milliseconds between the two reads.
# Two separate counters with a range of 262 kJ are that close by chance in one of 100 000 cases.
_MIRROR_UJ = 1_000_000

_ZONE = re.compile(r"intel-rapl:(\d+)(?::(\d+))?")
# Patterns of the zones' folders: two for /sys/class/powercap, which has a link to each zone, and
# two for /sys/devices/virtual/powercap. In each pair, the second pattern is for child zones inside
# their parent.
_PLACES = (
    "intel-rapl:*",
    "intel-rapl:*/intel-rapl:*",
    "intel-rapl/intel-rapl:*",
    "intel-rapl/intel-rapl:*/intel-rapl:*",
)

_PERMISSION_FIX = (
    "since Linux 5.10 only root may read it (CVE-2020-8694). The administrator can make it "
    "readable until the next boot: sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj; at "
    "every boot, with a line in /etc/sysfs.conf for each zone: mode "
    "class/powercap/intel-rapl:0/energy_uj = 0444; or give the Python binary the capability "
    "CAP_DAC_READ_SEARCH."
)
_ABSENCE_FIX = (
    "virtual machines usually have none; on bare metal load the kernel module intel_rapl_msr; "
    "in a container, which hides these files, mount the host's /sys/class/powercap/intel-rapl "
    "to another path and set ENERGY_CALLBACKS_POWERCAP to that path"
)
if sys.platform != "linux":
    _ABSENCE_FIX = "only Linux has these files"


@dataclass(slots=True)
class OpenCounter:
    """A counter of energy that is open.

    Attributes:
        name: path or other name.
        channel: channel of its readings.
        file: file descriptor, which ``close`` of the source closes.
        raw: returns the present value, given the file descriptor; raises ``OSError`` or
            ``ReadingMissed`` if there is none.
        energy: adds up the increases of the values, J.
        start: first value.
    """

    name: str
    channel: Channel
    file: int
    raw: Callable[[int], int]
    energy: Counter
    start: int = 0


class CpuEnergySource(ABC):
    """Reports the energy of each CPU package, and of its memory, since the first reading, J.

    If a read of a counter fails, it has no reading at that time, and its next reading includes the
    missing energy.

    Args:
        clock: clock that gives the times of the readings.
        root: folder of the counters; ``None`` for ``default_root``.
        parents: see ``energy_channel``.

    Attributes:
        default_root: folder of the counters, except in containers.
    """

    name: str
    default_root: Path
    quick_interval_s = QUICK_S

    def __init__(
        self, clock: Clock, root: Path | None = None, *, parents: Sequence[str] = ()
    ) -> None:
        self._clock = clock
        self._root = root or self.default_root
        self._parents = parents
        self._counters: list[OpenCounter] = []
        self._read_s = clock.monotonic_s()

    @property
    def interval_s(self) -> float:
        """Seconds from the last ``read`` to the next common reading moment (see ``schedule``).

        After a change of phase, the sampler uses ``quick_interval_s`` instead.
        """
        return until_reading_s(self._read_s)

    def open(self) -> Sequence[Channel]:
        """Open all counters and return their channels.

        Raises:
            SourceUnavailable: if there is no counter, or none can be read.
        """
        self.close()
        try:
            self._open()
        except SourceUnavailable:
            self.close()
            raise
        return [one.channel for one in self._counters]

    @abstractmethod
    def _open(self) -> None:
        """Open the counters, and append them to ``_counters``; raises as ``open``."""

    def read(self) -> Sequence[Reading]:
        """Return the energy of each counter, J; counters that fail are left out.

        Raises:
            ReadingMissed: if all counters fail.
            SourceLost: if a counter is gone, for example because its driver was unloaded.
        """
        if not self._counters:
            raise ReadingMissed(f"{self.name} is not open; call open() first")
        self._read_s = self._clock.monotonic_s()
        counters = ((one.name, partial(self._reading, one)) for one in self._counters)
        return read_all(self.name, counters)

    def remarks(self) -> Sequence[str]:
        """See ``RemarkingSource``."""
        return wrap_remarks((one.channel, one.energy.wraps) for one in self._counters)

    def _reading(self, one: OpenCounter) -> Reading:
        before_s = self._clock.monotonic_s()
        raw = one.raw(one.file)
        after_s = self._clock.monotonic_s()
        t_s = (before_s + after_s) / 2
        energy_j = one.energy.advance(raw, t_s)
        return Reading(one.channel, t_s, energy_j, t_error_s=(after_s - before_s) / 2 + PERIOD_S)

    def close(self) -> None:
        """See ``Source.close``."""
        counters, self._counters = self._counters, []
        for one in counters:
            os.close(one.file)


class RaplSource(CpuEnergySource):
    """Reads the files of powercap; see ``CpuEnergySource``.

    Readings must be at most a minute apart, because two wraps between two readings would count as
    one. A counter wraps around after some minutes at full power: nine minutes for a package of
    500 W. The folder ``root`` is that of the powercap zones.
    """

    name = "RAPL"
    default_root = POWERCAP

    def _open(self) -> None:
        failures = self._open_zones()
        if not self._counters and not failures:
            raise SourceUnavailable(f"no RAPL energy counter below {self._root}", _ABSENCE_FIX)
        if not self._counters:
            error = failures[0]
            fix = _PERMISSION_FIX if isinstance(error, PermissionError) else _ABSENCE_FIX
            raise SourceUnavailable(f"cannot read {error.filename}: {error.strerror}", fix)
        notes = tuple(f"{error.filename} cannot be read and is not counted" for error in failures)
        for one in self._counters:
            one.channel = replace(one.channel, device=replace(one.channel.device, notes=notes))

    def _open_zones(self) -> list[OSError]:
        """Open each readable zone, and return the errors of the other zones.

        Zones that show the same counter as an earlier zone are left out.
        """
        failures: list[OSError] = []
        for folder, device in _zones(self._root):
            path = folder / "energy_uj"
            channel = energy_channel(device, str(path), self._parents)
            try:
                counter = _opened(path, channel)
            except OSError as error:
                failures.append(error)
                continue
            if any(_is_one_counter(counter, other) for other in self._counters):
                os.close(counter.file)
            else:
                self._counters.append(counter)
        return failures


def _opened(path: Path, channel: Channel) -> OpenCounter:
    """Open an ``energy_uj`` file; each read at offset 0 returns the present value.

    Args:
        path: path of the file.
        channel: channel of its readings.

    Raises:
        OSError: if the file cannot be opened or read; ``filename`` of the error is the path.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        start_uj = _raw_uj(file)
    except (OSError, ReadingMissed) as error:
        os.close(file)
        raise OSError(getattr(error, "errno", None), str(error), str(path)) from error
    range_uj = whole(text(path.with_name("max_energy_range_uj"))) or None
    energy = Counter(unit=joules_from_microjoules(1), wrap=range_uj, stale_s=STALE_S)
    return OpenCounter(str(path), channel, file, _raw_uj, energy, start_uj)


def _raw_uj(file: int) -> int:
    """Return the value of a file, microjoules; raise ``ReadingMissed`` if it is not a number."""
    content = read_start(file, 64).strip()
    if not content.isdigit() or int(content) in ALL_ONES:
        raise ReadingMissed(f"it contains {content!r} instead of a number; it is read again later")
    return int(content)


def _is_one_counter(first: OpenCounter, second: OpenCounter) -> bool:
    """Return whether two zones show the same counter.

    This is assumed if both zones belong to the same package and are of the same kind (package or
    memory), and their values differ by less than ``_MIRROR_UJ``. However, it is not assumed if the
    value of ``first`` is 0, because separate counters may also be equal at 0.
    """
    device, other = first.channel.device, second.channel.device
    sockets = [one.name.partition("-die-")[0] for one in (device, other)]
    if sockets[0] != sockets[1] or device.kind != other.kind:
        return False
    return first.start > 0 and abs(first.start - second.start) < _MIRROR_UJ


def _zones(root: Path) -> Iterator[tuple[Path, Device]]:
    """Yield (folder, device) of each package in the order of zone numbers, followed by its memory.

    If two packages have the same name, only the first is yielded.
    """
    packages: dict[int, str] = {}
    for (package, child), folder in sorted(_folders(root).items()):
        name = text(folder / "name")
        if child < 0 and name.startswith("package-") and name not in packages.values():
            packages[package] = name
        elif name != "dram" or package not in packages:
            continue
        kind, index = "cpu" if child < 0 else "dram", list(packages).index(package)
        yield folder, package_device(kind, index, packages[package])


def _folders(root: Path) -> dict[tuple[int, int], Path]:
    """Return the zone folders by (package number, child number); a package has child number -1."""
    folders: dict[tuple[int, int], Path] = {}
    for place in _PLACES:
        for folder in root.glob(place):
            match = _ZONE.fullmatch(folder.name)
            if match:
                folders.setdefault((int(match[1]), int(match[2] or -1)), folder)
    return folders


def package_device(kind: str, index: int, package: str) -> Device:
    """Return a package (kind ``cpu``) or its memory (``dram``)."""
    name = f"RAPL {package}" + ("" if kind == "cpu" else " dram")
    return Device(key=f"{kind}{index}", kind=kind, scope="host", name=name, index=index)


def energy_channel(device: Device, name: str, parents: Sequence[str]) -> Channel:
    """Return the channel of a counter of RAPL.

    Args:
        device: a package or its memory.
        name: says how the counter is read.
        parents: keys of the APUs of the machine, one for each package or one for all. The energy of
            an APU includes that of its package.
    """
    if parents and device.kind == "cpu":
        device = replace(device, parent=parents[min(device.index or 0, len(parents) - 1)])
    sensor = Sensor(
        name=name,
        period_s=PERIOD_S,
        relative_error=_PACKAGE_ERROR if device.kind == "cpu" else _DRAM_ERROR,
        citation=_CITATION,
    )
    return Channel(device=device, quantity="energy", kind="counter", sensor=sensor)

"""Reads the energy of CPU packages and their memory from RAPL counters in Linux's powercap folder.

RAPL (Running Average Power Limit) is Intel's name for these counters; AMD's counters have the same
``intel-rapl`` names. Each counter belongs to a zone, which is a folder. The zones ``package-*`` and
their child zones ``dram`` are read. The other zones are left out: ``core`` and ``uncore`` (parts of
the package), ``psys`` (contains the package) and ``intel-rapl-mmio`` (the same package through
another register).
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources.sysfs.drm import text
from energy_callbacks.sensing.sources.sysfs.family import FileSensor
from energy_callbacks.sensing.sources.sysfs.open_files import OpenFiles
from energy_callbacks.sensing.sources.sysfs.open_sensors import OpenSensor, wrap_remarks

POWERCAP = Path("/sys/class/powercap")

# Time between two updates of a counter, s: its register, the energy status register, is updated
# about every millisecond (Intel SDM volume 3B, 15.10.3).
PERIOD_S = 0.001

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
    "readable at every boot, with a line in /etc/sysfs.conf for each zone, mode "
    "class/powercap/intel-rapl:0/energy_uj = 0444, or with a udev rule; or give the Python "
    "binary the capability CAP_DAC_READ_SEARCH."
)
_ABSENCE_FIX = (
    "virtual machines usually have none; on bare metal load the kernel module intel_rapl_msr; "
    "in a container, which hides these files, mount the host's /sys/class/powercap/intel-rapl "
    "to another path and set ENERGY_CALLBACKS_POWERCAP to that path"
)
if sys.platform != "linux":
    _ABSENCE_FIX = "only Linux has these files"


class RaplSource:
    """Reports the energy of each CPU package, and of its memory, since ``open``, J.

    Values start at 0 and decrease only if a counter was reset. If a read of the file of a zone
    fails, the zone has no reading at that time, and its next reading includes the missing energy.
    Readings must be at most a minute apart, because two wraps between two readings would count as
    one. A counter wraps around after some minutes at full power: nine minutes for a package of
    500 W.

    Args:
        clock: clock that gives the times of the readings.
        root: folder of the powercap zones.
        parents: see ``energy_channel``.
    """

    name = "RAPL"

    def __init__(self, clock: Clock, root: Path = POWERCAP, *, parents: Sequence[str] = ()) -> None:
        self._clock = clock
        self._root = root
        self._parents = parents
        self._files = OpenFiles(clock)
        self._zones: list[OpenSensor] = []
        self._read_s = clock.monotonic_s()

    @property
    def interval_s(self) -> float:
        """Seconds from the last ``read`` to the next common reading moment (see ``schedule``).

        After a change of phase, the sampler uses ``quick_interval_s`` instead.
        """
        return until_reading_s(self._read_s)

    @property
    def quick_interval_s(self) -> float:
        """See ``QuickSource``."""
        return QUICK_S

    def open(self) -> Sequence[Channel]:
        """Open all zones and return their channels; energy is counted from now on.

        Raises:
            SourceUnavailable: if there is no zone, or none can be read.
        """
        self.close()
        failures: list[tuple[Path, Exception]] = []
        for folder, device in _zones(self._root):
            path = folder / "energy_uj"
            try:
                self._open(path, device)
            except (OSError, ReadingMissed) as error:
                failures.append((path, error))
        if not self._zones:
            self.close()
            raise _unavailable(self._root, failures)
        notes = tuple(f"{path} cannot be read and is not counted" for path, _ in failures)
        for zone in self._zones:
            device = replace(zone.channel.device, notes=notes)
            zone.channel = replace(zone.channel, device=device)
        return [zone.channel for zone in self._zones]

    def _open(self, path: Path, device: Device) -> None:
        """Open the file of a zone, unless it shows the same counter as an earlier zone."""
        self._files.add(path)
        channel = energy_channel(device, str(path), self._parents)
        range_uj = text(path.with_name("max_energy_range_uj"))
        row = FileSensor(
            "energy",
            (path.name,),
            1e-6,
            _CITATION,
            kind="counter",
            wrap=int(range_uj) if range_uj.isdigit() else None,
            period_s=PERIOD_S,
        )
        zone = OpenSensor(row, self._files, path, None, None, channel)
        zone.read()  # from here on, energy is counted
        if not any(_is_one_counter(zone, other) for other in self._zones):
            self._zones.append(zone)

    def read(self) -> Sequence[Reading]:
        """Return the energy of each zone since ``open``, J; zones that fail are left out.

        Raises:
            ReadingMissed: if all zones fail.
        """
        self._read_s = self._clock.monotonic_s()
        readings: list[Reading] = []
        missed: list[str] = []
        for zone in self._zones:
            try:
                readings.append(zone.read())
            except (OSError, ReadingMissed) as error:
                missed.append(f"{zone.path}: {error}")
        if not readings:
            raise ReadingMissed("; ".join(missed) or "RAPL is not open; call open() first")
        return readings

    def remarks(self) -> Sequence[str]:
        """See ``RemarkingSource``."""
        return wrap_remarks(self._zones)

    def close(self) -> None:
        """See ``Source.close``."""
        self._zones = []
        self._files.close()


def _unavailable(root: Path, failures: Sequence[tuple[Path, Exception]]) -> SourceUnavailable:
    """Return why no zone can be read."""
    if not failures:
        return SourceUnavailable(f"no RAPL energy counter below {root}", _ABSENCE_FIX)
    path, error = failures[0]
    fix = _PERMISSION_FIX if isinstance(error, PermissionError) else ""
    reason = getattr(error, "strerror", None) or error
    return SourceUnavailable(f"cannot read {path}: {reason}", fix)


def _is_one_counter(first: OpenSensor, second: OpenSensor) -> bool:
    """Return whether two zones that were just opened show the same counter.

    This is assumed if both zones belong to the same package and are of the same kind (package or
    memory), and their values differ by less than ``_MIRROR_UJ``. However, it is not assumed if the
    value of ``first`` is 0, because separate counters may also be equal at 0.
    """
    devices = [one.channel.device for one in (first, second)]
    if len({(one.kind, one.name.partition("-die-")[0]) for one in devices}) > 1:
        return False
    first_uj, second_uj = first.raw()[0], second.raw()[0]
    return first_uj > 0 and abs(first_uj - second_uj) < _MIRROR_UJ


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
        name = f"RAPL {packages[package]}" + ("" if child < 0 else " dram")
        yield folder, Device(key=f"{kind}{index}", kind=kind, scope="host", name=name, index=index)


def _folders(root: Path) -> dict[tuple[int, int], Path]:
    """Return the zone folders by (package number, child number); a package has child number -1."""
    folders: dict[tuple[int, int], Path] = {}
    for place in _PLACES:
        for folder in root.glob(place):
            match = _ZONE.fullmatch(folder.name)
            if match:
                folders.setdefault((int(match[1]), int(match[2] or -1)), folder)
    return folders


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

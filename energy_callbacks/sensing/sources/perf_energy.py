"""Reads the energy of CPU packages and their memory through Linux's perf events.

These are the counters of RAPL (see ``rapl.py``) through another interface with other permissions.
The kernel extends the counters of the hardware to 64 bits, so that they do not wrap around
(``arch/x86/events/rapl.c``). ``energy-pkg`` and ``energy-ram`` are read; ``energy-cores`` and
``energy-gpu`` are parts of the package, and ``energy-psys`` contains it.
"""

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.sensing.sources.rapl import (
    STALE_S,
    CpuEnergySource,
    OpenCounter,
    energy_channel,
    package_device,
)
from energy_callbacks.sensing.sources.sysfs.counter import Counter
from energy_callbacks.sensing.sources.sysfs.drm import text
from energy_callbacks.sensing.sources.sysfs.family import SYSFS

_EVENTS: Final = {"energy-pkg": "cpu", "energy-ram": "dram"}
_FIX: Final = (
    "one of two ways to read the energy of the CPU must be allowed by the administrator. Perf "
    "events: 'sysctl kernel.perf_event_paranoid=0', or the capability CAP_PERFMON for the Python "
    "binary. RAPL's files: mode 0444 for class/powercap/intel-rapl:0/energy_uj (and all other "
    "zones) in /etc/sysfs.conf or in a udev rule, or the capability CAP_DAC_READ_SEARCH"
)
# perf_event_open(2): number of the system call on x86-64, the architecture that has these events;
# flag PERF_FLAG_FD_CLOEXEC; first version of struct perf_event_attr, of 64 bytes: type, size,
# config, then fields that are 0.
_SYSCALL: Final = 298
_CLOEXEC: Final = 8
_ATTRIBUTES: Final = struct.Struct("=IIQ48x")


class PerfEnergySource(CpuEnergySource):
    """Reads perf events; see ``CpuEnergySource``.

    The folder ``root`` is that of all devices, such as ``/sys``.
    """

    name = "RAPL through perf"
    default_root = SYSFS

    def _open(self) -> None:
        folder = self._root / "bus/event_source/devices/power"
        try:
            kind = int((folder / "type").read_text())
            cpus = _cpus((folder / "cpumask").read_text())
            for index, cpu in enumerate(_packages(self._root / "devices/system/cpu", cpus)):
                self._open_package(folder / "events", kind, cpu, index)
        except (OSError, ValueError) as error:
            fix = _FIX if isinstance(error, PermissionError) else ""
            raise SourceUnavailable(f"no energy events in {folder}: {error}", fix) from error
        if not self._counters:
            raise SourceUnavailable(f"the CPU has no energy events of {folder}")

    def _open_package(self, folder: Path, kind: int, cpu: int, index: int) -> None:
        """Open the events of a package that the kernel supports.

        Raises:
            OSError: if a file is missing, or without permission.
            ValueError: if a file has another content.
        """
        for event, device_kind in _EVENTS.items():
            if not (folder / event).exists():
                continue
            config = int((folder / event).read_text().strip().removeprefix("event="), 16)
            unit_j = float((folder / f"{event}.scale").read_text())
            try:
                file = open_event(kind, config, cpu)
            except PermissionError:
                raise
            except OSError:
                continue  # some kernels list events that the CPU does not have
            device = package_device(device_kind, index, f"package-{index}")
            name = f"perf power/{event}/"
            channel = energy_channel(device, name, self._parents)
            energy = Counter(unit=unit_j, stale_s=STALE_S)
            self._counters.append(OpenCounter(name, channel, file, _count, energy))


def _count(file: int) -> int:
    """Return the count of an event; raise ``ReadingMissed`` if it is in an error state."""
    content = os.read(file, 8)
    if len(content) < 8:
        raise ReadingMissed("the event is in an error state")
    return int.from_bytes(content, sys.byteorder)


def open_event(kind: int, config: int, cpu: int) -> int:
    """Open an event that counts for all processes on a CPU, and return its file descriptor.

    Raises:
        OSError: if the kernel has no such event, or does not permit it.
    """
    if platform.machine() != "x86_64":
        raise OSError(f"perf has no energy events on {platform.machine()}")
    attributes = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(kind, _ATTRIBUTES.size, config), _ATTRIBUTES.size
    )
    call = ctypes.CDLL(None, use_errno=True).syscall
    file = int(call(_SYSCALL, attributes, -1, cpu, -1, ctypes.c_ulong(_CLOEXEC)))
    if file < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return file


def _packages(folder: Path, cpus: Iterable[int]) -> Iterable[int]:
    """Return one CPU for each counter.

    The kernel names one CPU of each die. Dies of Intel's packages have a counter each. Those of
    AMD's packages share one, but some versions of Linux name a CPU of each die (commit of 2024,
    "perf/x86/rapl: Fix the energy-pkg event for AMD CPUs").

    Args:
        folder: folder such as ``/sys/devices/system/cpu``.
        cpus: the CPUs that the kernel names.
    """
    if "ven0000" in text(folder / "modalias"):  # Intel
        return cpus
    packages: dict[str | int, int] = {}
    for cpu in cpus:
        packages.setdefault(text(folder / f"cpu{cpu}/topology/physical_package_id") or cpu, cpu)
    return packages.values()


def _cpus(listed: str) -> Iterator[int]:
    """Yield the CPUs of a list of the kernel.

    >>> list(_cpus("0,28-29"))
    [0, 28, 29]
    """
    for part in listed.strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)

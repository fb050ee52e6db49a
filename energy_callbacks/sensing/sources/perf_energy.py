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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources.rapl import PERIOD_S, QUICK_S, energy_channel
from energy_callbacks.sensing.sources.sysfs.family import SYSFS

Opener = Callable[[int, int, int], int]
"""Opens an event of a type (of PMU), configuration and CPU; returns its file descriptor."""

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


_Event = tuple[Channel, int, float]
"""Channel of an open event, its file descriptor, and one unit of its counter in J."""


class PerfEnergySource:
    """Reports the energy of each CPU package, and of its memory, since ``open``, J.

    Args:
        clock: clock that gives the times of the readings.
        root: folder such as ``/sys``.
        opener: opens events.
        parents: see ``energy_channel``.
    """

    name = "RAPL through perf"

    def __init__(
        self,
        clock: Clock,
        root: Path = SYSFS,
        opener: Opener | None = None,
        *,
        parents: Sequence[str] = (),
    ) -> None:
        self._clock = clock
        self._root = root
        self._parents = parents
        self._opener = opener or open_event
        self._events: list[_Event] = []
        self._read_s = clock.monotonic_s()

    @property
    def interval_s(self) -> float:
        """Seconds from the last ``read`` to the next common reading moment (see ``schedule``)."""
        return until_reading_s(self._read_s)

    @property
    def quick_interval_s(self) -> float:
        """See ``QuickSource``."""
        return QUICK_S

    def open(self) -> Sequence[Channel]:
        """Open all events and return their channels; energy is counted from now on.

        Raises:
            SourceUnavailable: if there is no event, or none can be opened.
        """
        self.close()
        folder = self._root / "bus/event_source/devices/power"
        try:
            for event in _opened(folder, self._opener, self._parents):
                self._events.append(event)
        except (OSError, ValueError) as error:
            self.close()
            fix = _FIX if isinstance(error, PermissionError) else ""
            raise SourceUnavailable(f"no energy events in {folder}: {error}", fix) from error
        if not self._events:
            raise SourceUnavailable(f"the CPU has no energy events of {folder}")
        return [channel for channel, _, _ in self._events]

    def read(self) -> Sequence[Reading]:
        """Return the energy of each event since ``open``, J.

        Raises:
            ReadingMissed: if an event cannot be read.
        """
        self._read_s = self._clock.monotonic_s()
        if not self._events:
            raise ReadingMissed("perf events are not open; call open() first")
        return [self._reading(*event) for event in self._events]

    def close(self) -> None:
        """See ``Source.close``."""
        events, self._events = self._events, []
        for _, file, _ in events:
            os.close(file)

    def _reading(self, channel: Channel, file: int, unit_j: float) -> Reading:
        before_s = self._clock.monotonic_s()
        try:
            (count,) = struct.unpack("=Q", os.read(file, 8))
        except (OSError, struct.error) as error:
            raise ReadingMissed(f"{channel.device.name}: {error}") from error
        after_s = self._clock.monotonic_s()
        t_s, t_error_s = (before_s + after_s) / 2, (after_s - before_s) / 2 + PERIOD_S
        return Reading(channel, t_s, count * unit_j, t_error_s)


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


def _opened(folder: Path, opener: Opener, parents: Sequence[str]) -> Iterator[_Event]:
    """Yield the events of all packages that the kernel supports.

    Raises:
        OSError: if a file is missing, or if no package has an event.
        ValueError: if a file has another content.
    """
    kind = int((folder / "type").read_text())
    # The kernel names one CPU of each package.
    for index, cpu in enumerate(_cpus((folder / "cpumask").read_text())):
        for event, device_kind in _EVENTS.items():
            description = folder / "events" / event
            if not description.exists():
                continue
            config = int(description.read_text().strip().removeprefix("event="), 16)
            unit_j = float(description.with_name(f"{event}.scale").read_text())
            try:
                file = opener(kind, config, cpu)
            except PermissionError:
                raise
            except OSError:
                continue  # some kernels list events that the CPU does not have
            yield _channel(device_kind, index, event, parents), file, unit_j


def _cpus(text: str) -> Iterator[int]:
    """Yield the CPUs of a list of the kernel.

    >>> list(_cpus("0,28-29"))
    [0, 28, 29]
    """
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _channel(kind: str, index: int, event: str, parents: Sequence[str]) -> Channel:
    name = f"RAPL package-{index}" + ("" if kind == "cpu" else " dram")
    device = Device(key=f"{kind}{index}", kind=kind, scope="host", name=name, index=index)
    return energy_channel(device, f"perf power/{event}/", parents)

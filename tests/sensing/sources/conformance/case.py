"""Describes sources for the conformance suite, and runs them on devices whose power is known."""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from energy_callbacks.core.records import Channel, Quantity, Reading, Scope
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.sources.sysfs.family import Family, FoundDevice
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource
from energy_callbacks.sensing.timeline import Timeline
from energy_callbacks.testing import FakeClock
from tests.fake_nvml.signals import Signal, Square
from tests.sensing.sources.trees import LiveDevice, RunningTree, Tree

Change = Callable[[bytes], bytes]
LOAD: Final = Square(low_w=100.0, high_w=400.0, period_s=7.0)
NO_TEXT: Final[Mapping[str, Change]] = {
    "N/A": lambda _: b"N/A\n",
    "empty": lambda _: b"",
    "all ones": lambda _: b"18446744073709551615\n",
    "32 ones": lambda _: b"4294967295\n",
    "negative": lambda _: b"-5\n",
}
"""Contents of a text file by which a driver may say that it has no value."""

# Interval at which files follow the clock, s; sensors are read at most as often.
_STEP_S: Final = 0.05

FAULTS: Final[Mapping[str, str]] = {
    "wrap": "the energy counter continues at 0 after the end of its range",
    "reset": "the energy counter restarts at 0",
    "stopped": "the energy counter stands still",
    "stopped at the start": "the energy counter stands still from the beginning",
    "no value at the start": "the sensor has no value when the source is opened",
    "missing": "the files, the program or the driver are not there",
    "permission": "this user must not read the sensor",
    "two devices": "the machine has two devices of this kind",
    "unplugged": "the device goes away while it is read, and comes back",
    "not open": "a source is read that is not open",
}
"""What can happen to a sensor, besides the ``no_values`` of each case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(ABC):
    """A sensor and its source.

    Attributes:
        name: name of the case.
        source: class of the source.
        gauges: value that each quantity except power and energy has, in SI units.
        scope: scope of the device.
        load: power that is played, unless a test gives another.
        share: power of the device to test as a share of the power that is played.
        no_values: ways in which the sensor may say that it has no value.
        impossible: for each of ``FAULTS`` that cannot occur, the reason.
        fixes: for a sensor that is ``missing``, and for one without ``permission``, a part of what
            the user can do.
        gone: part of the message about a device that has gone away.
        quiet: those of ``no_values`` without a notice, because other quantities have readings.
        no_value_is: kind of the notice about one of ``no_values``.
        back_s: seconds after which the energy is right again once a stopped counter counts.
    """

    name: str
    source: type[Source]
    gauges: Mapping[Quantity, float] = field(default_factory=dict)
    scope: Scope = "gpu"
    load: Signal = LOAD
    share: float = 1.0
    no_values: Collection[str] = ()
    impossible: Mapping[str, str] = field(default_factory=dict)
    fixes: Mapping[str, str] = field(default_factory=dict)
    gone: str = "is gone"
    quiet: Collection[str] = ()
    no_value_is: str = "missed"
    back_s: float = 2.0

    @abstractmethod
    def lab(
        self, folder: Path, patch: pytest.MonkeyPatch, signals: Sequence[Signal], start_j: float
    ) -> "Lab":
        """Return devices with these powers, whose energy counters begin at ``start_j``."""

    @property
    def wrap_j(self) -> float | None:
        """Range of the energy counter, J; ``None`` if it does not wrap."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCase(Case):
    """A sensor that is modelled by files.

    Attributes:
        make: adds the device with a number to a tree. It also takes ``start_j``, the value of the
            energy counter at the start.
        sources: returns the sources of the tree of a lab, and the keys of its devices.
        no_values: for each way to say that there is no value, the content given the right one.
    """

    make: Callable[..., LiveDevice]
    sources: Callable[["FileLab"], tuple[list[Source], list[str]]]
    no_values: Mapping[str, Change] = field(default_factory=lambda: NO_TEXT)

    def lab(
        self, folder: Path, patch: pytest.MonkeyPatch, signals: Sequence[Signal], start_j: float
    ) -> "FileLab":
        """See ``Case``."""
        return FileLab(self, folder, patch, signals, start_j)

    @property
    def wrap_j(self) -> float | None:
        """See ``Case``."""
        files = self.make(_NoTree(), 0).files
        ranges = [f.wrap * f.unit for f in files if f.wrap and f.quantity == "energy"]
        return ranges[0] if ranges else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCase(FileCase):
    """A family of sensors in files.

    Attributes:
        family: the family.
        named: part of the name of the device to test, if a device of the tree has several.
        has_library: whether the energy counter is that of the family's library.
    """

    family: Family
    named: str = ""
    has_library: bool = False

    def found(self, root: Path) -> list[FoundDevice]:
        """Return the devices of the case with keys as the list of all GPUs gives them."""
        found = [one for one in self.family.find(root) if self.named in one.device.name]
        return [
            replace(one, device=replace(one.device, key=f"device{index}"))
            for index, one in enumerate(found)
        ]


def family_case(
    family: Family,
    make: Callable[..., LiveDevice],
    *,
    impossible: Mapping[str, str] | None = None,
    **settings: Any,
) -> FamilyCase:
    """Return the case of a family; faults of counters cannot occur if the tree has none."""
    files = make(_NoTree(), 0).files
    reasons: dict[str, str] = {}
    if not any(file.wrap for file in files):
        reasons["wrap"] = "no counter with a range"
    if not any(file.quantity == "energy" for file in files):
        reasons |= dict.fromkeys(("reset", "stopped", "stopped at the start"), "no counter")
    return FamilyCase(
        family=family,
        make=make,
        source=SysfsSource,
        impossible=reasons | dict(impossible or {}),
        fixes={"missing": family.absence_fix, "permission": family.permission_fix},
        **{"sources": family_sources} | settings,
    )


def family_sources(lab: "FileLab") -> tuple[list[Source], list[str]]:
    """Return a source for each device that the family finds, and their keys."""
    found = lab.case.found(lab.running.tree.root)
    keys = [one.device.key for one in found]
    lab.place = str(found[0].folder) if found else ""
    return [SysfsSource(lab.clock, lab.case.family, one) for one in found], keys


class _NoTree(Tree):
    """A tree that writes nothing; a case asks it for the files of its device."""

    def __init__(self) -> None:
        self.root = Path("/nonexistent")

    def set(self, path: str, content: str | bytes | int) -> None:
        pass

    def link(self, path: str, target: str) -> None:
        pass


class Lab(ABC):
    """The devices of a case with their sources; times are seconds since the start.

    Attributes:
        case: the case.
        clock: virtual time.
        sources: sources of the devices.
        keys: keys of the devices to test, one for each power that is played.
        place: folder that the message about a sensor that cannot be read names; may be empty.

    Args:
        case: the case.
        clock: virtual time.
    """

    def __init__(self, case: Any, clock: FakeClock) -> None:
        self.case = case
        self.clock = clock
        self.sources: list[Source] = []
        self.keys: list[str] = []
        self.place = ""

    @property
    def source(self) -> Source:
        """The source of the first device."""
        return self.sources[0]

    def start(self) -> None:  # noqa: B027 - a simulated library follows the clock by itself
        """From now on, the sensors follow the clock."""

    def close(self) -> None:
        """Release what the sources and the model of the devices hold."""
        for source in self.sources:
            source.close()

    @abstractmethod
    def truth_j(self, start_s: float, end_s: float, index: int = 0) -> float:
        """Return the energy of a device between two moments."""

    @abstractmethod
    def begin(self, fault: str) -> None:
        """Let a fault of ``FAULTS`` or of the case's ``no_values`` begin at the first device."""

    @abstractmethod
    def end(self, fault: str) -> None:
        """End a fault."""


class FileLab(Lab):
    """The devices of a case in a running tree.

    Attributes:
        running: the tree.
        live: the devices of the tree.

    Args:
        case: the case.
        folder: folder for the tree.
        patch: undoes faults after the test.
        signals: power of each device of the tree.
        start_j: value of the energy counters at the start.
    """

    def __init__(
        self,
        case: FileCase,
        folder: Path,
        patch: pytest.MonkeyPatch,
        signals: Sequence[Signal],
        start_j: float,
    ) -> None:
        super().__init__(case, FakeClock())
        self.patch = patch
        self.running = RunningTree(Tree(folder / "sys"), self.clock)
        self.live = []
        for index, signal in enumerate(signals):
            self.live.append(case.make(self.running.tree, index, start_j=start_j))
            self.running.add(self.live[-1], signal)
        self.sources, self.keys = case.sources(self)

    def start(self) -> None:
        """See ``Lab``."""
        self.running.start(_STEP_S)

    def truth_j(self, start_s: float, end_s: float, index: int = 0) -> float:
        """See ``Lab``."""
        return self.case.share * self.running.truth_j(self.live[index], start_s, end_s)

    def begin(self, fault: str) -> None:
        """See ``Lab``."""
        if fault == "reset":
            self.running.reset(self.live[0])
        elif fault == "stopped":
            path = self.live[0].path("energy")
            self.running.change(path, (self.running.tree.root / path).read_bytes())
        elif fault == "missing":
            for path in self._metering_paths():
                self.running.tree.remove(path)
        elif fault == "permission":
            root = self.running.tree.root
            forbid(self.patch, {(root / path).resolve() for path in self._metering_paths()})
        elif fault == "unplugged":
            self.running.unplug(self.live[0])
            self.patch.setattr(os, "pread", self._pread)
        else:
            self._change_all(self.case.no_values[fault])

    def end(self, fault: str) -> None:
        """See ``Lab``."""
        if fault == "unplugged":
            self.running.replug(self.live[0])
        else:
            self._change_all(None)

    def _change_all(self, change: Change | None) -> None:
        """Change the content of all files of power and energy of the first device."""
        for path in self._metering_paths():
            self.running.change(path, change)

    def _metering_paths(self) -> list[str]:
        live = self.live[0]
        return [f"{live.folder}/{file.path}" for file in live.files]

    def _pread(self, descriptor: int, size: int, offset: int) -> bytes:
        """Read a file as Linux does: if its device is gone, this is an error."""
        if "/sys unplugged/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return _PREAD(descriptor, size, offset)


_PREAD: Final = os.pread


def forbid(patch: pytest.MonkeyPatch, paths: Collection[Path]) -> None:
    """Make files unreadable, also for root."""
    really_open = os.open

    def guarded(path, *args, **kwargs):
        if Path(path).resolve() in paths:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really_open(path, *args, **kwargs)

    patch.setattr(os, "open", guarded)


@dataclass(slots=True)
class Sampled:
    """Sources of a lab that a sampler reads.

    Attributes:
        lab: the lab, whose sensors follow the clock.
        timeline: receives the readings.
        notices: events of the sources.
        readings: all readings.
    """

    lab: Lab
    timeline: Timeline = field(default_factory=Timeline)
    notices: list[Notice] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    sampler: Sampler = field(init=False)
    _start_s: float = field(init=False)

    def __post_init__(self) -> None:
        clock: Clock = self.lab.clock
        self._start_s = clock.monotonic_s()
        self.lab.start()
        self.sampler = Sampler(
            self.lab.sources, self.timeline, clock, self.notices.append, self.readings.extend
        )
        self.sampler.start()

    def advance(self, duration_s: float) -> None:
        """Let time pass."""
        self.lab.clock.advance(duration_s)

    def stop(self) -> None:
        """End the sampler."""
        self.sampler.stop(10.0)
        self.timeline.finish()

    def values(self) -> dict[Quantity, list[tuple[float, float]]]:
        """Return (time, value) of all readings of the first device, by quantity."""
        found: dict[Quantity, list[tuple[float, float]]] = {}
        for one in self.readings:
            if one.channel.device.key == self.lab.keys[0]:
                found.setdefault(one.channel.quantity, []).append((one.t_s, one.value))
        return found

    def energy(self, start_s: float, end_s: float, index: int = 0) -> tuple[float, float]:
        """Return joules and coverage between two moments since the start."""
        key = self.lab.keys[index]
        found = self.timeline.energy(key, self._start_s + start_s, self._start_s + end_s)
        return found.energy_j or 0.0, found.coverage

    def assert_right(self, start_s: float, end_s: float, index: int = 0) -> None:
        """The energy between two moments is fully covered, and is the truth within 2 %."""
        energy_j, coverage = self.energy(start_s, end_s, index)
        truth_j = self.lab.truth_j(start_s, end_s, index)
        assert coverage > 0.999
        assert abs(energy_j - truth_j) <= 0.02 * truth_j, (energy_j, truth_j)

    def assert_gap(self, start_s: float, end_s: float, *, has_shape: bool = False) -> None:
        """Between two moments, energy is missing and never too large.

        If the device has power readings, they may replace the counter. While it works, power is
        read every 0.8 s only, so that the ratio of both is known within 10 %.
        """
        energy_j, coverage = self.energy(start_s, end_s)
        truth_j = self.lab.truth_j(start_s, end_s)
        if has_shape and coverage > 0.999:
            assert abs(energy_j - truth_j) <= 0.15 * truth_j, (energy_j, truth_j)
            return
        assert coverage < 0.99
        assert energy_j <= 1.02 * truth_j

    def says(self, kind: str) -> list[str]:
        """Return the messages of one kind."""
        return [one.message for one in self.notices if one.kind == kind]


def quantities(channels: Sequence[Channel]) -> dict[Quantity, Channel]:
    """Return channels by quantity."""
    return {channel.quantity: channel for channel in channels}

"""Describes a family for the conformance suite, and runs its sources on a tree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from energy_callbacks.core.records import Channel, Quantity, Scope
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor, FoundDevice
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A family, and a tree with its devices.

    Attributes:
        name: name of the case.
        family: the family.
        make: adds the device with a number to a tree. It also takes ``start_j``, the value of the
            energy counter at the start.
        gauges: value that each quantity except power and energy has in the tree, in SI units.
        scope: scope of the device.
        named: part of the name of the device to test, if a device of the tree has several.
        share: power of that device as a share of the power of the tree's device.
        is_only_one: whether a machine has at most one device of the family.
        no_values: contents by which the driver may say that it has no value, given the right one.
    """

    name: str
    family: Family
    make: Callable[..., LiveDevice]
    gauges: Mapping[Quantity, float] = field(default_factory=dict)
    scope: Scope = "gpu"
    named: str = ""
    share: float = 1.0
    is_only_one: bool = False
    no_values: Mapping[str, Change] = field(default_factory=lambda: NO_TEXT)

    def rows(self, found: FoundDevice) -> Sequence[FileSensor]:
        """Return the sensors of a device."""
        return self.family.sensors

    @property
    def has_energy(self) -> bool:
        """Whether the tree has an energy counter."""
        return any(file.quantity == "energy" for file in self._example.files)

    @property
    def wrap_j(self) -> float | None:
        """Range of the energy counter, J; ``None`` if it does not wrap."""
        ranges = [f.wrap * f.unit for f in self._example.files if f.wrap and f.quantity == "energy"]
        return ranges[0] if ranges else None

    @property
    def _example(self) -> LiveDevice:
        return self.make(_NoTree(), 0)


class _NoTree(Tree):
    """A tree that writes nothing; a case asks it for the files of its device."""

    def __init__(self) -> None:
        self.root = Path("/nonexistent")

    def set(self, path: str, content: str | bytes | int) -> None:
        pass

    def link(self, path: str, target: str) -> None:
        pass


class Lab:
    """The devices of a case in a running tree, and their sources.

    Attributes:
        clock: virtual time.
        running: the tree.
        live: the devices of the tree.
        found: the devices that the family finds, one for each of ``live``.
        sources: their sources.

    Args:
        case: the case.
        folder: folder for the tree.
        signals: power of each device of the tree.
        start_j: value of the energy counters at the start.
    """

    def __init__(
        self, case: Case, folder: Path, *signals: Signal, start_j: float = 50_000.0
    ) -> None:
        self.case = case
        self.clock = FakeClock()
        self.running = RunningTree(Tree(folder / "sys"), self.clock)
        self.live = []
        for index, signal in enumerate(signals or (LOAD,)):
            self.live.append(case.make(self.running.tree, index, start_j=start_j))
            self.running.add(self.live[-1], signal)
        self.found = found_devices(case, self.running.tree.root)
        self.sources = [SysfsSource(self.clock, case.family, one) for one in self.found]

    @property
    def source(self) -> SysfsSource:
        """The source of the first device."""
        return self.sources[0]

    def advance(self, duration_s: float) -> None:
        """Let time pass, and update the files."""
        self.clock.advance(duration_s)
        self.running.update()

    def values(self, source: SysfsSource | None = None) -> dict[Quantity, float]:
        """Return what one read says, by quantity."""
        return {one.channel.quantity: one.value for one in (source or self.source).read()}

    def truth_j(self, start_s: float, end_s: float, index: int = 0) -> float:
        """Return the energy of a device between two moments since the start of the tree."""
        return self.case.share * self.running.truth_j(self.live[index], start_s, end_s)

    def change_all(self, change: Change | bytes | None, index: int = 0) -> None:
        """Change the content of all files of power and energy of a device."""
        for path in self.metering_paths(index):
            self.running.change(path, change)

    def metering_paths(self, index: int = 0) -> list[str]:
        """Return the files of power and energy of a device, relative to the root."""
        live = self.live[index]
        return [f"{live.folder}/{file.path}" for file in live.files]


def found_devices(case: Case, root: Path) -> list[FoundDevice]:
    """Return the devices of the case with keys as the list of all GPUs gives them."""
    found = [one for one in case.family.find(root) if case.named in one.device.name]
    return [
        replace(one, device=replace(one.device, key=f"device{index}"))
        for index, one in enumerate(found)
    ]


@dataclass(slots=True)
class Sampled:
    """Sources of a lab that a sampler reads.

    Attributes:
        lab: the lab, whose tree is running.
        timeline: receives the readings.
        notices: events of the sources.
    """

    lab: Lab
    timeline: Timeline = field(default_factory=Timeline)
    notices: list[Notice] = field(default_factory=list)
    sampler: Sampler = field(init=False)
    _start_s: float = field(init=False)

    def __post_init__(self) -> None:
        clock: Clock = self.lab.clock
        self._start_s = clock.monotonic_s()
        self.lab.running.start()
        self.sampler = Sampler(self.lab.sources, self.timeline, clock, self.notices.append)
        self.sampler.start()

    def advance(self, duration_s: float) -> None:
        """Let time pass."""
        self.lab.clock.advance(duration_s)

    def stop(self) -> None:
        """End the sampler."""
        self.sampler.stop(10.0)
        self.timeline.finish()

    def energy(self, start_s: float, end_s: float, index: int = 0) -> tuple[float, float]:
        """Return joules and coverage between two moments since the start."""
        key = self.lab.found[index].device.key
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

"""The energy of CPUs from perf events, on a tree and with an opener that counts."""

import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing.sources import perf_energy
from energy_callbacks.sensing.sources.perf_energy import PerfEnergySource, open_event
from energy_callbacks.testing import FakeClock
from tests.sensing.sources.trees.tree import Tree

# One unit in joules: 2 ** -32 (arch/x86/events/rapl.c).
SCALE = "2.3283064365386962890625e-10"
PMU = "bus/event_source/devices/power"
CPUS = "devices/system/cpu"
TWO_PACKAGES = {
    "type": 29,
    "cpumask": "0,28",
    "events/energy-pkg": "event=0x02",
    "events/energy-pkg.scale": SCALE,
    "events/energy-ram": "event=0x03",
    "events/energy-ram.scale": SCALE,
    "events/energy-cores": "event=0x01",
    "events/energy-psys": "event=0x05",
}
Event = tuple[int, int, int]


class Kernel:
    """Opens events, whose counts the test sets; remembers what was asked."""

    def __init__(self, refused: dict[int, int] | None = None) -> None:
        self.pipes: dict[Event, tuple[int, int]] = {}
        self.refused = refused or {}

    def __call__(self, kind: int, config: int, cpu: int) -> int:
        if number := self.refused.get(config):
            raise OSError(number, os.strerror(number))
        self.pipes[kind, config, cpu] = os.pipe()
        return self.pipes[kind, config, cpu][0]

    def count(self, energies_j: dict[Event, float]) -> None:
        """Let the next read of each event return this energy."""
        for event, energy_j in energies_j.items():
            os.write(self.pipes[event][1], struct.pack("=Q", round(energy_j / float(SCALE))))

    def close(self) -> None:
        """Close the writing ends."""
        for _, writer in self.pipes.values():
            os.close(writer)


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two packages of Intel."""
    Tree(tmp_path).write(TWO_PACKAGES, PMU)
    return tmp_path


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """A kernel that permits everything."""
    found = Kernel()
    monkeypatch.setattr(perf_energy, "open_event", found)
    yield found
    found.close()


def test_each_package_and_its_memory_have_a_counter(sysfs: Path, kernel: Kernel) -> None:
    """Parts of the package and what contains it are left out; counters may exceed 32 bits."""
    clock = FakeClock()
    source = PerfEnergySource(clock, sysfs)
    channels = source.open()
    assert [one.device.key for one in channels] == ["cpu0", "dram0", "cpu1", "dram1"]
    assert {one.device.scope for one in channels} == {"host"}
    assert list(kernel.pipes) == [(29, 2, 0), (29, 3, 0), (29, 2, 28), (29, 3, 28)]
    kernel.count(dict.fromkeys(kernel.pipes, 0.0))
    source.read()
    clock.advance(2.0)
    joules = dict(zip(kernel.pipes, (200.0, 20.0, 1e6, 1.0), strict=True))
    kernel.count(joules)
    readings = source.read()
    assert [one.value for one in readings] == pytest.approx(list(joules.values()), abs=1e-9)
    assert {one.t_s for one in readings} == {1002.0}
    source.close()
    source.close()


@pytest.mark.parametrize(
    ("vendor", "keys"), [("ven0002", ["cpu0", "cpu1"]), ("ven0000", ["cpu0", "cpu1", "cpu2"])]
)
def test_dies_of_amd_share_the_counter_of_their_package(
    sysfs: Path, kernel: Kernel, vendor: str, keys: list[str]
) -> None:
    """Some versions of Linux list a CPU of each die; Intel's dies have a counter each."""
    tree = Tree(sysfs)
    tree.write({"cpumask": "0,8,28", "events/energy-pkg": "event=0x02"}, PMU)
    for name in ("energy-ram", "energy-ram.scale"):
        (sysfs / PMU / "events" / name).unlink()
    tree.write({"modalias": f"cpu:type:x86,{vendor}fam0019mod0011:feature:"}, CPUS)
    for cpu, package in ((0, 0), (8, 0), (28, 1)):
        tree.write({f"cpu{cpu}/topology/physical_package_id": package}, CPUS)
    source = PerfEnergySource(FakeClock(), sysfs)
    assert [one.device.key for one in source.open()] == keys
    source.close()


def test_events_that_the_cpu_does_not_have_are_left_out(sysfs: Path, kernel: Kernel) -> None:
    """Some kernels list the event of the memory on AMD's CPUs, and refuse to open it."""
    kernel.refused = {3: errno.EINVAL}
    source = PerfEnergySource(FakeClock(), sysfs)
    assert [one.device.key for one in source.open()] == ["cpu0", "cpu1"]
    source.close()


def test_without_permission_both_ways_to_get_it_are_named(sysfs: Path, kernel: Kernel) -> None:
    """Perf's setting and RAPL's files; no event stays open."""
    kernel.refused = {3: errno.EACCES}
    with pytest.raises(SourceUnavailable, match="Permission denied") as caught:
        PerfEnergySource(FakeClock(), sysfs).open()
    for way in ("kernel.perf_event_paranoid=0", "CAP_PERFMON", "energy_uj"):
        assert way in caught.value.fix
    [(reader, _)] = kernel.pipes.values()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reader)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"type": 29},
        {"type": "none", "cpumask": "0"},
        {**TWO_PACKAGES, "cpumask": ""},
        {"type": 29, "cpumask": "0"},
    ],
)
def test_a_machine_without_the_events_has_no_fix(tmp_path: Path, files: dict[str, str]) -> None:
    """Virtual machines have no such folder, or an unusable one."""
    Tree(tmp_path).write(files, PMU)
    with pytest.raises(SourceUnavailable, match="no energy events") as caught:
        PerfEnergySource(FakeClock(), tmp_path).open()
    assert caught.value.fix == ""


def test_the_kernel_is_asked_with_the_documented_structure() -> None:
    """A software event (type 1, CPU clock 0) opens where it may; unknown types are refused."""
    try:
        file = open_event(1, 0, 0)
    except PermissionError:
        pytest.skip("this process may not open perf events")
    except OSError as error:
        pytest.skip(f"no perf events here: {error}")
    first, second = (struct.unpack("=Q", os.read(file, 8))[0] for _ in range(2))
    os.close(file)
    assert 0 < first < second
    with pytest.raises(OSError, match=r"No such file|Invalid argument"):
        open_event(4_000_000, 0, 0)

"""AMD GPUs: which there are, what they measure, and what their figures include."""

from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks.core.records import Channel, Quantity, Reading
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from energy_callbacks.sensing.sources.sysfs import amd_gpu as table
from energy_callbacks.sensing.sources.sysfs.amd_gpu import AMD_GPU
from energy_callbacks.sensing.sources.sysfs.family import FoundDevice
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource
from energy_callbacks.testing import FakeClock
from tests.fake_nvml.signals import Constant, Signal, Square
from tests.sensing.sources.trees import LiveDevice, RunningTree, Tree, amd_gpu, intel_gpu
from tests.sensing.sources.trees.amd_gpus import GIB, apu, mi250x, mi300x, navi
from tests.sensing.sources.trees.gpu_metrics import FIELDS, gpu_metrics

Make = Callable[[Tree], LiveDevice]


def found_in(tree: Tree) -> list[FoundDevice]:
    """All AMD GPUs of a tree."""
    return list(AMD_GPU.find(tree.root))


class Machine:
    """A tree that follows virtual time, and a source that reads one device of it."""

    def __init__(self, root: Path, make: Make, signal: Signal) -> None:
        self.clock = FakeClock()
        tree = Tree(root)
        self.device = make(tree)
        self.running = RunningTree(tree, self.clock)
        self.running.add(self.device, signal)
        self.found = found_in(tree)[0]
        self.source = SysfsSource(self.clock, AMD_GPU, self.found)
        self.channels: list[Channel] = list(self.source.open())
        self.readings: list[Reading] = []

    def run(self, seconds: float) -> None:
        """Read as the sampler does, with the files brought up to date before each reading."""
        end_s = self.clock.monotonic_s() + seconds
        while self.clock.monotonic_s() < end_s:
            self.readings += self.source.read()
            self.clock.advance(self.source.interval_s)
            self.running.update()

    def curve(self) -> EnergyCurve:
        """The energy of all readings."""
        curve = EnergyCurve(self.channels)
        curve.add(self.readings)
        curve.finish()
        return curve

    def latest(self, quantity: Quantity) -> float:
        """The newest value of a quantity."""
        return [r.value for r in self.readings if r.channel.quantity == quantity][-1]

    @property
    def notes(self) -> str:
        """The notes of the device, as the report shows them."""
        return "; ".join(self.channels[0].device.notes)

    def channel(self, quantity: Quantity) -> Channel:
        """The channel of a quantity."""
        return next(one for one in self.channels if one.quantity == quantity)


STEADY = Constant(300.0)


def test_a_graphics_card_measures_its_power_and_its_gauges(tmp_path: Path) -> None:
    """An RX 7900 XTX without energy counter: the figures of its files, in the units of the core."""
    machine = Machine(tmp_path, amd_gpu, STEADY)
    machine.run(20.0)
    assert machine.found.pci == "0000:03:00.0"
    assert machine.found.device.uuid == "GPU-a1b2c3d400000000"
    assert machine.channels[0].device.limit_w == 339.0
    assert machine.found.device.memory_bytes == 25_753_026_560
    assert not machine.found.is_integrated
    assert machine.latest("power") == 300.0
    assert machine.latest("power_limit") == 339.0
    assert machine.latest("temperature") == 73.0  # junction, not edge
    assert machine.latest("clock") == 2.304e9
    assert machine.latest("utilisation") == 0.5
    assert machine.latest("memory_used") == GIB
    energy = machine.curve().energy(1001.0, 1019.0)
    assert energy.energy_j == pytest.approx(5400.0, rel=1e-9)
    assert energy.method == "power"
    assert energy.systematic_j == pytest.approx(540.0, rel=1e-6)


@pytest.mark.parametrize("revision", FIELDS)
def test_the_energy_of_an_accelerator_is_that_of_its_counter(
    tmp_path: Path, revision: tuple[int, int]
) -> None:
    """A load that changes between two readings of power has the energy of the counter."""
    load = Square(low_w=150.0, high_w=700.0, period_s=0.37)
    machine = Machine(tmp_path, lambda tree: mi300x(tree, revision=revision), load)
    machine.run(60.0)
    curve = machine.curve()
    times_s = [r.t_s for r in machine.readings if r.channel.quantity == "energy"]
    start_s, end_s = next(t for t in times_s if t > 1020.0), times_s[-1]
    energy = curve.energy(start_s, end_s)
    truth_j = machine.running.truth_j(machine.device, start_s - 1000.0, end_s - 1000.0)
    assert energy.energy_j == pytest.approx(truth_j, rel=1e-6)
    assert energy.method == "counter"
    assert energy.coverage == 1.0
    assert curve.disagreements == 0


def test_a_wrong_counter_is_replaced_by_the_power_readings(tmp_path: Path) -> None:
    """A counter in twice the unit, as on a generation whose unit is not documented."""
    machine = Machine(tmp_path, lambda tree: mi300x(tree, gain=1.3), STEADY)
    machine.run(60.0)
    curve = machine.curve()
    energy = curve.energy(1001.0, 1059.0)
    assert energy.energy_j == pytest.approx(300.0 * 58.0, rel=1e-9)
    assert energy.method == "power"
    assert curve.disagreements > 0


def test_a_counter_of_32_bits_wraps(tmp_path: Path) -> None:
    """RDNA counts 65 536 J, and then from 0 again: nothing is lost at the wrap."""
    start_j = 65_536.0 - 300.0 * 30.0
    machine = Machine(tmp_path, lambda tree: navi(tree, start_j=start_j), STEADY)
    machine.run(60.0)
    energy = machine.curve().energy(1020.0, 1050.0)
    assert energy.energy_j == pytest.approx(9000.0, rel=1e-5)
    assert energy.method == "counter"
    assert "1 time" in " ".join(machine.source.remarks())


@pytest.mark.parametrize("content", [b"", b"\x08\x00\x01\x09\x01\x00\x00\x00"])
def test_an_unknown_table_leaves_power(tmp_path: Path, content: bytes) -> None:
    """An empty or unknown ``gpu_metrics`` takes no other quantity away."""

    def make(tree: Tree) -> LiveDevice:
        card = mi300x(tree)
        tree.set(f"{card.folder}/gpu_metrics", content)
        return LiveDevice(folder=card.folder, files=card.files[:1])

    machine = Machine(tmp_path, make, STEADY)
    assert "energy" not in {one.quantity for one in machine.channels}
    machine.run(20.0)
    assert machine.curve().energy(1001.0, 1019.0).energy_j == pytest.approx(5400.0, rel=1e-9)


@pytest.mark.parametrize("value", [0, 2**32 - 1, 2**64 - 1])
@pytest.mark.parametrize("revision", [(1, 3), (1, 5)])
def test_a_counter_that_the_driver_does_not_have_is_missing(
    tmp_path: Path, revision: tuple[int, int], value: int
) -> None:
    """Zero and all ones mean that there is no counter; they are not energies."""

    def make(tree: Tree) -> LiveDevice:
        card = mi300x(tree)
        content = gpu_metrics(revision, energy_accumulator=value)
        tree.set(f"{card.folder}/gpu_metrics", content)
        return LiveDevice(folder=card.folder, files=card.files[:1])

    machine = Machine(tmp_path, make, STEADY)
    quantities = {one.quantity for one in machine.channels}
    assert "power" in quantities
    assert "energy" not in quantities


def test_the_mean_is_preferred_and_the_file_is_named(tmp_path: Path) -> None:
    """The report says which of the two files of power was read."""

    def make(tree: Tree) -> LiveDevice:
        card = amd_gpu(tree)
        tree.set(f"{card.folder}/hwmon/hwmon0/power1_input", 1)
        return card

    sensor = Machine(tmp_path / "both", make, STEADY).channel("power").sensor
    assert sensor is not None
    assert sensor.name.endswith("power1_average")
    sensor = Machine(tmp_path / "one", mi300x, STEADY).channel("power").sensor
    assert sensor is not None
    assert sensor.name.endswith("power1_input")


def test_the_sensors_are_found_beside_other_hwmon_folders(tmp_path: Path) -> None:
    """A card may have several hwmon folders; those without power do not matter."""

    def make(tree: Tree) -> LiveDevice:
        card = amd_gpu(tree)
        tree.write({"name": "other", "in0_input": 12_000}, f"{card.folder}/hwmon/hwmon-1")
        return card

    machine = Machine(tmp_path, make, STEADY)
    machine.run(1.0)
    assert machine.latest("power") == 300.0


def test_the_power_of_an_apu_includes_its_cpu(tmp_path: Path) -> None:
    """The device says so, is marked as integrated, and counts both kinds of memory."""
    machine = Machine(tmp_path, apu, Constant(45.0))
    machine.run(5.0)
    assert machine.found.is_integrated
    assert "includes the CPU" in machine.notes
    assert machine.found.device.memory_bytes == 64.5 * GIB
    assert machine.latest("memory_used") == 30.25 * GIB
    assert machine.latest("temperature") == 58.0
    assert machine.latest("power") == 45.0
    assert "energy" not in {one.quantity for one in machine.channels}


def test_an_mi300a_is_an_apu_too(tmp_path: Path) -> None:
    """It has no voltage of the CPU, but CPU cores inside."""
    tree = Tree(tmp_path)
    tree.set(f"{mi300x(tree).folder}/device", "0x74a0")
    (found,) = found_in(tree)
    assert found.is_integrated
    assert "includes the CPU" in found.device.notes[0]


def test_both_dies_of_a_card_are_measured_on_the_first(tmp_path: Path) -> None:
    """The second die of an MI250X has no energy of its own, and names the first."""
    tree = Tree(tmp_path)
    for index in range(2):
        mi250x(tree, index)
    found = found_in(tree)
    assert [one.pci for one in found] == [f"0000:{bus}:00.0" for bus in ("c1", "c6", "cb", "d0")]
    assert [one.energy_pci for one in found] == [None, "0000:c1:00.0", None, "0000:cb:00.0"]
    assert "measured on 0000:c1:00.0" in found[1].device.notes[0]
    channels = SysfsSource(FakeClock(), AMD_GPU, found[1]).open()
    assert {one.quantity for one in channels} == {"utilisation", "temperature", "memory_used"}
    assert channels[0].device.scope is None


def test_the_first_die_measures(tmp_path: Path) -> None:
    """Its energy is that of the whole card."""
    machine = Machine(tmp_path, mi250x, Constant(500.0))
    machine.run(40.0)
    energy = machine.curve().energy(1020.0, 1035.0)
    assert energy.energy_j == pytest.approx(7500.0, rel=1e-5)
    assert energy.method == "counter"


def test_a_divided_gpu_says_that_it_is_measured_as_a_whole(tmp_path: Path) -> None:
    """An MI300X in the mode CPX has eight partitions; their folders are no GPUs."""
    tree = Tree(tmp_path)
    card = mi300x(tree)
    tree.set(f"{card.folder}/current_compute_partition", "CPX")
    tree.write({"uevent": "DRIVER=amdgpu_xcp"}, "devices/platform/amdgpu_xcp_0")
    tree.link("class/drm/card7/device", "devices/platform/amdgpu_xcp_0")
    (found,) = found_in(tree)
    assert "CPX" in found.device.notes[0]
    assert not found.is_integrated
    tree.set(f"{card.folder}/current_compute_partition", "SPX")
    assert found_in(tree)[0].device.notes == ()
    assert found.device.memory_bytes == 192 * GIB


def test_only_amd_gpus_are_found_in_the_order_of_their_addresses(tmp_path: Path) -> None:
    """Neither connectors nor GPUs of other vendors; card10 is not before card2."""
    tree = Tree(tmp_path)
    intel_gpu(tree, 1)
    for index in (12, 2, 0):
        amd_gpu(tree, index)
    pci = [one.pci for one in found_in(tree)]
    assert pci == ["0000:03:00.0", "0000:05:00.0", "0000:0f:00.0"]


def test_an_address_is_known_without_the_file_that_names_it(tmp_path: Path) -> None:
    """The link of the card leads to a folder of that name."""
    tree = Tree(tmp_path)
    tree.remove(f"{amd_gpu(tree).folder}/uevent")
    assert [one.pci for one in found_in(tree)] == ["0000:03:00.0"]


def test_without_any_gpu_nothing_is_found(tmp_path: Path) -> None:
    """A machine without ``/sys/class/drm``, such as most containers without a GPU."""
    assert found_in(Tree(tmp_path)) == []


@pytest.mark.parametrize(
    ("names", "product", "expected"),
    [
        ("744C,\tC8,\tAMD Radeon RX 7900 XTX\n", None, "AMD Radeon RX 7900 XTX"),
        ("# comment\n1.0.0\n\n744C,\tCC,\tAMD Radeon RX 7900 XT\n", None, "AMD GPU 744C"),
        ("744C,\tC8,\tAMD Radeon RX 7900 XTX\n", "Radeon PRO", "Radeon PRO"),
    ],
)
def test_a_gpu_has_the_best_known_name(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names: str,
    product: str | None,
    expected: str,
) -> None:
    """The name on the card's label, else that of libdrm for device and revision, else the id."""
    tree = Tree(tmp_path / "sys")
    card = amd_gpu(tree)
    tree.set(f"{card.folder}/revision", "0xc8")
    if product is not None:
        tree.set(f"{card.folder}/product_name", product)
    (tmp_path / "amdgpu.ids").write_text(names)
    monkeypatch.setattr(table, "_NAMES", tmp_path / "amdgpu.ids")
    assert found_in(tree)[0].device.name == expected


def test_every_row_has_a_citation() -> None:
    """Unit and meaning of each file are documented."""
    assert all("Linux" in row.citation for row in AMD_GPU.sensors)

"""The RAPL source against a powercap tree on disk whose counters the test moves itself."""

import os
from pathlib import Path

import pytest

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing.sampler import Sampler
from energy_callbacks.sensing.schedule import BEAT_S
from energy_callbacks.sensing.sources.protocol import QuickSource
from energy_callbacks.sensing.sources.rapl import RaplSource
from energy_callbacks.sensing.timeline import Timeline
from energy_callbacks.testing import FakeClock

RANGE_UJ = 262_143_328_850


class Clock:
    """Time that moves when the test says so."""

    def __init__(self):
        self.now_s = 100.0

    def monotonic_s(self):
        return self.now_s


class Tree:
    """A powercap folder laid out as the kernel does: every zone flat, children inside as well."""

    def __init__(self, root: Path):
        self.root = root

    def add(self, zone, name, energy_uj, range_uj=RANGE_UJ, control="intel-rapl"):
        parent, _, child = zone.partition("/")
        folder = self.root / f"{control}:{parent}"
        if child:
            folder = folder / f"{control}:{parent}:{child}"
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        if range_uj is not None:
            (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
        if child:
            (self.root / folder.name).symlink_to(folder)
        self.set(folder, energy_uj)
        return folder

    @staticmethod
    def set(folder, energy_uj):
        (folder / "energy_uj").write_text(f"{energy_uj}\n" if energy_uj is not None else "")


@pytest.fixture
def clock():
    """A clock that stands still."""
    return Clock()


@pytest.fixture
def tree(tmp_path):
    """An empty powercap folder."""
    return Tree(tmp_path / "powercap")


def opened(tree, clock):
    """A source over the tree with its first reading, and the channels it offered."""
    source = RaplSource(clock, tree.root)
    channels = source.open()
    source.read()
    return source, channels


def joules(source):
    """What one read says, by device."""
    return {reading.channel.device.key: reading.value for reading in source.read()}


def test_joules_in_are_joules_out(tree, clock):
    """A counter that moves by 150 J in uneven steps reads 150 J, and 0 J at first."""
    folder = tree.add("0", "package-0", 7_000_000)
    source = RaplSource(clock, tree.root)
    channels = source.open()
    assert joules(source) == {"cpu0": 0.0}
    energy_uj = 7_000_000
    for step_uj in (
        1,
        9_999_999,
        40_000_000,
        25_000_000,
        61,
        24_999_939,
        33_000_000,
        17_000_000,
    ):
        clock.now_s += 0.1
        energy_uj += step_uj
        tree.set(folder, energy_uj)
        last = joules(source)["cpu0"]
    assert last == pytest.approx(150.0, abs=1e-9)
    (channel,) = channels
    assert (channel.quantity, channel.kind, channel.device.scope) == ("energy", "counter", "host")
    assert channel.device.name == "RAPL package-0"
    assert channel.device.origin == "measured"
    assert channel.sensor.relative_error > 0


def test_two_packages_with_memory(tree, clock):
    """Two packages and their memory are four devices; each package's memory has its number."""
    first = tree.add("0", "package-0", 5)
    first_memory = tree.add("0/1", "dram", 6, range_uj=65_712_999_613)
    second = tree.add("1", "package-1", 5)
    second_memory = tree.add("1/1", "dram", 6, range_uj=65_712_999_613)
    source, channels = opened(tree, clock)
    assert [channel.device.key for channel in channels] == ["cpu0", "dram0", "cpu1", "dram1"]
    assert [channel.device.kind for channel in channels] == ["cpu", "dram", "cpu", "dram"]
    for number, folder in enumerate((first, first_memory, second, second_memory), start=1):
        tree.set(folder, 10_000_000 * number)
    read = joules(source)
    assert read == pytest.approx({"cpu0": 10, "dram0": 20, "cpu1": 30, "dram1": 40}, abs=1e-4)


def test_nothing_is_counted_twice(tree, clock):
    """Cores, uncore, the platform and the second register of the package are left out."""
    tree.add("0", "package-0", 1)
    tree.add("0/0", "core", 1)
    tree.add("0/1", "uncore", 1)
    tree.add("0/2", "dram", 1)
    tree.add("1", "psys", 1)
    tree.add("0", "package-0", 1, control="intel-rapl-mmio")
    (tree.root / "intel-rapl").mkdir()
    _, channels = opened(tree, clock)
    assert [channel.device.name for channel in channels] == [
        "RAPL package-0",
        "RAPL package-0 dram",
    ]


def test_more_than_ten_packages_keep_their_order(tree, clock):
    """Package 10 follows package 9, not package 1."""
    for number in range(12):
        tree.add(str(number), f"package-{number}", 1_000_000_000 * number)
    _, channels = opened(tree, clock)
    assert [channel.device.index for channel in channels] == list(range(12))
    assert channels[10].device.name == "RAPL package-10"


def test_same_name_twice_is_the_same_package(tree, clock):
    """A package that is listed under two numbers is read once."""
    tree.add("0", "package-0", 1_000)
    tree.add("1", "package-0", 900_000_000)
    _, channels = opened(tree, clock)
    assert [channel.device.key for channel in channels] == ["cpu0"]


@pytest.mark.parametrize(
    ("second_uj", "keys"),
    [(50_000_400_000, ["cpu0"]), (61_000_000_000, ["cpu0", "cpu1"])],
    ids=["mirror", "own counter"],
)
def test_dies_that_mirror_one_counter_are_read_once(tree, clock, second_uj, keys):
    """Two dies that show one counter are one device; dies with counters of their own are two."""
    tree.add("0", "package-0-die-0", 50_000_000_000)
    tree.add("1", "package-0-die-1", second_uj)
    _, channels = opened(tree, clock)
    assert [channel.device.key for channel in channels] == keys


def test_equal_counters_of_two_sockets_are_two_devices(tree, clock):
    """Only dies of one package can mirror each other, whatever two sockets happen to show."""
    tree.add("0", "package-0", 50_000_000_000)
    tree.add("1", "package-1", 50_000_000_000)
    _, channels = opened(tree, clock)
    assert len(channels) == 2


def test_wrap_without_known_range_is_dropped(tree, clock):
    """Where the range cannot be read, a wrap is a decrease: neither 0 J nor 262 kJ."""
    folder = tree.add("0", "package-0", 200_000_000_000, range_uj=None)
    source, _ = opened(tree, clock)
    clock.now_s += 0.1
    tree.set(folder, 200_010_000_000)
    assert joules(source)["cpu0"] == pytest.approx(10.0)
    tree.set(folder, 3_000_000)
    restart_j = joules(source)["cpu0"]
    assert restart_j < 10.0
    tree.set(folder, 8_000_000)
    assert joules(source)["cpu0"] - restart_j == pytest.approx(5.0)


def test_failed_zone_has_no_reading(tree, clock):
    """A zone that cannot be read is left out, the other goes on, and no joule is lost after."""
    broken = tree.add("0", "package-0", 1_000_000)
    working = tree.add("1", "package-1", 1_000_000)
    source, _ = opened(tree, clock)
    tree.set(broken, "N/A")
    tree.set(working, 3_000_000)
    assert joules(source) == {"cpu1": 2.0}
    tree.set(broken, 41_000_000)
    tree.set(working, 4_000_000)
    assert joules(source) == {"cpu0": 40.0, "cpu1": 3.0}


def test_reading_carries_its_time(tree, clock):
    """A reading stands for the moment between the clock before and after the file was read."""
    tree.add("0", "package-0", 1)
    source = RaplSource(clock, tree.root)
    source.open()
    ticks = iter((199.999, 200.0, 200.004))
    clock.monotonic_s = lambda: next(ticks)
    (reading,) = source.read()
    assert reading.t_s == pytest.approx(200.002)
    assert 0.002 <= reading.t_error_s < 0.005


def test_absent_counter_says_why(tmp_path, clock):
    """Without any zone the error names virtual machines, the kernel module and containers."""
    with pytest.raises(SourceUnavailable, match="no RAPL") as caught:
        RaplSource(clock, tmp_path / "nothing").open()
    assert all(word in caught.value.fix for word in ("virtual", "intel_rapl_msr", "container"))


def forbid(monkeypatch, forbidden):
    """Make files unreadable also for root, whom file modes do not stop."""
    really_open = os.open

    def guarded(path, *args, **kwargs):
        if Path(path) in forbidden:
            raise PermissionError(13, "Permission denied", str(path))
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", guarded)


def test_unreadable_counter_says_how_to_open_it(tree, clock, monkeypatch):
    """A counter that only root may read names the file, the reason and the ways out."""
    folder = tree.add("0", "package-0", 1)
    forbid(monkeypatch, {folder / "energy_uj"})
    with pytest.raises(SourceUnavailable) as caught:
        RaplSource(clock, tree.root).open()
    assert str(folder / "energy_uj") in caught.value.reason
    assert "Permission denied" in caught.value.reason
    assert "energy_uj = 0444" in caught.value.fix
    assert "CAP_DAC_READ_SEARCH" in caught.value.fix


def test_partly_readable_says_what_is_not_counted(tree, clock, monkeypatch):
    """With one of two packages readable, that one is offered and names the other as missing."""
    tree.add("0", "package-0", 1)
    forbidden = tree.add("1", "package-1", 1) / "energy_uj"
    forbid(monkeypatch, {forbidden})
    _, channels = opened(tree, clock)
    assert [channel.device.key for channel in channels] == ["cpu0"]
    assert str(forbidden) in channels[0].device.notes[0]


def test_container_mount_of_the_device_folder(tree, clock):
    """The layout of /sys/devices/virtual/powercap, mounted elsewhere, is understood too."""
    inner = Tree(tree.root / "intel-rapl")
    inner.add("0", "package-0", 1)
    inner.add("0/0", "dram", 1)
    source, channels = opened(tree, clock)
    assert [channel.device.key for channel in channels] == ["cpu0", "dram0"]
    source.close()
    direct = RaplSource(clock, inner.root)
    assert [channel.device.key for channel in direct.open()] == ["cpu0", "dram0"]


def test_short_phases_are_read_every_50_ms(tree, clock):
    """The sampler reads it so often after a change of phase; a zone costs microseconds."""
    tree.add("0", "package-0", 5)
    source, _ = opened(tree, clock)

    assert isinstance(source, QuickSource)
    assert source.quick_interval_s == 0.05
    # A moment just before a beat is of that beat.
    assert 0.0 < source.interval_s <= 1.1 * BEAT_S
    source.close()


def test_repeated_phases_of_a_second(tree):
    """40 phases of 1 s at 100 W between phases of 2 s at 400 W: 4000 J within 6 %."""
    fake = FakeClock(start_s=100.0)
    source, timeline = Moving(fake, tree), Timeline()
    sampler = Sampler([source], timeline, fake, lambda _: None)
    sampler.start()
    fake.advance(1.0)
    spans = []
    for _ in range(40):
        start_s = source.change(400.0, timeline)
        fake.advance(2.013)
        start_s = source.change(100.0, timeline)
        fake.advance(1.0)
        spans.append((start_s, fake.monotonic_s()))
    source.change(400.0, timeline)
    fake.advance(2.0)
    sampler.stop(10.0)
    timeline.finish()

    energies = [timeline.energy("cpu0", start_s, end_s) for start_s, end_s in spans]
    assert sum(energy.energy_j for energy in energies) == pytest.approx(4000.0, rel=0.06)


class Moving(RaplSource):
    """A source over one package whose counter rises with the fake clock, as power is changed."""

    def __init__(self, fake, tree):
        self.fake, self.tree = fake, tree
        self.folder = tree.add("0", "package-0", 5)
        self.energy_j, self.power_w, self.changed_s = 1.0, 400.0, fake.monotonic_s()
        super().__init__(fake, tree.root)

    def change(self, power_w, timeline):
        """Change the power and the phase, and return the time."""
        now_s = self.fake.monotonic_s()
        self.energy_j += self.power_w * (now_s - self.changed_s)
        self.power_w, self.changed_s = power_w, now_s
        timeline.pin(now_s)
        return now_s

    def read(self):
        now_s = self.fake.monotonic_s()
        energy_j = self.energy_j + self.power_w * (now_s - self.changed_s)
        self.tree.set(self.folder, round(1e6 * energy_j))
        return super().read()

"""What the reader of sensors in files does beyond what every family is tested for."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.core.records import Device
from energy_callbacks.sensing.sources.protocol import QuickSource, RemarkingSource
from energy_callbacks.sensing.sources.sysfs.family import (
    SYSFS_VARIABLE,
    Family,
    FileSensor,
    FoundDevice,
    sysfs_root,
)
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource
from energy_callbacks.testing import FakeClock
from tests.sensing.sources.trees import Tree

POWER = FileSensor(quantity="power", kind="gauge", files=("power",), unit=1e-6, citation="test")
ENERGY = FileSensor(
    quantity="energy", kind="counter", files=("energy",), unit=1e-6, citation="test"
)
CLOCK = FileSensor(quantity="clock", kind="gauge", files=("clock",), unit=1e6, citation="test")
LIMIT = FileSensor(quantity="power_limit", kind="gauge", files=("cap",), unit=1e-6, citation="test")


class Machine:
    """A device with files below a folder."""

    def __init__(self, folder):
        self.clock = FakeClock()
        self.tree = Tree(folder / "device")

    def source(self, *sensors, **found):
        device = Device(key="gpu0", kind="gpu", scope="gpu", name="Test GPU")
        family = Family(
            name="Test GPU",
            find=lambda root: (),
            sensors=sensors,
            permission_fix="ask",
            absence_fix="load",
        )
        found = FoundDevice(device=device, folder=self.tree.root, **found)
        return SysfsSource(self.clock, family, found)


@pytest.fixture
def machine(tmp_path):
    """A device with power, energy, clock and limit."""
    machine = Machine(tmp_path)
    machine.tree.write({"power": 200_000_000, "energy": 1, "clock": 2100, "cap": 300_000_000})
    return machine


def read(source):
    """What one read says, by quantity."""
    return {one.channel.quantity: one.value for one in source.read()}


def test_root_of_all_files(monkeypatch):
    """A container can mount the files of its host elsewhere."""
    monkeypatch.delenv(SYSFS_VARIABLE, raising=False)
    assert sysfs_root() == Path("/sys")
    monkeypatch.setenv(SYSFS_VARIABLE, "/host/sys")
    assert sysfs_root() == Path("/host/sys")


def test_intervals_of_quantities(machine):
    """Power in each call, gauges at every second beat, limits at every sixth."""
    source = machine.source(ENERGY, POWER, CLOCK, LIMIT)
    source.open()
    machine.clock.advance(0.7)
    count = dict.fromkeys(("energy", "power", "clock", "power_limit"), 0)
    for _ in range(12):
        for quantity in read(source):
            count[quantity] += 1
        machine.clock.advance(source.interval_s)
    assert count == {"energy": 12, "power": 12, "clock": 6, "power_limit": 2}
    assert isinstance(source, QuickSource)
    assert isinstance(source, RemarkingSource)


@pytest.mark.parametrize(
    ("period_s", "least_s", "most_s"), [(None, 0.075, 0.125), (0.01, 0.037, 0.063)]
)
def test_power_alone_is_read_as_often_as_it_changes(machine, period_s, least_s, most_s):
    """The interval is random around the sensor's period, at least 0.05 s on average."""
    source = opened(machine.source(replace(POWER, period_s=period_s)))
    intervals_s = []
    for _ in range(100):
        source.read()
        intervals_s.append(source.interval_s)
        machine.clock.advance(intervals_s[-1])
    assert max(intervals_s) <= most_s
    assert sorted(intervals_s)[50] >= least_s
    assert len(set(intervals_s)) > 10


def test_slow_power_is_read_at_each_beat(machine):
    """A sensor that changes every 5 s is read with all other sensors."""
    source = opened(machine.source(replace(POWER, period_s=5.0)))
    machine.clock.advance(0.7)
    source.read()
    assert source.interval_s == pytest.approx(0.8)


@pytest.mark.parametrize(("period_s", "count"), [(None, 16), (0.1, 16), (0.4, 4), (5.0, 2)])
def test_slow_power_is_not_read_often(machine, period_s, count):
    """Between two phases, a sensor of power is read twice per period, or every 0.4 s."""
    source = opened(machine.source(replace(POWER, period_s=period_s)))
    readings = []
    for _ in range(16):
        readings += source.read()
        machine.clock.advance(source.quick_interval_s)
    assert len(readings) == count


def test_power_is_read_often_while_the_counter_fails(machine):
    """With a counter, a reading at each beat is enough; without it, power is all there is."""
    source = machine.source(ENERGY, POWER)
    source.open()
    source.read()
    assert source.interval_s > 0.2
    machine.tree.set("energy", "N/A")
    machine.clock.advance(0.7)
    assert read(source) == {"power": 200.0}
    assert source.interval_s < 0.2


def test_first_file_with_a_value_is_used(machine):
    """Patterns are tried in order; a file that the driver does not support is no file."""
    machine.tree.write({"hwmon/hwmon3/a": "N/A", "hwmon/hwmon4/a": 7, "b": 8})
    sensor = replace(POWER, files=("hwmon/hwmon*/a", "b"), unit=1.0)
    source = machine.source(sensor)
    (channel,) = source.open()
    assert Path(channel.sensor.name).relative_to(machine.tree.root) == Path("hwmon/hwmon4/a")
    assert read(source) == {"power": 7.0}


def test_first_sensor_of_a_quantity_is_used(machine):
    """Two sensors of one quantity are alternatives: energy of the card, else of the package."""
    second = replace(POWER, files=("second",))
    machine.tree.set("second", 5_000_000)
    assert read(opened(machine.source(POWER, second))) == {"power": 200.0}
    machine.tree.remove("power")
    assert read(opened(machine.source(POWER, second))) == {"power": 5.0}


def opened(source):
    """The source, open."""
    source.open()
    return source


def test_product_of_two_files(machine):
    """Power can be voltage times current: 5000 mV times 3000 mA are 15 W."""
    machine.tree.write({"in1_input": 5000, "curr1_input": 3000})
    sensor = replace(POWER, files=("in1_input",), times=("curr1_input",), unit=1e-6)
    assert read(opened(machine.source(sensor))) == {"power": 15.0}
    machine.tree.remove("curr1_input")
    with pytest.raises(SourceUnavailable, match="needs a second file, curr1_input"):
        machine.source(sensor).open()


def test_range_of_a_counter(machine):
    """With a range, a counter starts again at its end; without it, a decrease is a reset."""
    machine.tree.set("energy", 99_000_000)
    source = opened(machine.source(replace(ENERGY, wrap=99_999_999)))
    source.read()
    machine.tree.set("energy", 500_000)
    machine.clock.advance(1.0)
    assert read(source)["energy"] == pytest.approx(1.5)
    assert "1 time;" in source.remarks()[0]
    machine.tree.set("energy", 99_000_000)
    source = opened(machine.source(ENERGY))
    assert read(source)["energy"] == 0.0
    machine.tree.set("energy", 500_000)
    assert read(source)["energy"] < 0.0
    machine.tree.set("energy", 2_500_000)
    after_j = read(source)["energy"]
    machine.tree.set("energy", 4_500_000)
    assert read(source)["energy"] - after_j == pytest.approx(2.0)


def test_limit_is_a_property_of_the_device(machine):
    """The limit at the start is known to whoever sees the channels."""
    assert machine.source(POWER, LIMIT).open()[0].device.limit_w == 300.0
    machine.tree.remove("cap")
    assert machine.source(POWER, LIMIT).open()[0].device.limit_w is None


def test_places_of_one_device(machine):
    """Names in braces are those of the device; files with other names are left out."""
    machine.tree.set("in3_input", 7)
    sensor = replace(POWER, files=("{other}", "in{channel}_input"), unit=1.0)
    source = machine.source(sensor, replace(CLOCK, files=("{other}",)), places={"channel": "3"})
    assert read(opened(source)) == {"power": 7.0}


def test_a_sleeping_gpu_is_opened(machine, monkeypatch):
    """A file that was opened, but may not be read now, has readings later."""
    really_read = os.pread

    def asleep(*_):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "pread", asleep)
    source = opened(machine.source(ENERGY))
    with pytest.raises(ReadingMissed, match="Operation not permitted"):
        source.read()
    monkeypatch.setattr(os, "pread", really_read)
    assert read(source) == {"energy": 0.0}
    machine.tree.set("energy", 2_000_001)
    assert read(source) == {"energy": 2.0}


def test_a_forbidden_read_is_no_sleep(machine, monkeypatch):
    """Some drivers check permissions when a file is read."""

    def forbidden(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "pread", forbidden)
    with pytest.raises(SourceUnavailable, match="permission denied") as caught:
        machine.source(ENERGY).open()
    assert caught.value.fix == "ask"


def test_temperatures_below_zero(machine):
    """A negative temperature is a value; a negative power is none."""
    cold = replace(CLOCK, quantity="temperature", files=("cold",), unit=1e-3)
    machine.tree.set("cold", -12_000)
    assert read(opened(machine.source(POWER, cold)))["temperature"] == -12.0
    machine.tree.set("power", -1)
    with pytest.raises(SourceUnavailable, match="contains -1"):
        machine.source(POWER, cold).open()


def test_time_of_a_reading(machine):
    """A reading has the time in the middle of the call; a counter is as old as its period."""
    source = opened(machine.source(replace(ENERGY, period_s=0.01)))
    moments_s = iter((199.0, 199.999, 200.003))
    machine.clock.monotonic_s = lambda: next(moments_s)
    (reading,) = source.read()
    assert reading.t_s == pytest.approx(200.001)
    assert reading.t_error_s == pytest.approx(0.012)

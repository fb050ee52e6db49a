"""NVIDIA Grace and ACPI power meters in trees."""

import pytest

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.sensing.sources.sysfs.hwmon import ACPI_METER, GRACE
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource
from energy_callbacks.testing import FakeClock
from tests.sensing.sources.trees.described import described, devices, values


@pytest.mark.parametrize(
    ("tree", "power_w"),
    [
        ("grace_hopper", {"module0": 620.0, "cpu0": 190.0}),
        ("grace_cpu", {"cpu0": 240.0, "cpu1": 210.0}),
    ],
)
def test_power_of_grace(tmp_path, tree, power_w):
    """Module and sockets are read; the rails of CPU and SysIO, which are inside, are not."""
    found = values(GRACE, described(tree, tmp_path).root)
    assert {key: one["power"] for key, one in found.items()} == pytest.approx(power_w)


def test_scopes_of_grace(tmp_path):
    """A module is a sensor of the machine, a socket one of the host, which includes its memory."""
    found = devices(GRACE, described("grace_hopper", tmp_path).root)
    assert {key: (one.kind, one.scope) for key, one in found.items()} == {
        "module0": ("machine", "machine"),
        "cpu0": ("cpu", "host"),
    }
    assert GRACE.included_kinds == ("cpu", "dram")


@pytest.mark.parametrize(
    ("tree", "folder"),
    [("grace_hopper", "ACPI000D:00"), ("grace_cpu", "ACPI000D:00/hwmon/hwmon1")],
)
def test_unknown_power(tmp_path, tree, folder):
    """If the firmware does not know the power, there is no reading."""
    tree = described(tree, tmp_path)
    source = SysfsSource(FakeClock(), GRACE, next(iter(GRACE.find(tree.root))))
    source.open()
    tree.set(f"devices/LNXSYSTM:00/LNXSYBUS:00/{folder}/power1_average", 0xFFFFFFFF * 1000)
    with pytest.raises(ReadingMissed, match="which is no value"):
        source.read()
    source.close()


def test_the_meter_of_a_server(tmp_path):
    """The one ACPI power meter of a server is a sensor of the machine."""
    root = described("acpi_power_meter", tmp_path).root
    assert values(ACPI_METER, root) == {"machine": {"power": 415.0}}
    assert devices(ACPI_METER, root)["machine"].scope == "machine"


@pytest.mark.parametrize("tree", ["grace_hopper", "grace_cpu"])
def test_the_meters_of_grace_are_no_meters_of_a_server(tmp_path, tree):
    """A labelled meter measures a part, and is left to its own family, even if it is the only."""
    tree = described(tree, tmp_path)
    for chip in (2, 3, 4):
        tree.remove(f"class/hwmon/hwmon{chip}")
    assert devices(GRACE, tree.root)
    assert devices(ACPI_METER, tree.root) == {}


def test_a_battery_is_no_meter_of_a_server(tmp_path):
    """The meter of a battery is ignored."""
    tree = described("acpi_power_meter", tmp_path)
    folder = "devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:00/hwmon/hwmon1"
    tree.set(f"{folder}/power1_is_battery", 1)
    assert devices(ACPI_METER, tree.root) == {}


def test_of_several_meters_none_is_used(tmp_path):
    """With two meters, it is not known whether one includes the other."""
    tree = described("acpi_power_meter", tmp_path)
    second = {"name": "power_meter", "power1_oem_info": "PSU 2", "power1_average": 1}
    tree.write(second, "class/hwmon/hwmon5")
    assert devices(ACPI_METER, tree.root) == {}

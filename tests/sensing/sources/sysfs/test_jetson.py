"""Jetson boards in trees of several models."""

import pytest

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.sensing.scopes import Part, in_sum
from energy_callbacks.sensing.sources.sysfs.jetson import JETSON
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource
from energy_callbacks.testing import FakeClock
from tests.sensing.sources.trees.described import described, devices, values

# For each model: (key, scope, kind, W) of each rail that is read.
BOARDS = {
    "jetson_orin_nx": [
        ("vdd_in", "machine", "machine", 10.0),
        ("vdd_cpu_gpu_cv", "gpu", "gpu", 4.0),
        ("vdd_soc", "host", "cpu", 2.0),
    ],
    "jetson_agx_orin": [
        ("vdd_gpu_soc", "gpu", "gpu", 12.0),
        ("vdd_cpu_cv", "host", "cpu", 3.0),
        ("vin_sys_5v0", "host", "cpu", 4.5),
    ],
    "jetson_thor": [
        ("vin", "machine", "machine", 90.0),
        ("vdd_gpu", "gpu", "gpu", 48.0),
        ("vdd_cpu_soc_mss", "host", "cpu", 18.0),
        ("vin_sys_5v0", "host", "cpu", 9.0),
    ],
    "jetson_nano": [
        ("pom_5v_in", "machine", "machine", 8.0),
        ("pom_5v_gpu", "gpu", "gpu", 2.5),
        ("pom_5v_cpu", "host", "cpu", 1.5),
    ],
}


@pytest.mark.parametrize("board", BOARDS)
def test_rails(tmp_path, board):
    """Each rail has its scope and its power in W, and rails inside of others are not read."""
    tree = described(board, tmp_path)
    power_w = {key: one["power"] for key, one in values(JETSON, tree.root).items()}
    found = devices(JETSON, tree.root)
    assert power_w == pytest.approx({key: value_w for key, *_, value_w in BOARDS[board]})
    assert {(key, one.scope, one.kind) for key, one in found.items()} == {
        (key, scope, kind) for key, scope, kind, _ in BOARDS[board]
    }


@pytest.mark.parametrize("board", BOARDS)
def test_the_board_is_counted_once(tmp_path, board):
    """At most one rail is that of the whole board, and exactly one is that of the GPU."""
    scopes = [one.scope for one in devices(JETSON, described(board, tmp_path).root).values()]
    assert scopes.count("machine") == (board != "jetson_agx_orin")
    assert scopes.count("gpu") == 1


@pytest.mark.parametrize(
    ("board", "sums"),
    [
        ("jetson_orin_nx", {"machine": 10.0, "gpu": 4.0, "host": 2.0, "total": 10.0}),
        ("jetson_agx_orin", {"machine": 0.0, "gpu": 12.0, "host": 7.5, "total": 19.5}),
        ("jetson_thor", {"machine": 90.0, "gpu": 48.0, "host": 27.0, "total": 90.0}),
    ],
)
def test_sums_of_rails(tmp_path, board, sums):
    """The total is the power of the board if a rail supplies all of it, otherwise that of all."""
    tree = described(board, tmp_path)
    power_w = {key: one["power"] for key, one in values(JETSON, tree.root).items()}
    parts = {key: Part(one.scope, one.parent) for key, one in devices(JETSON, tree.root).items()}
    found = {scope: sum(power_w[key] for key in in_sum(scope, parts)) for scope in sums}
    assert found == pytest.approx(sums)


@pytest.mark.parametrize(
    ("board", "rail", "gauges"),
    [
        ("jetson_agx_orin", "vdd_gpu_soc", (0.64, 1.3005e9, 51.5)),
        ("jetson_orin_nx", "vdd_cpu_gpu_cv", (0.0, 306e6, None)),
        ("jetson_thor", "vdd_gpu", (None, 1.575e9, 55.0)),
        ("jetson_nano", "pom_5v_gpu", (0.5, 921.6e6, 41.0)),
    ],
)
def test_quantities_of_the_gpu(tmp_path, board, rail, gauges):
    """Only the rail of the GPU has load, clock and temperature; a GPU that is off has no heat."""
    found = values(JETSON, described(board, tmp_path).root)
    quantities = ("utilisation", "clock", "temperature")
    expected = zip(quantities, gauges, strict=True)
    assert {name: found[rail].get(name) for name in quantities} == {
        name: None if value is None else pytest.approx(value) for name, value in expected
    }
    assert all(set(one) == {"power"} for key, one in found.items() if key != rail)


@pytest.mark.parametrize(
    ("board", "notes"),
    [
        ("jetson_thor", ()),
        ("jetson_agx_orin", ("this rail also supplies other parts of the chip",)),
        ("jetson_orin_nx", ("this rail also supplies the CPU",)),
    ],
)
def test_notes_of_the_gpu(tmp_path, board, notes):
    """If the rail of the GPU supplies more than the GPU, a note says so."""
    rails = devices(JETSON, described(board, tmp_path).root).values()
    assert [one.notes for one in rails if one.scope == "gpu"] == [notes]


def test_rails_give_way_to_other_sensors(tmp_path):
    """A rail is not counted if NVML measures the GPU, or a sensor that the user named the board."""
    rails = devices(JETSON, described("jetson_thor", tmp_path).root)
    assert {key: one.parent for key, one in rails.items() if one.parent} == {
        "vdd_gpu": "gpu0",
        "vin": "machine",
    }


@pytest.mark.parametrize("current", ["-20", "4294967295"])
def test_a_current_that_is_no_value(tmp_path, current):
    """If the second factor has no value, the power is missed."""
    tree = described("jetson_orin_nx", tmp_path)
    board = next(one for one in JETSON.find(tree.root) if one.device.key == "vdd_in")
    source = SysfsSource(FakeClock(), JETSON, board)
    source.open()
    tree.set(f"{board.folder.relative_to(tree.root)}/curr1_input", current)
    with pytest.raises(ReadingMissed, match="curr1_input"):
        source.read()
    source.close()


def test_other_chips_are_ignored(tmp_path):
    """Power monitors of other boards have labels that are not in the table."""
    tree = described("acpi_power_meter", tmp_path)
    chip = {"name": "ina3221", "in1_label": "12V", "in1_input": 12000, "curr1_input": 100}
    tree.write(chip, "class/hwmon/hwmon7")
    assert devices(JETSON, tree.root) == {}

"""Intel GPUs in trees of the drivers i915 and xe."""

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.sensing.sources.sysfs.intel_gpu import INTEL_GPU
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource
from energy_callbacks.testing import FakeClock
from tests.sensing.sources.trees.described import described, devices, values

PACKAGE = "energy of the GPU package, not of the whole card"


def found(tree):
    """All GPUs of a tree by PCI address."""
    return {one.pci: one for one in INTEL_GPU.find(tree.root)}


def joules_after(tree, device, changes):
    """Energy of a device after changes of files, counted from before them."""
    source = SysfsSource(FakeClock(), INTEL_GPU, device)
    source.open()
    source.read()
    tree.write(changes)
    energy = {one.channel.quantity: one.value for one in source.read()}
    source.close()
    return energy["energy"]


def test_integrated_gpus_are_told_apart(tmp_path):
    """Only the GPU inside the processor is integrated; it refuses, and names RAPL."""
    gpus = found(described("i915", tmp_path))
    assert {pci: one.is_integrated for pci, one in gpus.items()} == {
        "0000:00:02.0": True,
        "0000:03:00.0": False,
    }
    assert gpus["0000:00:02.0"].device.notes == ()
    with pytest.raises(SourceUnavailable) as caught:
        SysfsSource(FakeClock(), INTEL_GPU, gpus["0000:00:02.0"]).open()
    assert "RAPL measures them" in caught.value.fix


def test_the_counter_of_i915_is_that_of_the_whole_device(tmp_path):
    """The energy is that of chip ``i915``, not that of its part ``i915_gt0``, and not their sum."""
    tree = described("i915", tmp_path)
    folder = "devices/pci0000:00/0000:03:00.0/hwmon"
    changes = {
        f"{folder}/hwmon9/energy1_input": 81_234_000_000 + 42_000_000,
        f"{folder}/hwmon10/energy1_input": 5_000_000 + 30_000_000,
    }
    assert joules_after(tree, found(tree)["0000:03:00.0"], changes) == pytest.approx(42.0)


def test_quantities_of_i915(tmp_path):
    """Limit, temperature and clock of the card are in W, degrees and Hz; no note is needed."""
    tree = described("i915", tmp_path)
    tree.remove("class/drm/card0")
    assert values(INTEL_GPU, tree.root) == {
        "gpu-0000:03:00.0": {
            "energy": 0.0,
            "power_limit": 120.0,
            "temperature": 54.0,
            "clock": pytest.approx(2.05e9),
        }
    }
    device = devices(INTEL_GPU, tree.root)["gpu-0000:03:00.0"]
    assert (device.name, device.uuid, device.notes) == ("Intel GPU 0201", "0000:03:00.0", ())


def test_i915_without_chips_of_parts_measures_the_package(tmp_path):
    """On Arc A cards, which have no chips of parts, i915 reads the counter of the package."""
    tree = described("i915", tmp_path)
    tree.remove("devices/pci0000:00/0000:03:00.0/hwmon/hwmon10")
    assert found(tree)["0000:03:00.0"].device.notes == (PACKAGE,)


def test_quantities_of_xe(tmp_path):
    """The temperature is that of the package, and the clock that of the first GT."""
    assert values(INTEL_GPU, described("xe", tmp_path).root) == {
        "gpu-0000:03:00.0": {
            "energy": 0.0,
            "power_limit": 190.0,
            "temperature": 61.0,
            "clock": pytest.approx(2.85e9),
        },
        "gpu-0000:04:00.0": {
            "energy": 0.0,
            "power_limit": 190.0,
            "temperature": 52.0,
            "clock": pytest.approx(2.4e9),
        },
    }


@pytest.mark.parametrize(
    ("pci", "joules", "notes"), [("0000:03:00.0", 9.0, ()), ("0000:04:00.0", 4.0, (PACKAGE,))]
)
def test_xe_prefers_the_energy_of_the_card(tmp_path, pci, joules, notes):
    """Energy is that of the card if it is measured, otherwise that of the package with a note."""
    tree = described("xe", tmp_path)
    changes = {
        "devices/pci0000:00/0000:03:00.0/hwmon/hwmon3/energy1_input": 31_500_000_000 + 9_000_000,
        "devices/pci0000:00/0000:03:00.0/hwmon/hwmon3/energy2_input": 20_100_000_000 + 6_000_000,
        "devices/pci0000:00/0000:04:00.0/hwmon/hwmon4/energy2_input": 7_000_000_000 + 4_000_000,
    }
    gpu = found(tree)[pci]
    assert joules_after(tree, gpu, changes) == pytest.approx(joules)
    assert gpu.device.notes == notes


def test_a_counter_without_label_is_that_of_the_package(tmp_path):
    """The first kernels with xe have one counter without a label, that of the package."""
    tree = described("xe", tmp_path)
    tree.remove("devices/pci0000:00/0000:03:00.0/hwmon/hwmon3/energy1_label")
    assert found(tree)["0000:03:00.0"].device.notes == (PACKAGE,)


def test_an_energy_of_zero_is_no_value(tmp_path):
    """A counter of xe that cannot be read has 0: it is not reset, and what follows is counted."""
    tree = described("xe", tmp_path)
    file = "devices/pci0000:00/0000:03:00.0/hwmon/hwmon3/energy1_input"
    source = SysfsSource(FakeClock(), INTEL_GPU, found(tree)["0000:03:00.0"])
    source.open()
    energies = []
    for energy_uj in (31_500_000_000, 0, 31_500_000_000 + 8_000_000):
        tree.set(file, energy_uj)
        energies += [one.value for one in _energies(source)]
    source.close()
    assert energies == pytest.approx([0.0, 8.0])


def _energies(source):
    """Return the readings of energy of one read; none if all files fail."""
    try:
        readings = source.read()
    except ReadingMissed:
        return []
    return [one for one in readings if one.channel.quantity == "energy"]


def test_a_disabled_limit_is_no_limit(tmp_path):
    """A limit of 0 means that it is disabled, so that the card has none."""
    tree = described("xe", tmp_path)
    tree.set("devices/pci0000:00/0000:03:00.0/hwmon/hwmon3/power1_max", 0)
    assert "power_limit" not in values(INTEL_GPU, tree.root)["gpu-0000:03:00.0"]


def test_a_virtual_function_is_not_integrated(tmp_path):
    """A discrete GPU without sensors, such as a virtual function, is refused with the reason."""
    tree = described("xe", tmp_path)
    tree.remove("devices/pci0000:00/0000:04:00.0/hwmon")
    gpu = found(tree)["0000:04:00.0"]
    assert not gpu.is_integrated
    with pytest.raises(SourceUnavailable, match="neither power nor energy") as caught:
        SysfsSource(FakeClock(), INTEL_GPU, gpu).open()
    assert "virtual functions have no sensors" in caught.value.fix

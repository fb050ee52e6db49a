"""A vendor whose family is in the list is found, chosen and measured like all others."""

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.family import SYSFS_VARIABLE
from energy_callbacks.testing import FakeClock
from tests.fake_nvml.signals import Constant
from tests.sensing.sources.conformance import acme
from tests.sensing.sources.trees import RunningTree, Tree


@pytest.mark.parametrize(("devices", "powers_w"), [("all", [100.0, 300.0]), ([1], [300.0])])
def test_a_made_up_vendor_is_measured(tmp_path, monkeypatch, devices, powers_w):
    """With a line in the list of families, a training has the energy of its GPUs."""
    monkeypatch.setattr(families, "GPU_FAMILIES", (acme.FAMILY,))
    monkeypatch.setenv(SYSFS_VARIABLE, str(tmp_path / "sys"))
    clock = FakeClock()
    running = RunningTree(Tree(tmp_path / "sys"), clock)
    for index, power_w in enumerate((100.0, 300.0)):
        running.add(acme.chisel(running.tree, index), Constant(power_w))
    running.start()
    config = EnergyConfig(devices=devices, report_dir=tmp_path / "energy")
    with EnergyMeter(config=config, clock=clock) as meter:
        start_s = clock.monotonic_s()
        clock.advance(20.0)
    gpus = [one for one in meter.report().devices if one.scope == "gpu"]
    assert [one.name for one in gpus] == ["Acme Anvil"] * len(powers_w)
    energy = meter.energy(start_s + 1.0, start_s + 19.0, "gpu")
    assert energy.energy_j == pytest.approx(18.0 * sum(powers_w), rel=0.01)

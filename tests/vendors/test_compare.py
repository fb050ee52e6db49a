"""Runs on an NVIDIA GPU, an AMD GPU and a Jetson are compared with the caveats that they need."""

from pathlib import Path

import pytest

from energy_callbacks.compare import compare, text
from energy_callbacks.compare.model import Comparison
from energy_callbacks.report import EnergyReport
from tests.vendors.machines import machine
from tests.vendors.training import train

NAMES = ("NVIDIA", "AMD accelerator", "Jetson", "RAPL")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EnergyReport]:
    """Return the report of the same training on each machine."""
    found: dict[str, EnergyReport] = {}
    for name in NAMES:
        folder: Path = tmp_path_factory.mktemp("machine")
        with machine(name, folder) as one:
            found[name] = train(one.clock, folder / "energy", one.devices).report
    return found


def compared(reports: dict[str, EnergyReport], *names: str) -> Comparison:
    """Return the comparison of machines with the first of them."""
    return compare({name: [reports[name]] for name in names})


def codes(found: Comparison, name: str) -> dict[str, bool]:
    """Return the caveats of a group, and whether they forbid verdicts."""
    return {one.code: one.is_fatal for one in found.caveats if one.group == name}


def test_an_nvidia_and_an_amd_gpu(reports: dict[str, EnergyReport]) -> None:
    """The caveat names both GPUs, and the errors of both sensors do not cancel."""
    found = compared(reports, "NVIDIA", "AMD accelerator")
    # An H200 of 45 degrees is not cooler than an MI300X whose hottest place has 71.
    assert codes(found, "AMD accelerator") == {"unlike_cards": False}
    shown = text.render(found)
    assert "NVIDIA ran on NVIDIA H200, AMD accelerator on AMD Instinct MI300X OAM." in shown
    effect = found.effect("AMD accelerator", "gpu_energy_j")
    # Both have used the same energy; their sensors may be wrong by 5 % and 10 %.
    assert effect.ratio == pytest.approx(1.0, abs=0.01)
    assert effect.systematic == pytest.approx(0.15, abs=0.01)
    assert effect.verdict == "not resolved"


def test_an_nvidia_gpu_and_a_jetson(reports: dict[str, EnergyReport]) -> None:
    """The total of the Jetson is the whole board: totals have no verdict."""
    found = compared(reports, "NVIDIA", "Jetson")
    assert codes(found, "Jetson")["unlike_total"] is True
    assert codes(found, "Jetson")["unlike_cards"] is False
    shown = " ".join(text.render(found).split())
    assert "A sensor of the whole machine measured only some of the runs" in shown
    assert "Jetson GPU (VDD_CPU_GPU_CV)" in shown


def test_gpus_whose_sensors_include_other_parts(reports: dict[str, EnergyReport]) -> None:
    """The rail of the Jetson's GPU also supplies its CPU: GPU energies have no verdict."""
    found = compared(reports, "NVIDIA", "Jetson")
    [caveat] = [one for one in found.caveats if one.code == "unlike_sensors"]
    assert "this rail also supplies the CPU" in caveat.message
    assert caveat.quantities == ("gpu_energy_j",)
    assert caveat.is_fatal
    again = compared(reports, "NVIDIA", "AMD accelerator")
    assert "unlike_sensors" not in codes(again, "AMD accelerator")


def test_a_gpu_and_no_gpu(reports: dict[str, EnergyReport]) -> None:
    """A machine without a GPU has no GPU energy to compare."""
    found = compared(reports, "NVIDIA", "RAPL")
    assert "NVIDIA ran on NVIDIA H200, RAPL on no card." in text.render(found)
    assert all(effect.quantity != "gpu_energy_j" for effect in found.effects)

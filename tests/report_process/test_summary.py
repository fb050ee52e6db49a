"""The line at the end of a training."""

from pathlib import Path

import pytest

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.records import Device
from energy_callbacks.report_process.summary import line

GPU = Device(key="gpu0", kind="gpu", scope="gpu", name="a GPU")
HOST = Device(key="cpu0", kind="cpu", scope="host", name="a CPU", origin="estimated")
PATH = Path("energy_report.html")
CONFIG = EnergyConfig()


def test_it_has_the_energy_its_origin_and_the_path() -> None:
    """As in the example of its documentation."""
    figures = {
        "energy/total_wh": 12.3,
        "energy/gpu_wh": 10.1,
        "energy/host_wh": 2.2,
        "efficiency/gpu_j_per_sample": 0.41,
        "efficiency/gpu_j_per_step": 4.1,
        "emissions/total_g": 4.5,
    }
    assert line(figures, [GPU, HOST], PATH, CONFIG) == (
        "12.3 Wh (gpu 10.1 Wh measured, host 2.20 Wh estimated) · 0.410 J/sample · 4.50 gCO2e · "
        "report: energy_report.html"
    )


def test_without_a_location_emissions_are_a_range() -> None:
    """Both ends are in the same unit."""
    figures = {"energy/total_wh": 1.0, "emissions/total_g_lo": 0.0, "emissions/total_g_hi": 2.5}
    assert "· 0 to 2.50 gCO2e (location not set) ·" in line(figures, [], PATH, CONFIG)


@pytest.mark.parametrize("figures", [{}, {"power/host_w": 3.0}])
def test_an_unknown_energy_is_named(figures: dict[str, float]) -> None:
    """There is no zero."""
    assert line(figures, [HOST], PATH, CONFIG) == "energy not known · report: energy_report.html"


def test_devices_of_several_origins_are_mixed() -> None:
    """For example, measured CPUs and estimated RAM."""
    ram = Device(key="ram", kind="ram", scope="host", name="RAM")
    figures = {"energy/total_wh": 1.0, "energy/host_wh": 1.0}
    assert "(host 1.00 Wh mixed)" in line(figures, [HOST, ram], PATH, CONFIG)


def test_a_total_of_the_whole_machine_is_named() -> None:
    """Then the parts do not sum to it."""
    machine = Device(key="machine", kind="machine", scope="machine", name="board")
    figures = {"energy/total_wh": 3.0, "energy/gpu_wh": 1.0}
    text = line(figures, [GPU, machine], PATH, CONFIG)
    assert text.startswith("3.00 Wh (whole machine, gpu 1.00 Wh measured) ·")


def test_it_has_the_cost_if_its_currency_is_known() -> None:
    """1 Wh at a PUE of 1.5 and 400 EUR per kWh are 0.6 EUR."""
    config = EnergyConfig(price_per_kwh=400.0, currency="EUR", pue=1.5)
    assert "· 0.600 EUR ·" in line({"energy/total_wh": 1.0}, [], PATH, config)
    assert "EUR" not in line({}, [], PATH, config)
    without = EnergyConfig(price_per_kwh=400.0)
    assert "0.600" not in line({"energy/total_wh": 1.0}, [], PATH, without)

"""The answers to Annex XI have the numbers of the report, and reasons for what is not known."""

import json
from dataclasses import replace

import pytest

from energy_callbacks.report import Embodied, annex_xi
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.schema import EnergyReport


def answers(report: EnergyReport, **more) -> dict[str, dict]:
    """Return the figures of the JSON document by name."""
    return {one["name"]: one for one in json.loads(annex_xi(report, "json", **more))["disclosures"]}


def test_energies_and_times_are_those_of_the_report(report: EnergyReport) -> None:
    """38.4 kJ +- 384 J in 80 s are 0.01067 kWh in 0.0222 h."""
    found = answers(report)
    energy = found["energy_kwh"]
    assert energy["point"] == "e"
    assert energy["value"] == pytest.approx(38400.0 / 3.6e6)
    assert energy["low"] == pytest.approx((38400.0 - 384.0) / 3.6e6, rel=1e-4)
    assert energy["high"] == pytest.approx((38400.0 + 384.0) / 3.6e6, rel=1e-4)
    assert found["training_time_h"]["value"] == pytest.approx(80.0 / 3600.0)
    assert found["training_time_h"]["point"] == "d"
    assert found["steps"]["value"] == 600
    assert found["hardware"]["value"] == "1 x NVIDIA H200, 1 x Xeon"


def test_each_figure_has_a_method_or_a_reason(report: EnergyReport) -> None:
    """What is not known has the reason, and never a zero."""
    found = answers(report)
    assert all(len(one["method"]) > 5 for one in found.values())
    unknown = {name for name, one in found.items() if one["value"] is None}
    assert unknown == {"flops", "tokens", "inference_energy_kwh", "embodied_emissions_kg"}
    assert "not counted by this package" in found["flops"]["method"]
    assert "nvmlDeviceGetSamples" in found["energy_kwh"]["method"]
    assert found["energy_kwh"]["method"].startswith("mixed: ")


def test_what_the_user_states(report: EnergyReport) -> None:
    """Operations and embodied emissions are included with their origin."""
    embodied = Embodied(kg=1461.0, lifetime_years=4.0)
    found = answers(report, flops=1e21, embodied=embodied)
    assert found["flops"]["value"] == 1e21
    assert found["flops"]["method"] == "stated by the user"
    assert found["embodied_emissions_kg"]["value"] == pytest.approx(80.0 / 86400.0)
    with pytest.raises(ValueError, match=r"must be positive, got -1\.0"):
        annex_xi(report, flops=-1.0)
    with pytest.raises(ValueError, match="'markdown' or 'json', got 'yaml'"):
        annex_xi(report, "yaml")


def test_the_overhead_of_the_building(report: EnergyReport) -> None:
    """The energy with overhead is the energy times the PUE; a PUE of 1 is stated."""
    assert "the PUE is 1" in answers(report)["building_energy_kwh"]["method"]
    emissions = replace(report.emissions, pue=1.5)
    found = answers(replace(report, emissions=emissions))
    assert found["building_energy_kwh"]["value"] == pytest.approx(1.5 * 38400.0 / 3.6e6)


def test_an_unknown_energy_has_a_reason(report: EnergyReport) -> None:
    """Without readings, the Annex permits an estimate from the computational resources."""
    energy = replace(report.energy, total=Figure(energy_j=None))
    found = answers(replace(report, energy=energy, emissions=None))["energy_kwh"]
    assert found["value"] is None
    assert "permits an estimate" in found["method"]


def test_markdown_quotes_the_points_and_has_every_figure(report: EnergyReport) -> None:
    """The document names the regulation, both points, and each figure once."""
    text = annex_xi(report)
    assert "Regulation (EU) 2024/1689, Annex XI, section 1, point 2." in text
    assert "## (d) the computational resources used to train the model" in text
    assert "## (e) known or estimated energy consumption of the model" in text
    for one in answers(report).values():
        assert text.count(f"| {one['title']} |") == 1
    assert "| 0.01067 | 0.0106 to 0.0108 |" in text

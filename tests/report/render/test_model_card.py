"""The field ``co2_eq_emissions`` of a model card has the figures of the report."""

import dataclasses

import pytest

from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.model_card import co2_eq_emissions, model_card


def test_the_figure_is_the_reports_in_grams(report: EnergyReport) -> None:
    """Kilograms in the report are grams in the card."""
    assert report.emissions is not None
    found = co2_eq_emissions(report)
    assert found["emissions"] == pytest.approx(report.emissions.kg * 1000.0)


def test_the_hub_reads_every_field(report: EnergyReport) -> None:
    """huggingface_hub writes them into the card's metadata and reads them back."""
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCardData(
        language="en", co2_eq_emissions=co2_eq_emissions(report, training_type="fine-tuning")
    )
    read = hub.ModelCard(f"---\n{card.to_yaml()}\n---\n").data.co2_eq_emissions
    assert set(read) == {
        "emissions", "source", "training_type", "geographical_location", "hardware_used",
    }  # fmt: skip
    assert read["training_type"] == "fine-tuning"
    assert read["geographical_location"] == report.emissions.place == "Germany"
    assert read["hardware_used"] == "1 x NVIDIA H200"
    assert read["source"].startswith("energy_callbacks ")
    assert read["emissions"] == pytest.approx(report.emissions.kg * 1000.0)


def test_without_a_gpu_the_processor_is_the_hardware(report: EnergyReport) -> None:
    """A machine without a GPU names its CPU."""
    host = tuple(device for device in report.devices if device.kind != "gpu")
    found = co2_eq_emissions(dataclasses.replace(report, devices=host))
    assert found["hardware_used"] == "1 x Xeon"


def test_an_unknown_place_is_refused(report: EnergyReport) -> None:
    """Without a location there is only a range; the error says what to do."""
    assert report.emissions is not None
    nowhere = dataclasses.replace(report.emissions, kg=None, place=None)
    with pytest.raises(ValueError, match=r"location .* not set.*country="):
        co2_eq_emissions(dataclasses.replace(report, emissions=nowhere))


def test_an_unknown_energy_is_refused(report: EnergyReport) -> None:
    """Without energy there are no emissions, and no zero."""
    with pytest.raises(ValueError, match="its energy is not known"):
        co2_eq_emissions(dataclasses.replace(report, emissions=None))


def test_the_block_of_a_card_has_the_fields_as_yaml(report: EnergyReport) -> None:
    """YAML reads the fields of ``co2_eq_emissions`` back, small numbers too."""
    yaml = pytest.importorskip("yaml")
    tiny = dataclasses.replace(report.emissions, kg=4.0e-8, source='a "b": #c')
    small = dataclasses.replace(report, emissions=tiny)
    _, block, text = model_card(small, training_type="pre-training").split("---\n", 2)
    assert yaml.safe_load(block) == {
        "co2_eq_emissions": co2_eq_emissions(small, training_type="pre-training")
    }
    assert "| Energy | 10.67 ± 0.11 Wh |" in text


def test_unknown_emissions_are_explained_in_the_block(report: EnergyReport) -> None:
    """Without a location there is no YAML, and the text has the reason."""
    nowhere = dataclasses.replace(report.emissions, kg=None, place=None)
    text = model_card(dataclasses.replace(report, emissions=nowhere))
    assert "co2_eq_emissions:" not in text
    assert "the location of this run is not set" in text
    assert "| Energy | 10.67 ± 0.11 Wh |" in text

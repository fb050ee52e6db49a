"""The carbon intensity of a run, from journals of several versions and kinds."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.accounting.journal.launch import COMMAND
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.report.build import build
from energy_callbacks.report.model.schema import EnergyReport, from_json, to_json
from energy_callbacks.report.render.headline import cards
from energy_callbacks.report.render.model_card import co2_eq_emissions
from energy_callbacks.report.render.text import render, summary_line
from tests.report.journals import GERMANY, GPU, Attempt, Stretch, write

# 100 W for 200 s: 20 kJ.
STEADY = Attempt(
    devices=(GPU,),
    stretches=(Stretch(phase="train", duration_s=200.0, power_w={"gpu0": 100.0}),),
)
FRANCE = {"country": "FRA", "country_name": "France", "region": None, "origin": "set by the user"}
OF_GERMANY = carbon.intensity(carbon.Place(country="DEU", country_name="Germany")).kg_per_kwh


def intensity(kg_per_kwh: float | None, **values: Any) -> dict[str, Any]:
    """A carbon intensity as in a journal, kg/kWh."""
    known = 0.5 if kg_per_kwh is None else kg_per_kwh
    ends = {"low_kg_per_kwh": known, "high_kg_per_kwh": known}
    return {"kg_per_kwh": kg_per_kwh, **ends, "place": None, "source": "a", "year": 2026, **values}


def append(path: Path, *lines: dict[str, Any]) -> None:
    """Add intensities after the header of a journal."""
    header, *others = path.read_text().splitlines()
    kind = {"type": "event", "kind": "carbon_intensity"}
    path.write_text("\n".join([header, *(json.dumps(kind | line) for line in lines), *others, ""]))


def kg(report: EnergyReport) -> float | None:
    """Emissions of a report."""
    assert report.emissions is not None
    return report.emissions.kg


def test_the_intensity_in_the_header_is_used(tmp_path: Path) -> None:
    """Not that of CodeCarbon's tables, which may be of another version."""
    place = GERMANY | {"intensity": intensity(0.9, place="Germany")}
    write(tmp_path, replace(STEADY, config={"place": place}))
    report = build(tmp_path)
    assert kg(report) == pytest.approx(20e3 / 3.6e6 * 0.9)
    assert not any("intensity" in name for name in report.environment)


def test_journals_of_earlier_versions_have_only_a_place(tmp_path: Path) -> None:
    """Its annual average is looked up; the newest attempt decides, as before."""
    write(tmp_path, replace(STEADY, config={"place": FRANCE}))
    write(tmp_path, replace(STEADY, attempt=2, unix_s=1.8e9, config={"place": GERMANY}))
    assert OF_GERMANY is not None
    assert kg(build(tmp_path)) == pytest.approx(40e3 / 3.6e6 * OF_GERMANY)


def test_lines_are_weighted_with_the_energy_between_them(tmp_path: Path) -> None:
    """50 s at 0.1 and 150 s at 0.5 kg/kWh: 5 kJ and 15 kJ."""
    path = write(tmp_path, STEADY)
    append(path, {"t_s": 0.0, **intensity(0.1)}, {"t_s": 50.0, **intensity(0.5, year=2027)})
    report = build(tmp_path)
    assert kg(report) == pytest.approx((5e3 * 0.1 + 15e3 * 0.5) / 3.6e6, rel=1e-6)
    assert report.emissions is not None
    assert report.emissions.year == 2027


def test_an_attempt_without_lines_has_the_intensity_of_its_place(tmp_path: Path) -> None:
    """A run may begin with a place and go on with a file."""
    write(tmp_path, replace(STEADY, config={"place": GERMANY}))
    append(
        write(tmp_path, replace(STEADY, attempt=2, unix_s=1.8e9)), {"t_s": 0.0, **intensity(0.1)}
    )
    assert OF_GERMANY is not None
    report = build(tmp_path)
    assert kg(report) == pytest.approx(20e3 / 3.6e6 * (OF_GERMANY + 0.1))
    assert report.emissions is not None
    assert "(50.0 % of the energy); a (50.0 % of the energy)" in report.emissions.source


def test_a_part_without_an_intensity_makes_the_sum_unknown(tmp_path: Path) -> None:
    """The range is known."""
    path = write(tmp_path, STEADY)
    append(path, {"t_s": 0.0, **intensity(0.5)}, {"t_s": 100.0, **intensity(None)})
    report = build(tmp_path)
    assert kg(report) is None
    assert report.emissions is not None
    assert report.emissions.low_kg == pytest.approx(20e3 / 3.6e6 * 0.5, rel=0.02)


def test_a_training_inside_a_command_brings_its_intensities(tmp_path: Path) -> None:
    """They are on the time axis of the command: the change is 60 s after its start."""
    outer = replace(STEADY, framework=COMMAND, run_id="command", samples_per_step=None)
    inner = replace(STEADY, attempt=2, run_id="inner", unix_s=outer.unix_s + 20.0)
    inner = replace(inner, stretches=(replace(STEADY.stretches[0], duration_s=100.0),))
    write(tmp_path, outer)
    append(
        write(tmp_path, inner),
        {"t_s": 0.0, **intensity(0.1)},
        {"t_s": 40.0, **intensity(0.5)},
    )
    assert kg(build(tmp_path)) == pytest.approx((6e3 * 0.1 + 14e3 * 0.5) / 3.6e6, rel=1e-6)


def test_without_a_sensor_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Emissions are not known, because the energy is not."""
    append(write(tmp_path, replace(STEADY, devices=())), {"t_s": 0.0, **intensity(0.1)})
    build(tmp_path)
    assert not caplog.messages


@pytest.mark.parametrize("change", [{"kg_per_kwh": "much"}, {"low_kg_per_kwh": None}, {"t_s": []}])
def test_a_damaged_line_is_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    """The report says so."""
    path = write(tmp_path, STEADY)
    append(path, {"t_s": 0.0, **intensity(0.1)}, {"t_s": 50.0, **intensity(0.5), **change})
    report = build(tmp_path)
    assert kg(report) == pytest.approx(20e3 / 3.6e6 * 0.1)
    assert "damaged_lines" in {one.code for one in report.warnings}


def test_a_damaged_header_leaves_emissions_unknown(tmp_path: Path) -> None:
    """A report without emissions is better than none."""
    place = GERMANY | {"intensity": {"kg_per_kwh": 1.0}}
    write(tmp_path, replace(STEADY, config={"place": place}))
    assert build(tmp_path).emissions is None


def test_a_number_without_a_place_is_shown(tmp_path: Path) -> None:
    """And the currency, in text, summary, headline and JSON."""
    place = {"country": None, "intensity": intensity(0.36)}
    config = {"place": place, "price_per_kwh": 0.9, "currency": "EUR", "pue": 2.0}
    write(tmp_path, replace(STEADY, config=config))
    report = from_json(to_json(build(tmp_path)))
    assert report.cost is not None
    assert report.cost.currency == "EUR"
    assert "4.00 gCO2e (360 g/kWh) · 0.0100 EUR" in summary_line(report)
    shown = {card.label: (card.value, card.detail) for card in cards(report)}
    assert shown["Cost of electricity"] == ("0.0100 EUR", "at 0.9 EUR per kWh")
    assert shown["Emissions"][1].startswith("360 g/kWh; ")
    text = render(report)
    assert "0.0100 EUR" in text
    assert "None" not in text
    assert "geographical_location" not in co2_eq_emissions(report)

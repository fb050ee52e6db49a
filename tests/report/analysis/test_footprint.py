"""A report at another location, PUE or price: the energy stays, emissions and cost change."""

from dataclasses import replace

import pytest

from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.cli import main
from energy_callbacks.core.units import kilowatt_hours
from energy_callbacks.report import build, load, save, view
from energy_callbacks.report.charts import catalogue
from energy_callbacks.report.model.amounts import Forecast
from energy_callbacks.report.model.schema import EnergyReport, from_json, to_json
from energy_callbacks.report.render import html
from tests.report.journals import GERMANY, Attempt, write

# What a run would have said itself, and what belongs to the view alone.
OWN = ("emissions", "cost", "forecast", "warnings", "method_notes", "environment")
FORECAST = Forecast(
    after="a tenth", steps=6, planned_steps=60, energy_j=36e5, energy_error_j=36e3, duration_s=80.0,
    duration_error_s=1.0, emissions_kg=None, emissions_low_kg=0.1, emissions_high_kg=0.9,
)  # fmt: skip


def _without(report: EnergyReport) -> EnergyReport:
    return replace(report, **dict.fromkeys(OWN))


def test_another_country(report):
    """Emissions are kWh times PUE times the factor of the table; the energy is as it was."""
    seen = view(report, country="FR", pue=1.5)
    france = carbon.intensity(carbon.place("FRA"))
    energy_kwh = kilowatt_hours(report.energy.total.energy_j)
    assert seen.emissions.kg == pytest.approx(energy_kwh * 1.5 * france.kg_per_kwh)
    assert (seen.emissions.place, seen.emissions.pue) == ("France", 1.5)
    assert seen.cost.amount == pytest.approx(energy_kwh * 1.5 * 0.3)
    assert _without(seen) == _without(report)


def test_a_view_is_what_a_run_there_would_have_said(tmp_path, report):
    """Emissions and money of the same training in France, at its price."""
    config = {"place": GERMANY | {"country": "FRA", "country_name": "France"}}
    there = tmp_path / "there"
    write(there, Attempt(config=config | {"pue": 1.2, "price_per_kwh": 0.2}))
    expected = build(there)
    seen = view(report, country="France", pue=1.2, price_per_kwh=0.2)
    assert replace(seen.emissions, source="") == replace(expected.emissions, source="")
    assert seen.cost == expected.cost


def test_a_pue_alone_takes_the_figures_that_the_report_has(report):
    """No table is asked: a factor of an older table stays the factor of that report."""
    older = replace(report, emissions=replace(report.emissions, kg_per_kwh=0.5, year=2001))
    seen = view(older, pue=2.0).emissions
    assert seen.kg == pytest.approx(kilowatt_hours(report.energy.total.energy_j) * 2.0 * 0.5)
    assert (seen.year, seen.place, seen.source) == (2001, "Germany", report.emissions.source)
    assert seen.high_kg == pytest.approx(2.0 * report.emissions.high_kg)


def test_a_price_alone_leaves_emissions(report):
    """And the PUE of the run."""
    seen = view(report, price_per_kwh=0.6)
    assert seen.emissions == report.emissions
    assert seen.cost.amount == pytest.approx(2.0 * report.cost.amount)


def test_a_place_that_nobody_had_said(tmp_path):
    """The interval becomes a figure, and the warning goes."""
    write(tmp_path, Attempt())
    report = build(tmp_path)
    codes = {one.code for one in report.warnings}
    assert "place_unknown" in codes
    seen = view(report, country="USA", region="ohio")
    assert seen.emissions.place == "Ohio, United States"
    assert seen.emissions.kg is not None
    assert {one.code for one in seen.warnings} == codes - {"place_unknown"}


def test_a_view_says_so(report):
    """Its notes name what the run itself had, once, also of a view of a view."""
    seen = view(view(report, country="USA", region="ohio"), country="FRA", price_per_kwh=0.1)
    notes = [note for note in seen.method_notes if note not in report.method_notes]
    assert len(notes) == 3  # emissions, price, view
    assert "The settings of the run: Germany, a PUE of 1 and a price of 0.3 per kWh." in notes[-1]
    assert len(seen.method_notes) == len(report.method_notes) + 1
    assert seen.environment["config.place.country"] == "FRA"
    assert "config.place.region" not in seen.environment


def test_a_forecast_is_seen_there_too(report):
    """1 kWh at the factor of the place."""
    seen = view(replace(report, forecast=FORECAST), country="FRA").forecast
    assert seen.emissions_kg == pytest.approx(carbon.intensity(carbon.place("FRA")).kg_per_kwh)
    assert seen.energy_j == FORECAST.energy_j


def test_an_energy_that_is_not_known_has_no_view(tmp_path):
    """No emissions are made up."""
    write(tmp_path, Attempt(devices=()))
    seen = view(build(tmp_path), country="DEU", price_per_kwh=1.0)
    assert (seen.emissions, seen.cost) == (None, None)


def test_a_view_is_saved_and_read_like_any_report(report, tmp_path):
    """JSON gives it back."""
    seen = view(report, country="FRA")
    assert from_json(to_json(seen)) == seen


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"country": "Atlantis"}, "Atlantis"),
        ({"region": "ohio"}, "needs a country"),
        ({"pue": 0.5}, "pue must lie between 1 and 10"),
        ({"price_per_kwh": -1.0}, "price_per_kwh must lie"),
    ],
)
def test_what_cannot_be_is_refused(report, settings, words):
    """As EnergyConfig refuses it."""
    with pytest.raises(ValueError, match=words):
        view(report, **settings)


def test_the_command_prints_a_view_and_leaves_the_files_of_the_run(run_folder, capsys):
    """What was saved is that of the run; the text is that of France."""
    save(build(run_folder), run_folder)
    before = {path: path.read_bytes() for path in run_folder.iterdir() if path.is_file()}
    assert main(["report", str(run_folder / "energy_report.html"), "--country", "FRA"]) == 0
    assert "(France, 56" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in run_folder.iterdir() if path.is_file()} == before


@pytest.mark.charts
def test_the_command_writes_a_view_where_it_is_told(run_folder, tmp_path, capsys, monkeypatch):
    """--out has the view; without it, files that were asked for by name are refused."""
    monkeypatch.setattr(catalogue, "CHARTS", catalogue.CHARTS[:1])
    monkeypatch.setattr(html, "CHARTS", ())
    command = ["report", str(run_folder), "--pue", "1.5"]
    assert main([*command, "--out", str(tmp_path / "view"), "--graphs"]) == 0
    assert load(tmp_path / "view" / "energy_report.json").emissions.pue == 1.5
    assert (tmp_path / "view" / "energy_report_power.png").is_file()
    assert main([*command, "--graphs"]) == 2
    assert "add --out DIR" in capsys.readouterr().err

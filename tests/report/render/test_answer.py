"""The first sentence of a report: energy, cost, emissions and how much was measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.report.build import build
from energy_callbacks.report.model.amounts import Figure, Forecast
from energy_callbacks.report.model.runs import Status
from energy_callbacks.report.render import html, text
from energy_callbacks.report.render.answer import answer
from energy_callbacks.report.render.headline import cards
from tests.report.journals import CPU, GERMANY, GPU, PROCESS, Attempt, write

KNOWN = {"place": GERMANY, "price_per_kwh": 0.3}


def answer_of(folder: Path, **attempt) -> str:
    """The first sentence on one attempt."""
    write(folder, Attempt(**attempt))
    return answer(build(folder))


def test_all_four_in_one_sentence(tmp_path: Path) -> None:
    """38.4 kJ, of which 31.6 kJ are measured, at 381 g and 0.3 per kWh."""
    said = answer_of(tmp_path, config=KNOWN)
    assert said == (
        "The run used 10.67 ± 0.11 Wh, cost 0.00320 (at 0.3 per kWh) and caused 4.06 gCO2e "
        "(Germany); 82.3 % of the energy was measured, the rest is estimated."
    )
    report = build(tmp_path)
    assert said in " ".join(text.render(report).split())
    assert said in html.render(report).replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("attempt", "end"),
    [
        ({"devices": (GPU,)}, "; all of the energy was measured."),
        ({"devices": (CPU, PROCESS)}, "; the energy is estimated by models, not measured."),
    ],
)
def test_what_is_not_set_is_named(tmp_path: Path, attempt: dict, end: str) -> None:
    """Without a price and a location the sentence says so; it has a range of emissions."""
    said = answer_of(tmp_path, **attempt)
    assert "gCO2e (location not set); its cost is not known (no price set)" in said
    assert said.endswith(end)


def test_energy_that_is_not_known(tmp_path: Path) -> None:
    """Without a sensor there is no figure at all."""
    assert answer_of(tmp_path, devices=()) == (
        "The run used an unknown amount of energy; cost and emissions are not known."
    )


@pytest.mark.parametrize(
    ("status", "start"),
    [
        ("failed", "Until it failed, the run used 10.67"),
        ("interrupted", "Until it was interrupted, the run used 10.67"),
        ("cut off", "Until it stopped unexpectedly, the run used 10.67"),
        ("running", "So far, the run used 10.67"),
    ],
)
def test_a_run_that_has_not_finished(tmp_path: Path, status: Status, start: str) -> None:
    """The sentence begins with how the run ended, or that it has not."""
    write(tmp_path, Attempt())
    report = build(tmp_path)
    said = answer(replace(report, run=replace(report.run, status=status)))
    assert said.startswith(start)


def test_an_error_of_100_percent(tmp_path: Path) -> None:
    """The sentence, the card and the tables say *order of magnitude only*, without an interval."""
    write(tmp_path, Attempt(devices=(CPU, PROCESS), relative_error=1.0))
    report = build(tmp_path)
    assert "used about 2 Wh (order of magnitude only) and" in answer(report)
    assert cards(report)[0].value == "about 2 Wh"
    assert cards(report)[0].detail == "order of magnitude only"
    plain = text.render(report)
    assert "±" not in plain[: plain.index("Energy by phase")]
    assert "100 %" not in plain[: plain.index("How the numbers")]
    assert "99.99 %" not in plain


def test_a_bound_is_in_the_sentence(tmp_path: Path) -> None:
    """An energy that is not resolved is an upper bound."""
    write(tmp_path, Attempt(devices=(GPU,)))
    report = build(tmp_path)
    total = Figure(energy_j=360.0, stderr_j=200.0, origin="measured")
    said = answer(replace(report, energy=replace(report.energy, total=total)))
    assert said.startswith("The run used less than 0.209 Wh (too short to measure) and caused")


def test_a_forecast_names_what_its_interval_leaves_out(tmp_path: Path) -> None:
    """Its interval may be narrower than that of the total, because it has no systematic error."""
    forecast = Forecast(
        after="2 epochs", steps=10, planned_steps=1380, energy_j=3600.0, energy_error_j=36.0,
        duration_s=18.8, duration_error_s=1.0, emissions_kg=None, emissions_low_kg=None,
        emissions_high_kg=None,
    )  # fmt: skip
    write(tmp_path, Attempt())
    last = cards(replace(build(tmp_path), forecast=forecast))[-1]
    assert last.detail == (
        "1 380 steps in 18.8 s; the interval does not include the errors of sensors and models"
    )

"""A power limit: advice with an estimate, and the section and the chart of a search."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.projection.from_report import power_limit_saving
from energy_callbacks.report import load, save
from energy_callbacks.report.analysis.advice import advice
from energy_callbacks.report.analysis.power_limit import estimated_effect
from energy_callbacks.report.build import build
from energy_callbacks.report.charts import plots
from energy_callbacks.report.charts.catalogue import pictures
from energy_callbacks.report.model.power_limit import (
    Estimate,
    PowerChange,
    PowerLimitSearch,
    PowerPoint,
)
from energy_callbacks.report.model.schema import EnergyReport, Profile
from energy_callbacks.report.render import text
from tests.report.journals import TRAIN, Attempt, write


def of_limit(folder: Path, limit_w: float | None, throttled_s: float = 0.0) -> EnergyReport:
    """The report of a training at a mean power of 500 W, on a card with this limit."""
    write(folder, Attempt(stretches=(TRAIN,), wait_s=0.001))
    report = build(folder)
    devices = tuple(
        replace(one, limit_w=limit_w, throttled_s=throttled_s) if one.kind == "gpu" else one
        for one in report.devices
    )
    return replace(report, devices=devices, advice=())


@pytest.mark.parametrize(
    ("limit_w", "throttled_s", "saving"),
    [
        (550.0, 0.0, 0.090),  # 91 % of the limit
        (700.0, 0.0, 0.151),  # 71 %
        (700.0, 10.0, 0.090),  # 71 %, but held back
        (1000.0, 0.0, None),  # 50 %: not steady
        (300.0, 0.0, None),  # more than the limit: a wrong figure
        (None, 0.0, None),
    ],
)
def test_the_estimate_depends_on_power_and_throttling(
    tmp_path: Path, limit_w: float | None, throttled_s: float, saving: float | None
) -> None:
    """The limit is 95 % of the mean power in training, as a multiple of 5 W."""
    effect = estimated_effect(of_limit(tmp_path, limit_w, throttled_s))
    assert (effect and effect.saving) == saving
    assert effect is None or effect.limit_w == 475.0


def test_there_is_no_estimate_if_the_training_waits_for_data(tmp_path: Path) -> None:
    """The mean power does not tell the power between the waits."""
    report = of_limit(tmp_path, 700.0)
    waits = replace(report.throughput, data_wait_fraction=0.25)
    assert estimated_effect(report) is not None
    assert estimated_effect(replace(report, throughput=waits)) is None


def test_advice_estimates_the_saving(tmp_path: Path) -> None:
    """Limit, range of the saving, largest slowdown; the upper end of the saving in joules."""
    report = of_limit(tmp_path, 550.0)
    (one,) = advice(report)
    assert one.code == "power_limit"
    assert "A limit of 475 W is estimated to save 6.7 % to 10.3 %" in one.message
    assert "PowerLimitOptimizer" in one.fix
    train = next(phase for phase in report.phases if phase.name == "train")
    assert one.saves_j == pytest.approx(0.103 * train.gpu.energy_j)


def search(**changes: Any) -> PowerLimitSearch:
    """A search that has chosen 350 of 500 W."""

    def around(value: float) -> Estimate:
        return Estimate(value=value, low=0.9 * value, high=1.1 * value)

    points = tuple(
        PowerPoint(value=limit_w, step_s=around(step_s), step_j=around(step_j))
        for limit_w, step_s, step_j in ((350.0, 0.104, 36.0), (500.0, 0.1, 48.0))
    )
    found = PowerLimitSearch(
        knob="limit", objective="max_slowdown=0.05", found=500.0, chosen=350.0, windows=5,
        slowdown=around(0.04), saving=around(0.25), is_measured=True, saved_j=around(12000.0),
        steps=1000, curve=points, measured=points,
    )  # fmt: skip
    return replace(found, **changes)


def with_search(report: EnergyReport, found: PowerLimitSearch) -> EnergyReport:
    """A report with a search, and the changes of the limit."""
    change = PowerChange(t_s=20.0, knob="limit", value=350.0, why="chosen")
    return replace(report, profile=Profile(power_limit=found), power_changes=(change,))


def test_a_run_with_a_search_gets_no_estimate(tmp_path: Path) -> None:
    """It has measured what a limit saves."""
    assert advice(with_search(of_limit(tmp_path, 550.0), search())) == ()


@pytest.mark.charts
def test_the_section_says_what_was_chosen_and_saved(report: EnergyReport) -> None:
    """In the text; and the charts of the curves and of the changes can be drawn."""
    found = with_search(report, search())
    words = " ".join(text.render(found).split())
    assert "A power limit of 350 W instead of 500 W saves 25.0 % (22.5 to 27.5 %)" in words
    assert "a step takes 4.0 % (3.6 to 4.4 %) longer (measured;" in words
    assert "1000 steps at this setting have saved" in words
    drawn = dict(pictures(found, dpi=40.0))
    assert drawn["power_limit"].startswith(b"\x89PNG")
    before, after = plots.power_over_time(report), plots.power_over_time(found)
    assert before is not None
    assert after is not None
    assert len(after.axes[0].lines) == len(before.axes[0].lines) + 1


def test_a_search_that_keeps_the_limit_says_so() -> None:
    """No other setting is better."""
    (sentence,) = search(chosen=500.0).sentences
    assert sentence.startswith("The power limit stays at 500 W: no other setting")


def test_the_json_of_a_report_keeps_the_search(tmp_path: Path, report: EnergyReport) -> None:
    """It can be read again."""
    found = with_search(report, search())
    save(found, tmp_path / "report", formats=["json"])
    assert load(tmp_path / "report.json") == found


def test_a_projection_multiplies_the_saving(tmp_path: Path, report: EnergyReport) -> None:
    """The measured one of the run, otherwise the estimate, otherwise none."""
    title, job = power_limit_saving(with_search(report, search())) or ("", None)
    assert job is not None
    assert (title, job.energy_j.value) == ("saved by the power limit", 12000.0)
    estimate = power_limit_saving(of_limit(tmp_path, 550.0))
    assert estimate is not None
    assert estimate[0] == "estimated saving by a limit of 475 W"
    assert power_limit_saving(report) is None

"""Errors are separate in the JSON and combined for people; short times give bounds."""

import io
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from energy_callbacks.core import formatting
from energy_callbacks.report.build import build
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Figure, Ratio
from energy_callbacks.report.model.runs import Phase
from energy_callbacks.report.model.schema import EnergyReport, from_json, to_json
from energy_callbacks.report.render.html import render as render_html
from energy_callbacks.report.render.terminal import print_report
from energy_callbacks.report.render.text import render, summary_line
from tests.report.journals import CPU, GPU, GPU1, TRAIN, Attempt, Stretch, write

# 400 W for 5 ms are 2 J, and each energy of these journals has a standard error of 1 J.
BLINK = Stretch(phase="blink", duration_s=0.005, power_w={"gpu0": 400.0})
ONE_CARD = replace(TRAIN, power_w={"gpu0": 500.0})


def in_terminal(report: EnergyReport) -> str:
    """Returns the output of rich without colours."""
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    print_report(report, console)
    assert isinstance(console.file, io.StringIO)
    return re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())


def row(text: str, name: str) -> str:
    """Returns the row of a table that starts with a name."""
    return next(line for line in text.splitlines() if line.strip(" │").startswith(name))


def test_a_phase_too_short_is_a_bound_everywhere(tmp_path: Path) -> None:
    """2 J with 2 J at random: '< 1.1 mWh' in text, terminal and page; no error, no share."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=(ONE_CARD, BLINK)))
    report = build(tmp_path)
    bound = f"< {formatting.energy(2.0 + math.hypot(1.96, 0.02))}"
    assert bound == "< 1.10 mWh"
    for text in (render(report), in_terminal(report)):
        line = row(text, "blink")
        assert line.count(bound) == 2  # GPU and total
        assert "%" not in line
        assert "8.33 Wh" in row(text, "train")
        assert "%" in row(text, "train")
    page = render_html(report)
    assert page.count("&lt; 1.10 mWh") == 2
    assert "0.556 mWh" not in page


def test_a_run_too_short_is_a_bound_in_its_headline(tmp_path: Path) -> None:
    """Summary, headline and devices show a bound, and no mean power."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=(replace(BLINK, phase="train"),)))
    report = build(tmp_path)
    assert "< 1.10 mWh (gpu < 1.10 mWh measured)" in summary_line(report)
    text = render(report)
    assert re.search(r"GPU +< 1\.10 mWh, too short to measure  \(measured\)", text)
    assert "400 W" not in row(text, "gpu0 NVIDIA")
    assert "< 1.10 mWh, too short to measure" in in_terminal(report)
    assert "&lt; 1.10 mWh, too short to measure" in render_html(report)


def test_a_ratio_too_short_is_a_bound() -> None:
    """1 J a step with 0.5 J at random lies below the end of its interval."""
    short = Ratio(value_j=1.0, low_j=0.0, high_j=2.08, stderr_j=0.5, systematic_j=0.1, steps=4)
    assert figure_format.ratio(short) == "< 2.1 J"
    assert figure_format.ratio(replace(short, stderr_j=0.1, high_j=1.296)) == "1.0 J"
    assert figure_format.ratio(replace(short, stderr_j=None)) == "1.0 J"


def test_a_systematic_bound_is_no_matter_of_length() -> None:
    """An estimate with an error of 100 % is an order of magnitude, and one of 90 % is not."""
    estimate = Figure(energy_j=3600.0, systematic_j=3600.0)
    assert figure_format.figure(estimate) == "1.00 Wh"
    assert figure_format.error(estimate) == "order of magnitude only"
    assert figure_format.energy_with_error(estimate) == "about 1 Wh"
    better = replace(estimate, systematic_j=3240.0)
    assert figure_format.error(better) == "90.0 %"
    assert figure_format.energy_with_error(better) == "1.00 ± 0.90 Wh"


def test_a_share_is_told_where_its_energy_is() -> None:
    """An unresolved phase has no share of the total."""
    figure = Figure(energy_j=10.0, stderr_j=1.0)
    phase = Phase(name="x", duration_s=1.0, gpu=figure, host=figure, total=figure, share=0.5)
    assert figure_format.share(phase) == "50.0 %"
    assert figure_format.share(replace(phase, total=replace(figure, stderr_j=9.0))) == "-"
    assert figure_format.share(replace(phase, share=None)) == "-"


def test_ratios_carry_both_errors_and_their_steps(tmp_path: Path) -> None:
    """600 steps of 60 s at 500 W: 1 J at random, 1 % systematic, each over what was counted."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=(ONE_CARD,), tokens_per_step=100))
    found = json.loads(to_json(build(tmp_path)))["efficiency"]["gpu"]
    for name, count in (("j_per_step", 600), ("j_per_sample", 19_200), ("j_per_token", 60_000)):
        ratio = found[name]
        assert ratio["value_j"] == pytest.approx(30_000.0 / count)
        assert ratio["stderr_j"] == pytest.approx(1.0 / count)
        assert ratio["systematic_j"] == pytest.approx(300.0 / count)
        assert ratio["steps"] == 600
        half_j = (ratio["high_j"] - ratio["low_j"]) / 2.0
        assert half_j == pytest.approx(math.hypot(1.96 * ratio["stderr_j"], ratio["systematic_j"]))


def test_the_errors_of_a_ratio_are_those_of_the_whole_window(tmp_path: Path) -> None:
    """Seen for nine tenths: value and errors grow alike; the interval holds the rest as well."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=(ONE_CARD,), coverage=0.9))
    ratio = build(tmp_path).efficiency.gpu.j_per_step
    assert ratio is not None
    assert ratio.stderr_j == pytest.approx(1.0 / 0.9 / 600)
    assert ratio.systematic_j == pytest.approx(300.0 / 0.9 / 600)
    stated_j = math.hypot(1.96 * ratio.stderr_j, ratio.systematic_j)
    assert ratio.high_j - ratio.value_j == pytest.approx(stated_j + ratio.value_j * 0.1)


def test_the_text_has_every_ratio_with_its_interval(report: EnergyReport) -> None:
    """Step and sample, of the GPU and in total, and over how many steps."""
    for text in (render(report), in_terminal(report)):
        assert re.search(r"step, gpu +47\.5 J +47\.0 to 48\.0 J +600", text)
        assert re.search(r"sample, gpu +1\.48 J +1\.47 to 1\.50 J +600", text)
        assert re.search(r"sample, total", text)
    assert re.search(r"47\.0 to 48\.0 J</td><td[^>]*>600", render_html(report))


def test_sums_of_devices_keep_the_errors_apart(tmp_path: Path) -> None:
    """Two cards and a CPU: 1 J each in quadrature, 1 % each linearly, in all that is a sum."""
    power_w = {"gpu0": 500.0, "gpu1": 300.0, "cpu0": 100.0}
    stretch = Stretch(phase="train", duration_s=60.0, power_w=power_w)
    write(tmp_path, Attempt(devices=(GPU, GPU1, CPU), stretches=(stretch,)))
    report = build(tmp_path)
    (phase,) = report.phases
    for scopes in (report.energy, phase):
        assert scopes.gpu.stderr_j == pytest.approx(math.sqrt(2.0))
        assert scopes.gpu.systematic_j == pytest.approx(0.01 * 48_000.0)
        assert scopes.total.stderr_j == pytest.approx(math.sqrt(3.0))
        assert scopes.total.systematic_j == pytest.approx(0.01 * 54_000.0)
    assert [one.energy.stderr_j for one in report.devices] == [1.0, 1.0, 1.0]
    assert [one.energy.systematic_j for one in report.devices] == [300.0, 180.0, 60.0]


def test_a_report_from_before_has_no_errors_apart(report: EnergyReport) -> None:
    """Ratios of old reports are read without errors, which are not known."""
    old = json.loads(to_json(report))
    for scope in old["efficiency"].values():
        for ratio in scope.values():
            for name in ("stderr_j", "systematic_j", "steps") if ratio else ():
                del ratio[name]
    again = from_json(json.dumps(old))
    assert again.efficiency.gpu.j_per_step is not None
    assert again.efficiency.gpu.j_per_step.stderr_j is None
    assert re.search(r"step, gpu +47\.5 J +47\.0 to 48\.0 J +-", render(again))
    assert "over 600 steps" not in render_html(again)


def test_a_notice_of_the_journal_keeps_its_fix(tmp_path: Path) -> None:
    """The report has the fix of a notice; old journals have none."""
    path = write(tmp_path, Attempt(warnings=[("old", "from before")]))
    line = {"type": "warning", "t_s": 1.0, "code": "short_span", "message": "m", "fix": "log less"}
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:-1], json.dumps(line), lines[-1]]) + "\n")
    fixes = {warning.code: warning.fix for warning in build(tmp_path).warnings}
    assert fixes["short_span"] == "log less"
    assert fixes["old"] == ""

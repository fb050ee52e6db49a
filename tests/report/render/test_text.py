"""The plain text, the terminal output, and the summary line."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from energy_callbacks.report.build import build
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.runs import RankUse
from energy_callbacks.report.render.terminal import print_report
from energy_callbacks.report.render.text import render, summary_line
from tests.report.journals import CPU, GERMANY, PROCESS, Attempt, write


def test_the_answer_comes_first(report):
    """The order: title, answer, what to change, headline, notes, tables."""
    text = render(report)
    marks = ("resnet", "The run used", "What to change", "Total energy", "Notes", "Energy by phase")
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)
    assert "is estimated by a model" in text[text.index("Notes") :]


def test_a_report_prints_itself(report):
    """print(callback.report()) prints the text, not the fields of the record."""
    assert str(report) == render(report)


def test_the_headline_is_the_report_in_watt_hours(report):
    """31600 J are 8.78 Wh with an error of 0.09 Wh; 38400 J are 10.67 Wh."""
    text = render(report)
    assert re.search(r"GPU +8\.778 ± 0\.088 Wh  \(measured, mean 395 W\)", text)
    assert re.search(r"Total energy +10\.67 ± 0\.11 Wh", text)


def test_text_has_what_people_look_for(report):
    """Emissions with their place, average and peak memory, phases, devices."""
    text = render(report)
    assert re.search(r"Emissions +4\.0\d gCO2e  \(Germany, 381 g/kWh", text)
    assert re.search(
        r"Peak GPU memory +44\.7 GiB  \(mean 41\.0 GiB, peak allocated by the\s+framework 27\.9",
        text,
    )
    assert re.search(r"Peak host memory +2\.61 GiB  \(mean 2\.24 GiB\)", text)
    assert re.search(r"validation +5\.0 s +0\.417 Wh +0\.111 Wh +0\.528 Wh +1\.0 % +4\.9 %", text)
    assert re.search(r"gpu0 NVIDIA H200 +8\.78 Wh +1\.0 % +395 W +500 W", text)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_longer_than_asked_for(report, width):
    """If names are long, the first column is cut."""
    long = replace(report, run=replace(report.run, name="name " * 100))
    assert max(map(len, render(long, width).splitlines())) <= width


def test_no_name_makes_a_table_too_wide(report):
    """Hosts, cards and devices with long names, in every table and in a terminal: 80 columns."""
    long = "a-very-long-name-of-a-node." * 3
    rank = RankUse(
        attempt=1, host=long, rank=1, gpus=("gpu0", "gpu1", long), shares_gpus=True, steps=10**6,
        samples=10**6, train_s=3e5, data_wait_s=3e5, gpu=report.energy.gpu, gpu_power_w=1234.5,
    )  # fmt: skip
    shown = replace(
        report,
        devices=tuple(replace(device, name=long, host=long) for device in report.devices),
        attempts=tuple(replace(report.attempts[0], attempt=n, host=long) for n in (1, 2)),
        ranks=(rank, replace(rank, rank=0)),
    )
    assert max(map(len, render(shown).splitlines())) <= 80
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    print_report(shown, console)
    lines = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    for text in (render(shown), "\n".join(lines)):
        assert text.count("1 000 000") == 4  # a cut number would be wrong
        assert text.count("1234 W") == 2


def test_control_characters_never_reach_the_terminal(tmp_path):
    """An escape sequence in the name of a run is not printed."""
    write(tmp_path, Attempt(run_name="\x1b[31mred\x1b[0m\u202e\r\nnext", error="\x07bell"))
    report = build(tmp_path)
    for text in (render(report), summary_line(report)):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", text)


def test_the_terminal_shows_markup_as_text(report):
    """The name '[bold]x[/nope] lr:100:' is printed unchanged, by rich and as plain text."""
    named = replace(report, run=replace(report.run, name="[bold]x[/nope] lr:100:"))
    for is_terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=is_terminal, width=100)
        print_report(named, console)
        text = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())
        assert "[bold]x[/nope] lr:100:" in text
        assert "8.778 ± 0.088 Wh" in text
        assert text.index("The run used") < text.index("Total energy")


def test_a_pipe_gets_plain_text(report):
    """If the output is not a terminal, there are no escape sequences."""
    console = Console(file=io.StringIO(), width=100)
    print_report(report, console)
    assert console.file.getvalue() == render(report)


def test_the_summary_is_one_line_with_what_counts(report):
    """Energy by origin, joules per sample, emissions with location, path; notes do not count."""
    line = summary_line(report, Path("runs/energy_report.html"))
    assert line == (
        "10.7 Wh (gpu 8.78 Wh measured, host 1.89 Wh estimated) · 1.48 J/sample · "
        "4.06 gCO2e (Germany) · report: runs/energy_report.html"
    )


def test_the_summary_says_when_a_run_did_not_end_well(tmp_path):
    """The line of a failed run starts with 'failed'."""
    write(tmp_path, Attempt(status="failed"))
    assert summary_line(build(tmp_path)).startswith("failed · ")


def test_the_summary_of_a_machine_without_gpu_has_no_gpu(tmp_path):
    """Without a GPU the line has none, and joules per sample are of the total."""
    write(tmp_path, Attempt(devices=(CPU, PROCESS), config={"place": GERMANY}))
    line = summary_line(build(tmp_path))
    assert "gpu" not in line
    # 60 s of 100 W for 19200 samples
    assert "313 mJ/sample" in line or "0.312 J/sample" in line


def test_unknown_energy_is_said_in_words(tmp_path):
    """Without devices the line has 'energy not known' and no zero."""
    write(tmp_path, Attempt(devices=()))
    line = summary_line(build(tmp_path))
    assert line.startswith("energy not known")
    assert "0" not in line


@pytest.mark.parametrize(
    ("energy_j", "error_j", "expected"),
    [
        (44_280.0, 720.0, "12.30 ± 0.20 Wh"),
        (3.6e9, 3.6e7, "1000 ± 10 kWh"),
        (36.0, 3.6, "10.0 ± 1.0 mWh"),
        (0.0, 0.0, "0 ± 0 Wh"),
        (None, 0.0, "not known"),
    ],
)
def test_an_energy_has_two_digits_of_its_error(energy_j, error_j, expected):
    """A value has two digits of its error and a suitable unit."""
    assert (
        figure_format.energy_with_error(Figure(energy_j=energy_j, systematic_j=error_j)) == expected
    )

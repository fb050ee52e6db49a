"""The LaTeX of a report has its numbers, compiles, and cites what BibTeX has."""

import math
import re
from dataclasses import replace
from statistics import fmean, stdev

import pytest

from energy_callbacks.report import Embodied, bibtex, latex
from energy_callbacks.report.build import build
from energy_callbacks.report.model.schema import EnergyReport, to_json
from tests.report.journals import GERMANY, Attempt, Stretch, write
from tests.report.render.paper.latex_run import compiled

JOULES = {"kWh": 3.6e6, "Wh": 3600.0, "mWh": 3.6}
HOSTILE = r"50% of \_{a}_$b$ & #1 ~^ <模型> \input{x} -- ``''"
# Quantile 0.975 of Student's t with 4 degrees of freedom, from a printed table.
T_4 = 2.776


def cells(document: str) -> dict[str, list[str]]:
    """Return the cells of each row of the tables by the name of the row."""
    rows = re.findall(r"^(.*) \\tabularnewline$", document, re.MULTILINE)
    split = [row.split(" & ") for row in rows]
    return {name.partition(" (")[0]: rest for name, *rest in split}


def ends(text: str) -> tuple[float, float, float]:
    """Return both ends of an interval of energy in J, and half a unit of the last digit."""
    low, high, unit = re.fullmatch(r"([\d.]+) to ([\d.]+) (\w+)", text).groups()
    rounding = 0.5 * 10.0 ** -len(low.partition(".")[2])
    return float(low) * JOULES[unit], float(high) * JOULES[unit], rounding * JOULES[unit]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[EnergyReport]:
    """Five runs at about 500 W."""
    folder = tmp_path_factory.mktemp("repeats")
    found = []
    for i, noise in enumerate((0.0, 0.04, -0.04, 0.02, -0.02)):
        power_w = {"gpu0": 500.0 * (1.0 + noise), "cpu0": 100.0}
        train = Stretch(phase="train", duration_s=60.0, power_w=power_w)
        config = {"place": GERMANY, "pue": 1.2}
        attempt = Attempt(stretches=(train,), run_id=f"r{i}", run_name=HOSTILE, config=config)
        write(folder / str(i), attempt)
        found.append(build(folder / str(i), now_unix_s=2e9))
    return found


@pytest.mark.parametrize(
    ("row", "scope"), [("Energy", "total"), ("of which GPU", "gpu"), ("of which host", "host")]
)
def test_energies_are_those_of_the_json(report: EnergyReport, row: str, scope: str) -> None:
    """Value and interval of each energy are those of the JSON file, up to the last digit."""
    record = report.to_dict()["energy"][scope]
    value, interval = cells(latex(report))[row]
    low_j, high_j, rounding_j = ends(interval)
    number, unit = value.split()
    error_j = math.hypot(1.96 * record["stderr_j"], record["edge_j"], record["systematic_j"])
    assert float(number) * JOULES[unit] == pytest.approx(record["energy_j"], abs=rounding_j)
    assert low_j == pytest.approx(record["energy_j"] - error_j, abs=rounding_j)
    assert high_j == pytest.approx(record["energy_j"] + error_j, abs=rounding_j)


def test_emissions_and_conditions_are_those_of_the_json(report: EnergyReport) -> None:
    """Emissions, hardware, PUE, grid and year are those of the JSON file."""
    record, found = report.to_dict(), cells(latex(report))
    emissions = record["emissions"]
    value, interval = found["Emissions"]
    low, high = re.findall(r"[\d.]+", interval)[:2]
    assert float(value.split()[0]) == pytest.approx(1e3 * emissions["kg"], rel=5e-3)
    assert float(low) == pytest.approx(1e3 * emissions["low_kg"], rel=5e-3)
    assert float(high) == pytest.approx(1e3 * emissions["high_kg"], rel=5e-3)
    assert "1 x NVIDIA H200, 1 x Xeon" in found["Hardware"][0]
    assert found["Measured by sensors"][0] == f"{100 * record['measured_fraction']:.1f}~\\%"
    assert found["PUE"][0].endswith(" 1}")
    assert found["Grid, year"][0].endswith(f" Germany, 381 g/kWh, {emissions['year']}}}")
    per_sample = record["efficiency"]["total"]["j_per_sample"]["value_j"]
    assert float(found["Energy per sample"][0].split()[0]) == pytest.approx(per_sample, abs=5e-3)


def test_repeats_have_a_mean_and_students_interval(runs: list[EnergyReport]) -> None:
    """The interval of five runs is t * s / sqrt(5), in quadrature with the systematic bound."""
    found = cells(latex(runs))
    values = [one.to_dict()["energy"]["gpu"]["energy_j"] for one in runs]
    bound_j = fmean(one.to_dict()["energy"]["gpu"]["systematic_j"] for one in runs)
    error_j = math.hypot(T_4 * stdev(values) / math.sqrt(5), bound_j)
    low_j, high_j, rounding_j = ends(found["of which GPU"][1])
    assert found["Runs"][0] == "5"
    assert low_j == pytest.approx(fmean(values) - error_j, abs=2 * rounding_j)
    assert high_j == pytest.approx(fmean(values) + error_j, abs=2 * rounding_j)
    assert "Values are means of 5 runs" in latex(runs)


def test_a_run_that_is_given_twice_is_refused(report: EnergyReport) -> None:
    """Copies of a run are not repeats."""
    with pytest.raises(ValueError, match="run run-a is given 2 times"):
        latex([report, report])
    with pytest.raises(ValueError, match="no report is given"):
        bibtex([])


def test_without_a_location_there_is_a_range(report: EnergyReport) -> None:
    """The table has the range of the emissions, and no value."""
    nowhere = replace(report.emissions, kg=None, kg_per_kwh=None, place=None, year=None)
    found = cells(latex(replace(report, emissions=nowhere)))
    assert found["Emissions"][0] == "location not set"
    assert "location not set" in found["Grid, year"][0]


def test_an_unknown_energy_of_one_run_makes_the_mean_unknown(runs: list[EnergyReport]) -> None:
    """A mean of the other runs would not be the mean of the runs."""
    blind = replace(runs[0].energy.total, energy_j=None)
    first = replace(runs[0], energy=replace(runs[0].energy, total=blind), emissions=None)
    found = cells(latex([first, *runs[1:]]))
    assert found["Energy"] == ["not known", ""]
    assert found["Emissions"] == ["not known", ""]


def test_it_compiles_with_all_its_sources(runs: list[EnergyReport], tmp_path) -> None:
    """PdfLaTeX and BibTeX find each command and each source, also with hostile names."""
    embodied = Embodied(kg=1500.0, lifetime_years=4.0)
    body = latex(runs, embodied=embodied) + latex(runs[0])
    sources = bibtex(runs, embodied=embodied) + "\n" + bibtex(runs[0])
    log = compiled(tmp_path, body, "\n\n".join(dict.fromkeys(sources.split("\n\n"))))
    assert "undefined" not in log
    assert "Overfull" not in log
    assert "50% of" not in body  # this would begin a comment


def test_every_citation_has_an_entry(report: EnergyReport) -> None:
    """BibTeX has exactly the sources that LaTeX cites, and the version of this package."""
    cited = {
        key for keys in re.findall(r"\\cite\{(.*?)\}", latex(report)) for key in keys.split(",")
    }
    entries = bibtex(report)
    assert set(re.findall(r"^@\w+\{(\w+),", entries, re.MULTILINE)) == cited
    assert {"energy_callbacks", "nvml", "codecarbon", "gupta2021"} == cited
    assert f"Version {report.tool_version}" in entries


def test_a_report_is_the_same_after_its_json(report: EnergyReport) -> None:
    """LaTeX is made from the saved report alone."""
    from energy_callbacks.report.model.schema import from_json

    assert latex(from_json(to_json(report))) == latex(report)

"""The LaTeX of a comparison has its statistics, and compiles."""

import math
import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from energy_callbacks.compare import bibtex, compare, latex
from energy_callbacks.compare.answers import change
from tests.compare.test_compare import BETWEEN, group
from tests.report.render.paper.latex_run import compiled

# Quantile 0.975 of Student's t with 4 degrees of freedom, from a printed table.
T_4 = 2.776


@pytest.fixture(scope="module")
def groups(tmp_path_factory):
    """Two groups of five runs with names that are special in LaTeX."""
    folder: Path = tmp_path_factory.mktemp("paper")
    return {
        "lr_1 & 50%": group(folder / "a", 500.0),
        "{b}": group(folder / "b", 450.0, **BETWEEN),
    }


@pytest.fixture(scope="module")
def comparison(groups):
    """The comparison of both."""
    return compare(groups)


def rows(document: str) -> dict[str, list[str]]:
    """Return the cells of all rows without commands for their layout."""
    plain = document.replace(r"\raggedright ", "").replace("$-$", "-").replace(r"~\%", " %")
    found = [
        row.split(" & ") for row in re.findall(r"^(.*) \\tabularnewline$", plain, re.MULTILINE)
    ]
    return {name: rest for name, *rest in found}


def test_changes_have_the_statistics_of_the_json(comparison, groups) -> None:
    """Means, change with interval, adjusted p-value and verdict are those of the comparison."""
    found = rows(latex(comparison, groups))
    effect = comparison.effect("{b}", "gpu_energy_j")
    means = [f"{one.means['gpu_energy_j'] / 3600.0:.2f} Wh" for one in comparison.groups]
    p_holm = r"\textless{} 0.001" if effect.p_holm < 0.001 else f"{effect.p_holm:.3f}"
    expected = [*means, change(effect), p_holm, effect.verdict]
    assert found["GPU energy of the run"] == expected
    assert effect.verdict == "lower"
    last = found["Best val\\_accuracy"]
    assert last[-2:] == ["-", "as good"]


def test_groups_have_number_mean_and_interval(comparison, groups) -> None:
    """Each group has a column with n, mean and interval, hardware, PUE and grid."""
    found = rows(latex(comparison, groups))
    assert found["Runs (n)"] == ["5", "5"]
    assert found["Hardware"] == ["1 x NVIDIA H200, 1 x Xeon"] * 2
    assert found["PUE"] == ["1", "1"]
    mean, low, high = map(float, re.findall(r"\d+\.\d+", found["of which GPU"][1])[:3])
    figures = [run.energy.gpu for run in groups["{b}"]]
    values = [one.energy_j / 3600.0 for one in figures]
    bound = fmean(one.systematic_j for one in figures) / 3600.0
    error = math.hypot(T_4 * stdev(values) / math.sqrt(5), bound)
    assert mean == pytest.approx(fmean(values), abs=0.006)
    assert low == pytest.approx(fmean(values) - error, abs=0.006)
    assert high == pytest.approx(fmean(values) + error, abs=0.006)


def test_the_paragraph_has_test_and_caveats(comparison, groups) -> None:
    """The test, the target and each caveat are stated."""
    text = latex(comparison, groups)
    assert "computed by a bootstrap over runs" in text
    assert "Holm's method" in text
    assert "The target is val\\_accuracy of at least" in text
    assert "Values are means of 5 runs" in text
    assert len(comparison.caveats) == text.count("did not alternate")


def test_single_runs_have_no_test(groups) -> None:
    """Without intervals, no test is claimed and the p-value is a dash."""
    single = {name: runs[:1] for name, runs in groups.items()}
    text = latex(compare(single), single)
    assert "bootstrap over runs" not in text
    assert rows(text)["GPU energy of the run"][3] == "-"


def test_it_compiles_with_its_sources(comparison, groups, tmp_path) -> None:
    """PdfLaTeX finds each command and each source, and no line is too wide."""
    log = compiled(tmp_path, latex(comparison, groups), bibtex(comparison, groups))
    assert "undefined" not in log
    assert "Overfull" not in log


def test_bibtex_has_the_version_that_measured(comparison, groups) -> None:
    """The version that compares may be newer."""
    older = {
        name: [replace(run, tool_version="0.0.9") for run in runs] for name, runs in groups.items()
    }
    assert "Version 0.0.9" in bibtex(comparison, older)

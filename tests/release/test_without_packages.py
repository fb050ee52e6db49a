"""The package where only the packages for measuring are installed."""

import os
import textwrap
from pathlib import Path

import pytest

from tests.lanes import ROOT
from tests.release.programs import COMMAND, LOOP, python, report_of

HIDING = Path(__file__).parent / "hiding"
HIDDEN = (
    "codecarbon", "pycountry", "pandas", "matplotlib", "tensorboard", "scipy", "shtab",
    "memory_profiler",
)  # fmt: skip


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process without the packages in ``HIDDEN``."""
    paths = (HIDING, ROOT, ROOT / "integrations")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "HIDDEN_PACKAGES": " ".join(HIDDEN),
        "HOME": str(tmp_path),
    }


def test_the_packages_are_hidden(tmp_path: Path, without: dict[str, str]) -> None:
    """Python does not find them; this shows that the other tests can fail."""
    code = "import sys\nfrom importlib.util import find_spec\nprint(*map(find_spec, sys.argv[1:]))"
    assert python(["-c", code, *HIDDEN], tmp_path, without).split() == ["None"] * len(HIDDEN)
    assert "numpy" in python(["-c", code, "numpy"], tmp_path, without)


def test_a_plain_loop_has_a_report(tmp_path: Path, without: dict[str, str]) -> None:
    """The report has text, JSON, and a page without charts; it says what to install."""
    printed = python(["-c", LOOP], tmp_path, without)
    assert printed.strip().endswith("energy_report.html")
    report = report_of(tmp_path)
    assert report["throughput"]["samples"] == 20 * 64
    assert "codecarbon" in " ".join(str(one["fix"]) for one in report["unavailable"])


def test_a_command_is_measured(tmp_path: Path, without: dict[str, str]) -> None:
    """``run`` writes the same files."""
    words = ["-m", "energy_callbacks", "run", "--", "python", "-c", COMMAND]
    python(words, tmp_path, without)
    assert report_of(tmp_path)["run"]["status"] == "finished"


def test_emissions_follow_from_a_given_intensity(tmp_path: Path, without: dict[str, str]) -> None:
    """A number needs no table; a row that a file lacks counts as unknown, and has the range."""
    code = """
        from energy_callbacks.accounting.grid.grid import grid
        from energy_callbacks.core.config import EnergyConfig

        one = grid(EnergyConfig(carbon_intensity=400.0)).intensity
        assert one.kg_per_kwh == 0.4, one
        unknown = grid(EnergyConfig()).intensity
        assert unknown.kg_per_kwh is None
        print(unknown.low_kg_per_kwh, unknown.high_kg_per_kwh)
    """
    low, high = map(float, python(["-c", textwrap.dedent(code)], tmp_path, without).split())
    assert 0.02 < low < 0.05
    assert 0.7 < high < 0.8


@pytest.mark.parametrize(
    ("statement", "command"),
    [
        ("energy_callbacks.EnergyMeter(country='DEU')", "'DEU' needs .*pip install .*codecarbon"),
        ("energy_callbacks.profiling.StepPhases()", r"pip install .*\[phases\]"),
        (
            "line_profile.profile_lines('json:dumps')",
            r"pip install .*\[memory\]",
        ),
        ("energy_callbacks.outputs.tensorboard.TensorBoardOutput('x')", "pip install .*tensorb"),
        ("energy_callbacks.cli.main(['--print-completion', 'bash'])", r"\[completion\]"),
        ("energy_callbacks.cli.main(['run', '--graphs', '--', 'true'])", "pip install .*matplot"),
    ],
)
def test_an_option_that_needs_a_package_names_it(
    statement: str, command: str, tmp_path: Path, without: dict[str, str]
) -> None:
    """The error is raised at construction and has the command that installs the package."""
    code = f"""
        import contextlib, io, re
        import energy_callbacks, energy_callbacks.cli, energy_callbacks.outputs.tensorboard
        import energy_callbacks.profiling
        from energy_callbacks.accounting import line_profile

        written = io.StringIO()
        with contextlib.redirect_stderr(written):
            try:
                code = {statement}
            except energy_callbacks.MissingExtraError as error:
                written.write(str(error))
            except SystemExit as ended:
                assert ended.code == 1, ended.code
            else:
                assert code == 1, code
        assert re.search({command!r}, written.getvalue()), written.getvalue()
    """
    python(["-c", textwrap.dedent(code)], tmp_path, without)


def test_pictures_are_refused(tmp_path: Path, without: dict[str, str]) -> None:
    """``report --graphs`` ends with the command that installs matplotlib, without a traceback."""
    python(["-c", LOOP], tmp_path, without)
    code = "import sys\nfrom energy_callbacks.cli import main\nsys.exit(main(sys.argv[1:]) != 1)"
    python(["-c", code, "report", ".", "--graphs"], tmp_path, without)
    assert not list(tmp_path.rglob("*.png"))


def test_comparisons_have_pages(tmp_path: Path, without: dict[str, str]) -> None:
    """The page of two runs says that its charts are left out, and no picture is written."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        python(["-c", LOOP], tmp_path / name, without)
    words = ["-m", "energy_callbacks", "compare", "a", "b", "--out", "comparison"]
    python(words, tmp_path, without)
    page = (tmp_path / "comparison" / "comparison.html").read_text(encoding="utf-8")
    assert "Charts are left out" in page
    assert not list(tmp_path.rglob("*.png"))


def test_a_matrix_runs_without_pictures(tmp_path: Path, without: dict[str, str]) -> None:
    """Its jobs have reports, although ``graphs`` is on by default."""
    plan = 'name = "m"\ncommand = "sleep 0.{tenths}"\nrepeats = 1\n[parameters]\ntenths = [1, 2]\n'
    (tmp_path / "m.toml").write_text(plan, encoding="utf-8")
    python(["-m", "energy_callbacks", "matrix", "m.toml"], tmp_path, without)
    (page,) = tmp_path.rglob("matrix.html")
    assert "Charts are left out" in page.read_text(encoding="utf-8")
    assert len(list(tmp_path.rglob("energy_report.json"))) == 2

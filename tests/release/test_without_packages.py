"""The package where only the packages for measuring are installed."""

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integrations.processes import Forking, Script, wait
from tests.lanes import ROOT
from tests.release.programs import LOOP, report_of

PROGRAM = "tests.release.programs"  # the module that runs a program
HIDING = Path(__file__).parent / "hiding"
HIDDEN = (
    "codecarbon", "pycountry", "pandas", "matplotlib", "tensorboard", "scipy", "shtab",
    "memory_profiler",
)  # fmt: skip


# Of the processes that are forked, and of those that they start.
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(map(str, (HIDING, ROOT, ROOT / "integrations"))),
    "HIDDEN_PACKAGES": " ".join(HIDDEN),
}


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    """Start programs in forks of a process without the packages in ``HIDDEN``."""
    one = Forking.importing("energy_callbacks.cli.run", always=(), **ENVIRONMENT)
    yield one
    one.close()


@pytest.fixture(scope="module")
def run(forking: Forking) -> Callable[..., str]:
    """Return a function that runs a module in a folder until it ends, and returns its output."""

    def one(folder: Path, module: str, *arguments: str) -> str:
        environment = {**ENVIRONMENT, "HOME": str(folder)}
        script = Script(module=module, folder=folder, arguments=arguments, environment=environment)
        assert wait(forking.start(script)) == 0, script.output
        return script.output

    return one


@pytest.fixture(scope="module")
def loops(run: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which ``LOOP`` has run in the folders ``a`` and ``b``."""
    folder = tmp_path_factory.mktemp("loops")
    for name in ("a", "b"):
        (folder / name).mkdir()
        run(folder / name, PROGRAM, LOOP)
    return folder


def test_the_packages_are_hidden(tmp_path: Path, run: Callable[..., str]) -> None:
    """Python does not find them; this shows that the other tests can fail."""
    code = "from importlib.util import find_spec\nprint(*map(find_spec, sys.argv[2:]))"
    *hidden, numpy = run(tmp_path, PROGRAM, code, *HIDDEN, "numpy").split(maxsplit=len(HIDDEN))
    assert hidden == ["None"] * len(HIDDEN)
    assert "numpy" in numpy


def test_a_plain_loop_has_a_report(loops: Path) -> None:
    """The report has text, JSON, and a page without charts; it says what to install."""
    printed = (loops / "a" / "output").read_text(encoding="utf-8")
    assert printed.strip().endswith("energy_report.html")
    report = report_of(loops / "a")
    assert report["throughput"]["samples"] == 20 * 64
    assert "codecarbon" in " ".join(str(one["fix"]) for one in report["unavailable"])


def test_a_command_is_measured(tmp_path: Path, run: Callable[..., str]) -> None:
    """``run`` writes the same files."""
    run(tmp_path, "energy_callbacks", "run", "--", "true")
    assert report_of(tmp_path)["run"]["status"] == "finished"


def test_emissions_follow_from_a_given_intensity(tmp_path: Path, run: Callable[..., str]) -> None:
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
    low, high = map(float, run(tmp_path, PROGRAM, textwrap.dedent(code)).split())
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
    statement: str, command: str, tmp_path: Path, run: Callable[..., str]
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
    run(tmp_path, PROGRAM, textwrap.dedent(code))


def test_pictures_are_refused(loops: Path, run: Callable[..., str]) -> None:
    """``report --graphs`` ends with the command that installs matplotlib, without a traceback."""
    code = "from energy_callbacks.cli import main\nsys.exit(main(sys.argv[2:]) != 1)"
    run(loops, PROGRAM, code, "report", "a", "--graphs")
    assert not list(loops.rglob("*.png"))


def test_comparisons_have_pages(loops: Path, run: Callable[..., str]) -> None:
    """The page of two runs says that its charts are left out, and no picture is written."""
    run(loops, "energy_callbacks", "compare", "a", "b", "--out", "comparison")
    page = (loops / "comparison" / "comparison.html").read_text(encoding="utf-8")
    assert "Charts are left out" in page
    assert not list(loops.rglob("*.png"))


def test_a_matrix_runs_without_pictures(tmp_path: Path, run: Callable[..., str]) -> None:
    """Its jobs have reports, although ``graphs`` is on by default."""
    plan = """
        name = "m"
        command = "sleep 0.{tenths}"
        repeats = 1
        cool_down_s = 0
        [parameters]
        tenths = [1, 2]
    """
    (tmp_path / "m.toml").write_text(textwrap.dedent(plan), encoding="utf-8")
    run(tmp_path, "energy_callbacks", "matrix", "m.toml")
    (page,) = tmp_path.rglob("matrix.html")
    assert "Charts are left out" in page.read_text(encoding="utf-8")
    assert len(list(tmp_path.rglob("energy_report.json"))) == 2

"""Tests of ``energy-callbacks compare`` through its command line."""

import json

import numpy as np
import pytest

from energy_callbacks.cli import main
from energy_callbacks.cli.compare import REGRESSED, UNJUDGED
from energy_callbacks.compare import model, plots
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.compare.without_charts import no_charts_of_comparisons  # noqa: F401 - likewise
from tests.importers.logs import as_json, native, times
from tests.report.journals import CPU, IDLE, PROCESS, Attempt, Stretch, write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write three repeats of each of two groups, at 500 W and 450 W."""
    for name, power_w in (("old", 500.0), ("new", 450.0)):
        for i, noise in enumerate((0.0, 0.004, -0.004)):
            train = Stretch(
                phase="train", duration_s=60.0,
                power_w={"gpu0": power_w * (1.0 + noise), "cpu0": 100.0},
            )  # fmt: skip
            attempt = Attempt(run_id=f"{name}{i}", stretches=(IDLE, train))
            write(tmp_path / name / f"run{i}", attempt)
    for i in range(3):
        slow = Attempt(run_id=f"slow{i}", step_s=0.2 + 0.001 * i)
        write(tmp_path / "slow" / f"run{i}", slow)
        cut = Attempt(run_id=f"cut{i}", cut_off_at_s=70.0 + i)
        write(tmp_path / "cut" / f"run{i}", cut)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_folders_of_repeats(folder, capsys):
    """Groups have the names of their folders; the table has means, changes and verdicts."""
    assert main(["compare", "old", "new"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("new has a lower energy per sample than old: -8.3 %")
    assert "old, n=3" in out
    assert main(["compare", "new", "old", "--markdown"]) == 0
    assert "| Energy per sample |" in capsys.readouterr().out


def test_runs_one_by_one_and_names(folder, capsys):
    """Groups are given as lists of runs and with NAME=."""
    words = ["old/run0,old/run1", "after=new/run0,new/run1,new/run2"]
    assert main(["compare", *words, "--json"]) == 0
    found = model.from_json(capsys.readouterr().out)
    assert [(g.name, len(g.runs)) for g in found.groups] == [("run0", 2), ("after", 3)]


def test_a_path_with_a_sign_in_its_name_is_a_path(folder, capsys):
    """An existing path with ``=`` in its name is a path; folders of sweeps have such names."""
    for name in ("lr=0.1", "a,b"):
        write(folder / name / "run0", Attempt(run_id=name))
    assert main(["compare", "old", "lr=0.1", "a,b", "--json"]) == 0
    found = model.from_json(capsys.readouterr().out)
    assert [g.name for g in found.groups] == ["old", "lr=0.1", "a,b"]


def test_files_are_written_where_asked(folder, capsys):
    """The output folder is created."""
    assert main(["compare", "old", "new", "--out", "out/here"]) == 0
    told = capsys.readouterr().err.split()
    assert "out/here/comparison.html" in told
    assert json.loads((folder / "out/here/comparison.json").read_text())["primary"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["new", "old", "--fail-if-regress", "5%"], REGRESSED, "regressed: old: energy per sample"),
        (["new", "old", "--fail-if-regress", "0.2"], 0, ""),
        (["old", "new", "--fail-if-regress", "5%"], 0, ""),
        (["new", "old", "--fail-if-regress", "5%", "--on", "duration_s"], 0, ""),
        (["new", "old", "--fail-if-regress", "9%"], 0, "no certain regression: old"),
        (["new", "old", "--fail-if-regress", "1%", "--on", "samples_per_s"], 0, ""),
        (["old", "slow", "--fail-if-regress", "5%", "--on", "samples_per_s"], REGRESSED, "slow"),
        (["new/run0", "x=old/run0", "--fail-if-regress", "5%"], UNJUDGED, "from one run per group"),
        (["new", "cut", "--fail-if-regress", "5%", "--on", "energy_j"], UNJUDGED, "did not finish"),
    ],
)
def test_a_regression_has_an_exit_code(capsys, words, code, said):
    """A resolved increase above the limit exits with a code; an open interval is reported."""
    assert main(["compare", *words]) == code
    err = capsys.readouterr().err
    assert (said in err) if said else not err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["old"], 2, "needs at least two groups"),
        (["old", "again=old"], 2, "is the same run as"),
        (["old", "x=,"], 2, "group 'x=,' has no run"),
        (["old", "old"], 2, "two groups have the name 'old'; name them: NAME=PATH"),
        (["old", "nowhere"], 2, "nowhere does not exist"),
        (["old", "new", "--metric", "acc"], 2, "no run has a metric 'acc'"),
        (
            ["old", "new", "--fail-if-regress", "5%", "--on", "j_per_token"],
            2,
            "j_per_token is unknown for new",
        ),
    ],
)
def test_mistakes_are_told(capsys, words, code, said):
    """The message says what is wrong and what to do."""
    assert main(["compare", *words]) == code
    assert said in capsys.readouterr().err


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """Write two gputop files of four minutes, samples every 1.115 s, at about 250 and 200 W."""
    dice = np.random.default_rng(4)
    for name, power_w in (("before", 250.0), ("after", 200.0)):
        records = [native(t, power_w * (1.0 + dice.normal(0.0, 0.02))) for t in times(216, 1.115)]
        as_json(tmp_path / f"{name}.json", records)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("logs")
def test_two_old_logs(capsys):
    """Energy uses the times of the samples: 250 W for 215 steps of 1.115 s; power has blocks.

    Whether both logs are of one card is unknown, so the interval includes 10 % for each side.
    """
    assert main(["compare", "before.json", "after.json", "--json"]) == 0
    found = model.from_json(capsys.readouterr().out)
    joules = [group.means["energy_j"] for group in found.groups]
    assert joules == pytest.approx([250.0 * 239.725, 200.0 * 239.725], rel=0.003)
    power = found.effect("after", "power_w")
    assert (power.ratio, power.basis) == (pytest.approx(0.8, abs=0.005), "blocks")
    assert power.systematic == pytest.approx(0.2)
    assert power.low < 0.68
    assert power.high > 0.95
    assert found.effect("after", "energy_j").verdict == "not resolved"


def test_estimates_cannot_be_judged(folder, capsys):
    """Twice the energy, which a model estimates, is no regression that is known."""
    for name, power_w in (("once", 200.0), ("twice", 400.0)):
        for i, noise in enumerate((0.0, 0.004, -0.004)):
            train = Stretch(phase="train", duration_s=60.0, power_w={"cpu0": power_w + noise})
            attempt = Attempt(run_id=f"{name}{i}", stretches=(train,), devices=(CPU, PROCESS))
            write(folder / name / f"run{i}", attempt)
    assert main(["compare", "once", "twice", "--fail-if-regress", "5%"]) == UNJUDGED
    assert "estimated and not measured" in capsys.readouterr().err


def test_one_of_ours_and_an_old_log(folder, logs, capsys):
    """Quantities that both know are compared; the log does not know steps."""
    assert main(["compare", "before.json", "new"]) == 0
    out = capsys.readouterr().out
    assert "Energy of the run" in out
    assert "Energy per sample" not in out
    assert "Intervals of energy include systematic errors" in out
    assert "before ran on AMD Radeon Pro W7900, new on NVIDIA H200" in out


def test_runs_with_folders_of_the_same_name(tmp_path, monkeypatch, capsys):
    """They are named after the folders in which they differ, without the name of run folders."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a", "b")):
        attempt = Attempt(run_id=name, unix_s=1.79e9 + 1000 * number)
        write(tmp_path / name / "lightning_logs/version_0/energy", attempt)
    folders = [f"{name}/lightning_logs/version_0" for name in ("a", "b")]
    for words, names in (
        ([f"{one}/energy" for one in folders], folders),
        (["a", "b"], ["a", "b"]),
        ([f"{folders[0]}/energy", f"x={folders[1]}"], ["version_0", "x"]),
    ):
        assert main(["compare", *words, "--json"]) == 0
        found = model.from_json(capsys.readouterr().out)
        assert [group.name for group in found.groups] == names


def test_latex_and_bibtex(folder, capsys):
    """--latex prints tables with the number of runs, --bibtex the sources that they cite."""
    assert main(["compare", "old", "new", "--latex"]) == 0
    out = capsys.readouterr().out
    assert "Runs (n) & \\raggedright 3 & \\raggedright 3" in out
    assert main(["compare", "old", "new", "--bibtex"]) == 0
    assert "@misc{energy_callbacks," in capsys.readouterr().out


@pytest.mark.charts
def test_figures_for_papers(folder, monkeypatch):
    """--figures writes a vector graphic per chart, without the other files of --out."""
    names = ("changes", "power_timeline")
    drawn = [chart for chart in plots.CHARTS if chart.name in names]
    monkeypatch.setattr(plots, "CHARTS", drawn)
    assert main(["compare", "old", "new", "--figures", "figures"]) == 0
    written = {path.name for path in (folder / "figures").iterdir()}
    assert written == {f"{name}.pdf" for name in names}
    assert (folder / "figures" / "changes.pdf").read_bytes().startswith(b"%PDF")

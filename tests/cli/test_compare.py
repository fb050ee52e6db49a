"""``energy-callbacks compare`` as users call it."""

import json
import shutil

import pytest

from energy_callbacks.cli import main
from energy_callbacks.cli.compare import REGRESSED
from energy_callbacks.report.comparison import model
from tests.report.journals import IDLE, Attempt, Stretch, write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three repeats of each of two things, 500 and 450 W."""
    for name, power_w in (("old", 500.0), ("new", 450.0)):
        for i, noise in enumerate((0.0, 0.004, -0.004)):
            train = Stretch(
                phase="train", duration_s=60.0,
                power_w={"gpu0": power_w * (1.0 + noise), "cpu0": 100.0},
            )  # fmt: skip
            attempt = Attempt(run_id=f"{name}{i}", stretches=(IDLE, train))
            write(tmp_path / name / f"run{i}", attempt)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_folders_of_repeats(folder, capsys):
    """Names are those of the folders; the table has means, change, verdict."""
    assert main(["compare", "old", "new"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("new has a lower energy per sample than old: -8.3 %")
    assert "old, n=3" in out
    assert main(["compare", "new", "old", "--markdown"]) == 0
    assert "| Energy per sample |" in capsys.readouterr().out


def test_runs_one_by_one_and_names(folder, capsys):
    """A list of runs, and NAME=."""
    words = ["old/run0,old/run1", "after=new/run0,new/run1,new/run2"]
    assert main(["compare", *words, "--json"]) == 0
    found = model.from_json(capsys.readouterr().out)
    assert [(g.name, len(g.runs)) for g in found.groups] == [("run0", 2), ("after", 3)]


def test_a_path_with_a_sign_in_its_name_is_a_path(folder, capsys):
    """Folders of sweeps are called so."""
    shutil.copytree("new", "lr=0.1")
    shutil.copytree("new", "a,b")
    assert main(["compare", "old", "lr=0.1", "a,b", "--json"]) == 0
    found = model.from_json(capsys.readouterr().out)
    assert [g.name for g in found.groups] == ["old", "lr=0.1", "a,b"]


def test_files_are_written_where_asked(folder, capsys):
    """The folder is made."""
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
        (["new/run0", "x=old/run0", "--fail-if-regress", "5%"], 0, "not regressed, as far as is"),
    ],
)
def test_a_regression_has_an_exit_code(capsys, words, code, said):
    """Only what is resolved to be worse by more than the share; else what is left open is told."""
    assert main(["compare", *words]) == code
    err = capsys.readouterr().err
    assert (said in err) if said else not err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["old"], 2, "needs two groups"),
        (["old", "old"], 2, "two groups are called 'old'; name them: NAME=PATH"),
        (["old", "nowhere"], 1, "nowhere does not exist"),
        (["old", "new", "--metric", "acc"], 2, "no run has a metric 'acc'"),
        (["old", "new", "--fail-if-regress", "5%", "--on", "j_per_token"], 2, "not known of new"),
    ],
)
def test_mistakes_are_told(capsys, words, code, said):
    """What, and what to do."""
    assert main(["compare", *words]) == code
    assert said in capsys.readouterr().err

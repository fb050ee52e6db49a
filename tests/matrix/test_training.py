"""Real trainings in a matrix that is killed and resumed."""

import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report import load
from tests.core.waiting import until
from tests.matrix.lab import ROOT, Lab

# The second run does not end before the matrix is called again.
LOOP = """
import pathlib, sys, time
from energy_callbacks import EnergyMeter
with EnergyMeter() as meter:
    for epoch in range(3):
        with meter.phase("train"):
            time.sleep(0.5)
            meter.step(samples=8)
        accuracy = 1.0 - 0.5 ** (epoch + 2)
        meter.record_metrics({"val_accuracy": accuracy}, step=epoch + 1, epoch=epoch + 1)
    while sys.argv[2] == "2" and not pathlib.Path("resumed").exists():
        time.sleep(0.1)
"""


def outcomes(lab: Lab) -> dict[Path, str]:
    """Return the content of all outcome files."""
    found = lab.results.glob("jobs/*/*/*/outcome.json")
    return {path: path.read_text(encoding="utf-8") for path in found}


def kill_half_way(lab: Lab, done: int) -> dict[Path, str]:
    """Kill the matrix and its jobs while a job trains; return the outcomes so far."""
    process = lab.start()
    until(lambda: len(outcomes(lab)) >= done)
    until(lambda: len(list(lab.results.glob("jobs/*/*/*/attempts"))) > done)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    return outcomes(lab)


def check_resumed(lab: Lab, before: dict[Path, str], jobs: int, repeats: int) -> dict[str, Any]:
    """Check that finished jobs are kept, each job counts once, and the page has the answer."""
    after = outcomes(lab)
    assert len(after) == jobs
    assert {path: after[path] for path in before} == before
    assert len(list(lab.results.glob("jobs/*/*/try-2"))) == 1  # the one that was killed
    found = lab.table()
    rows: list[dict[str, Any]] = found["configurations"]
    assert {(row["finished"], row["failed"], row["missing"]) for row in rows} == {(repeats, 0, 0)}
    for row in rows:
        # No energy counts twice: each is that of one run folder, and none of the killed attempt.
        reports = [load(Path(folder) / "energy_report.json") for folder in row["folders"]]
        assert len({report.run.run_id for report in reports}) == repeats
        assert row["energies_j"] == [report.energy.total.energy_j for report in reports]
    assert found["ranked_by"] == "energy_to_target_j"
    assert [row["cost_j"] for row in rows] == sorted(row["cost_j"] for row in rows)
    page = (lab.results / "matrix.html").read_text(encoding="utf-8")
    assert found["answer"] in page.replace("&#39;", "'")
    assert "-".join(rows[0]["parameters"].values()) in found["answer"]
    return found


def test_killed_half_way_and_resumed(lab: Lab) -> None:
    """With 2 settings and one repeat each job counts once, and the page has the answer."""
    (lab.folder / "loop.py").write_text(LOOP, encoding="utf-8")
    command = ["python", "loop.py", "{a}", "{b}"]
    lab.write(command=command, metric="val_accuracy", parameters={"a": ["x"], "b": ["1", "2"]})
    before = kill_half_way(lab, 1)
    assert len(before) == 1
    (lab.folder / "resumed").touch()
    ended = lab.run()
    assert ended.code == 0, ended.err
    found = check_resumed(lab, before, jobs=2, repeats=1)
    assert [row["metric"] for row in found["configurations"]] == [pytest.approx(0.9375)] * 2


@pytest.fixture
def example(lab: Lab) -> Lab:
    """Provide ``examples/matrix.toml`` with three repeats and without pauses."""
    missing = [name for name in ("torch", "sklearn") if not find_spec(name)]
    if missing:
        pytest.skip(f"not installed: {missing}")
    for name in ("matrix.toml", "matrix_train.py"):
        shutil.copy(ROOT / "examples" / name, lab.folder)
    text = lab.file.read_text(encoding="utf-8")
    for old, new in (("repeats = 4", "repeats = 3\ngraphs = false"),
                     ("cool_down_s = 20", "cool_down_s = 0")):  # fmt: skip
        assert old in text
        text = text.replace(old, new)
    lab.file.write_text(text, encoding="utf-8")
    lab.results = lab.folder / "energy_runs" / "digits"
    lab.environment["OMP_NUM_THREADS"] = "1"
    return lab


@pytest.mark.slow(reason="13 trainings with PyTorch, each in a process that imports it")
def test_the_example_killed_half_way_and_resumed(example: Lab) -> None:
    """With 2 optimizers, 2 batch sizes and 3 repeats each job counts once."""
    before = kill_half_way(example, 5)
    assert 5 <= len(before) < 12
    ended = example.finish(timeout_s=1200.0)
    assert ended.code == 0, ended.err
    found = check_resumed(example, before, jobs=12, repeats=3)
    assert all(row["metric"] > 0.8 for row in found["configurations"])


def test_a_dry_run_of_the_example_through_slurm(example: Lab) -> None:
    """It prints the twelve commands and the script, and writes nothing."""
    ended = example.run("--engine", "slurm", "--dry-run")
    assert ended.code == 0, ended.err
    assert ended.out.count("python matrix_train.py --optimizer") == 12
    assert "#SBATCH --array=0-11" in ended.out
    assert not example.results.exists()

"""The example: real trainings, killed half way, resumed, and one page that has the answer."""

import json
import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from energy_callbacks.report import load
from tests.matrix.lab import ROOT, Lab, until

pytestmark = pytest.mark.framework


@pytest.fixture
def example(lab: Lab) -> Lab:
    """``examples/matrix.toml`` with three repeats and without pauses."""
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


def outcomes(lab: Lab) -> list[Path]:
    """Of the tries that have ended."""
    return sorted(lab.results.glob("jobs/*/*/*/outcome.json"))


def test_killed_half_way_and_resumed(example: Lab) -> None:
    """2 optimizers x 2 batch sizes x 3 repeats: each counts once, and a page has the answer."""
    process = example.start()
    until(lambda: len(outcomes(example)) >= 5, 200.0)
    until(lambda: len(list(example.results.glob("jobs/*/*/*/attempts"))) >= 6)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = {path: path.read_text(encoding="utf-8") for path in outcomes(example)}
    assert 5 <= len(done) < 12
    ended = example.run(timeout_s=400.0)
    assert ended.code == 0, ended.err
    assert len(outcomes(example)) == 12
    assert {path: path.read_text(encoding="utf-8") for path in done} == done
    assert len(list(example.results.glob("jobs/*/*/try-2"))) == 1  # the one that was killed
    found = json.loads((example.results / "matrix.json").read_text(encoding="utf-8"))
    rows = found["configurations"]
    assert [(row["finished"], row["failed"], row["missing"]) for row in rows] == [(3, 0, 0)] * 4
    for row in rows:
        # No joule double: each is the energy of one run folder, and none of a killed try.
        reports = [load(Path(folder) / "energy_report.json") for folder in row["folders"]]
        assert len({report.run.run_id for report in reports}) == 3
        assert row["energies_j"] == [report.energy.total.energy_j for report in reports]
        assert row["metric"] > 0.8
    assert found["ranked_by"] == "energy_to_target_j"
    assert [row["cost_j"] for row in rows] == sorted(row["cost_j"] for row in rows)
    page = (example.results / "matrix.html").read_text(encoding="utf-8")
    assert found["answer"] in page.replace("&#39;", "'")
    best = "-".join(rows[0]["parameters"].values())
    assert best in found["answer"]


def test_a_dry_run_through_slurm(example: Lab) -> None:
    """The same file: its twelve commands and the script, and nothing is written."""
    ended = example.run("--engine", "slurm", "--dry-run")
    assert ended.code == 0, ended.err
    assert ended.out.count("python matrix_train.py --optimizer") == 12
    assert "#SBATCH --array=0-11" in ended.out
    assert not example.results.exists()

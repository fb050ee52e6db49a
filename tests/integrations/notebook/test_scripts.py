"""A script that breaks: closed when the interpreter exits, with a report on disk."""

import subprocess
import sys
from pathlib import Path

import pytest

from energy_callbacks.report import load
from tests.integrations.notebook.kernel import LABS, environment, missing

RAISES = """
import sys
from tests.integrations.notebook.kernel import Session, boom
Session(sys.argv[1]).fit(boom)
"""
CATCHES = """
import sys
from tests.integrations.notebook.kernel import Session, boom
try:
    Session(sys.argv[1]).fit(boom)
except RuntimeError:
    pass
"""


@pytest.mark.framework
@pytest.mark.parametrize(
    ("script", "code", "error"),
    [(RAISES, 1, "RuntimeError: boom"), (CATCHES, 0, "ended without a word")],
    ids=["raises", "catches"],
)
@pytest.mark.parametrize("framework", LABS)
def test_the_exit_closes_the_report(
    tmp_path: Path, framework: str, script: str, code: int, error: str
) -> None:
    """An exception, caught or not, and the end of the script: failed, 1.5 s of training, saved."""
    package = missing(framework)
    if package is not None:
        pytest.skip(f"{package} is not installed")
    ended = subprocess.run(
        [sys.executable, "-c", script, framework],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.count("Traceback") == code, ended.stderr
    [path] = tmp_path.rglob("energy_report.json")
    report = load(path)
    assert report.run.status == "failed"
    assert error in str(report.run.error)
    assert report.throughput.steps == 15
    [train_s] = [phase.duration_s for phase in report.phases if phase.name == "train"]
    assert train_s == pytest.approx(1.5, abs=0.8)

"""Programs that an installation with few packages must run, and checks of their results."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LOOP = """
from energy_callbacks import EnergyMeter

with EnergyMeter() as meter, meter.phase("train"):
    for _ in range(20):
        meter.step(samples=64)
print(meter.save_report())
"""


def python(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], program: str = ""
) -> str:
    """Run Python in a folder and return its standard output.

    Args:
        words: arguments of the interpreter.
        folder: working directory.
        environment: all environment variables.
        program: path of the interpreter; empty for that of this process.

    Raises:
        AssertionError: if the exit code is not 0; the message is the standard error.
    """
    ended = subprocess.run(
        [program or sys.executable, *words],
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def report_of(folder: Path) -> dict[str, Any]:
    """Return the JSON report of the only run below a folder; its text and page exist, too.

    The page must say that its charts are left out.
    """
    (path,) = folder.rglob("energy_report.json")
    text = path.with_suffix(".txt").read_text(encoding="utf-8")
    assert text.startswith("Energy report")
    page = path.with_suffix(".html").read_text(encoding="utf-8")
    assert "Charts are left out" in page
    assert "pip install" in page[page.index("Charts are left out") :][:200]
    assert "<svg" not in page
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":  # a fork that runs a program, see ``test_without_packages.py``
    exec(sys.argv[1])

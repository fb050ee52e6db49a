"""Faults in real time, where a hanging call hangs: a real training goes on as if we were not there.

All other faults are in ``tests/test_faults.py``, on virtual time.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report import EnergyReport, build

pytest.importorskip("lightning")
SCRIPT = Path(__file__).with_name("faults_script.py")
LONGEST_HOOK_S = 0.005
POWER_W = 300.0
# The end of a training waits six seconds at most for sensors, and writes the report; a busy machine
# may take as long again for the rest. A call that hangs does so for 30 s.
LONGEST_END_S = 18.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the process of a training has said."""

    folder: Path
    answer: dict[str, Any]
    log: str
    process_s: float

    @property
    def report(self) -> EnergyReport:
        """Of the run."""
        return build(self.folder / "energy")


def trained(folder: Path, fault: str) -> Outcome:
    """A training under a fault, in a process of its own."""
    folder.mkdir()
    start_s = time.monotonic()
    command = [sys.executable, "-m", "tests.integrations.lightning.faults_script"]
    done = subprocess.run(
        [*command, str(folder), fault],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    seconds = time.monotonic() - start_s
    return Outcome(folder=folder, answer=answer, log=done.stderr, process_s=seconds)


@pytest.fixture(scope="module")
def without_us(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The same training without our callback."""
    return trained(tmp_path_factory.mktemp("without") / "run", "without_us")


SAYS_IN_REPORT = {"hang": "has not answered for", "lost": "is gone"}
SAYS_IN_LOG = {"disk_full": "cannot be written", "folder_deleted": "no energy report in"}


@pytest.mark.parametrize("fault", ["none", "hang", "lost", "disk_full", "folder_deleted"])
def test_training_goes_on(fault: str, without_us: Outcome, tmp_path: Path) -> None:
    """Weights equal to the bit, no hook over 5 ms, an end in time, and the fault is told."""
    found = trained(tmp_path / "run", fault)

    assert found.answer["weights"] == without_us.answer["weights"]
    assert found.answer["steps"] == without_us.answer["steps"]
    wall_s, cpu_s = (sorted(column) for column in zip(*found.answer["hooks_s"], strict=True))
    assert len(wall_s) > 1200
    # Python's collector may clean up the training's garbage inside any call, of ours too.
    assert cpu_s[int(0.99 * len(cpu_s))] < LONGEST_HOOK_S
    assert cpu_s[-1] < 0.05
    # A busy machine holds up every fourth of them; a card that hangs would do so for seconds.
    assert wall_s[len(wall_s) // 2] < LONGEST_HOOK_S
    assert wall_s[-1] < 0.5
    assert found.answer["fit_s"] < without_us.answer["fit_s"] + LONGEST_END_S
    assert found.process_s < without_us.process_s + LONGEST_END_S + 4.0
    assert SAYS_IN_LOG.get(fault, "") in found.log
    if fault == "folder_deleted":
        return
    report = found.report
    assert any(SAYS_IN_REPORT.get(fault, "") in one.message for one in report.warnings)
    gpu, duration_s = report.energy.gpu, report.run.duration_s
    assert gpu.energy_j is not None
    assert gpu.energy_j == pytest.approx(POWER_W * duration_s * gpu.coverage, rel=0.05)
    # What was read in the last second could not be written down on a full disk.
    least = {"none": 0.95, "disk_full": 0.75}.get(fault, 0.1)
    assert least < gpu.coverage <= (1.0 if least > 0.5 else 0.8)

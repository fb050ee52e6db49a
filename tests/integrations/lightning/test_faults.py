"""Faults in real time, where a hanging call hangs: a real training goes on as if we were not there.

All other faults are in ``tests/test_faults.py``, on virtual time.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report import EnergyReport, build
from tests.integrations.processes import Running, Script, Scripts

pytest.importorskip("lightning")
LONGEST_HOOK_S = 0.005
POWER_W = 300.0
IN_VIRTUAL_TIME_TOO = pytest.mark.slow(
    reason="real time, seven seconds each; virtual time in the contract"
)
FAULTS = (
    "hang",
    *(
        pytest.param(fault, marks=IN_VIRTUAL_TIME_TOO)
        for fault in ("none", "lost", "disk_full", "folder_deleted")
    ),
)
# A call hangs for this time. A hook or an end that takes half of it must have waited for the call,
# because even on a busy machine none takes that long: the end of a training waits six seconds at
# most for sensors, and writes the report.
HANG_S = 120.0
LONGEST_END_S = HANG_S / 2


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The results of a training process.

    Attributes:
        script: with what it has said.
        ended_unix_s: when the process ended.
    """

    script: Script
    ended_unix_s: float

    @property
    def answer(self) -> dict[str, Any]:
        """Return what the process has measured."""
        answer: dict[str, Any] = json.loads((self.script.folder / "answer.json").read_text())
        return answer

    @property
    def report(self) -> EnergyReport:
        """Return the report of the run."""
        return build(self.script.folder / "energy")


def side_by_side(scripts: Scripts, folder: Path, *faults: str) -> list[Outcome]:
    """Run trainings with these faults in parallel, because each takes long."""
    running: dict[str, tuple[Script, Running]] = {}
    for fault in faults:
        (folder / fault).mkdir()
        script = Script(
            module="tests.integrations.lightning.faults_script",
            folder=folder / fault,
            arguments=(fault,),
        )
        running[fault] = script, scripts.start(script)
    outcomes: dict[str, Outcome] = {}
    while running:
        for fault, (script, process) in list(running.items()):
            if (status := process.poll()) is not None:
                assert status == 0, script.output
                outcomes[fault] = Outcome(script=script, ended_unix_s=time.time())
                del running[fault]
        time.sleep(0.01)
    return [outcomes[fault] for fault in faults]


SAYS_IN_REPORT = {"hang": "has not responded for", "lost": "is gone"}
SAYS_IN_LOG = {"disk_full": "cannot be written", "folder_deleted": "no energy report in"}


@pytest.mark.parametrize("fault", FAULTS)
def test_training_goes_on(fault: str, scripts: Scripts, tmp_path: Path) -> None:
    """Weights are bitwise equal, no hook exceeds 5 ms, and the fault is reported in time."""
    found, reference = side_by_side(scripts, tmp_path, fault, "without_us")
    without_us = reference.answer
    assert found.answer["weights"] == without_us["weights"]
    assert found.answer["steps"] == without_us["steps"]
    wall_s, cpu_s = (sorted(column) for column in zip(*found.answer["hooks_s"], strict=True))
    assert len(wall_s) > 1200
    # Python's collector may clean up the training's garbage inside any call, of ours too.
    assert cpu_s[int(0.99 * len(cpu_s))] < LONGEST_HOOK_S
    # A busy machine holds up some of them.
    assert wall_s[len(wall_s) // 2] < LONGEST_HOOK_S
    assert wall_s[-1] < HANG_S / 2
    assert found.answer["fit_s"] < 2 * without_us["fit_s"] + LONGEST_END_S
    assert found.ended_unix_s < found.answer["fit_ended_unix_s"] + LONGEST_END_S
    assert SAYS_IN_LOG.get(fault, "") in found.script.output
    if fault == "folder_deleted":
        return
    report = found.report
    assert any(SAYS_IN_REPORT.get(fault, "") in one.message for one in report.warnings)
    gpu, duration_s = report.energy.gpu, report.run.duration_s
    assert gpu.energy_j is not None
    assert gpu.energy_j == pytest.approx(POWER_W * duration_s * gpu.coverage, rel=0.05)
    # What was read in the last second could not be written down on a full disk.
    least = {"none": 0.95, "disk_full": 0.75}.get(fault, 0.0)
    assert least < gpu.coverage <= (1.0 if least > 0.5 else 0.8)

"""The thread of the power limit imports nothing (see ``tests/accounting``)."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE
from tests.powercap.safety import file_cards

CODE = """
import json
import sys
from pathlib import Path
from energy_callbacks import EnergyMeter
from energy_callbacks.core.records import Device
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.powercap.safety.file_cards import FileActuator

folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
clock = FakeClock()
gpu = Device(key="gpu0", kind="gpu", scope="gpu", name="file", uuid="GPU-1", limit_w=700.0)
source = ScriptedSource(
    clock, power_w=lambda t_s: 400.0, energy_j=lambda t_s: 400.0 * t_s, device=gpu
)
optimizer = PowerLimitOptimizer(**{"actuator": FileActuator(), **settings})
meter = EnergyMeter(sources=[source], clock=clock, report_dir=folder, power_limit=optimizer)
meter.start()
before = set(sys.modules)
with meter.phase("train"):
    for _ in range(600):
        clock.advance(0.1)
        meter.step(samples=8)
print(sorted(set(sys.modules) - before))
meter.stop()
"""


@pytest.mark.parametrize(
    ("settings", "writes"),
    [
        ({"allow_changes": True}, True),
        ({"allow_changes": True, "knob": "clock", "eta": 0.5}, True),
        ({"allow_changes": True, "schedule": "caps.csv"}, True),
        ({"actuator": "nvml"}, False),
    ],
    ids=str,
)
def test_nothing_is_imported_after_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], writes: bool
) -> None:
    """The settings of a GPU are tried and restored, or a proposal is logged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(file_cards.VARIABLE, str(tmp_path))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "state"))
    (tmp_path / "caps.csv").write_text("time,cap_w\n1970-01-01T00:00Z,350\n", encoding="utf-8")
    command = [sys.executable, "-c", CODE, str(tmp_path / "run"), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.splitlines()[0] == "[]", done.stderr
    assert bool(file_cards.card("GPU-1")["log"]) == writes

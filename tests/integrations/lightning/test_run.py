"""A real Lightning training inside ``energy-callbacks run``."""

import subprocess
import sys
from pathlib import Path

import pytest

from energy_callbacks.report import load
from tests.fake_nvml import Constant, Scenario, env, h200
from tests.integrations.processes import SHARED

pytest.importorskip("lightning")
POWER_W = 300.0
# Each of the two processes leaves out the charts.
WITHOUT_CHARTS = (sys.executable, "-m", "tests.integrations.run_script")
TRAINING = (*WITHOUT_CHARTS, "tests.integrations.lightning.fit_and_test_script")


@pytest.mark.slow(reason="a command that imports Lightning; tests/cli has one of the bare meter")
def test_fit_and_test_inside_a_command(tmp_path: Path) -> None:
    """Phases and steps of both calls, and the card once, from the import of torch on."""
    scenario = Scenario(cards=(h200(Constant(POWER_W)),)).write(tmp_path / "scenario")
    sees_all = {key: value for key, value in env(scenario).items() if key != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [*WITHOUT_CHARTS, "energy_callbacks", "run", "--out", str(tmp_path / "run"), "--",
         *TRAINING],
        cwd=tmp_path,
        env=sees_all | SHARED,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = load(tmp_path / "run" / "energy_report.json")
    assert (report.run.framework, report.run.status) == ("lightning", "finished")
    assert (report.throughput.steps, report.throughput.samples) == (200, 800)
    seconds = {phase.name: phase.duration_s for phase in report.phases}
    assert seconds["command"] > 1.0  # imports alone take longer
    assert seconds["train"] > 0.0
    assert seconds["test"] > 0.0
    gpu = report.energy.gpu
    truth_j = POWER_W * report.run.duration_s * gpu.coverage
    assert gpu.energy_j == pytest.approx(truth_j, abs=gpu.error_j)
    assert [device.key for device in report.devices if device.kind == "gpu"] == ["gpu0"]
    assert report.emissions is not None
    assert report.emissions.place == "Germany"

"""kill -9 in the middle of a training: the report is there and at most a second short."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.cli import main
from energy_callbacks.report import build
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.fake_nvml import Constant, Scenario, env, fixtures, h200
from tests.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml

POWER_W = 200.0
TRAINING = """
import sys, time
from energy_callbacks import EnergyConfig, EnergyMeter
with EnergyMeter(config=EnergyConfig(report_dir=sys.argv[1])) as meter:
    with meter.phase("train"):
        print(time.time(), flush=True)
        while True:
            time.sleep(0.01)
            meter.step(samples=8)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """The run folder of a process killed after about four seconds, and how long it lived."""
    folder = tmp_path_factory.mktemp("killed")
    scenario = Scenario(cards=(h200(Constant(POWER_W)),))
    environment = env(scenario.write(folder / "scenario"))
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # lanes hide cards from frameworks
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(folder / "run")],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    began_unix_s = float(process.stdout.readline())
    time.sleep(4.0)  # real time on purpose: a killed process has no virtual clock
    process.send_signal(signal.SIGKILL)
    lived_s = time.time() - began_unix_s
    process.wait()
    process.stdout.close()
    return folder / "run", lived_s


def test_at_most_a_second_is_lost(killed: tuple[Path, float]) -> None:
    """Energy, steps and time reach to within a second of the kill."""
    folder, lived_s = killed
    report = build(folder)
    assert report.run.status == "cut off"
    assert lived_s - 1.0 <= report.run.duration_s <= lived_s + 0.5
    assert report.energy.gpu.energy_j is not None
    assert POWER_W * (lived_s - 1.0) <= report.energy.gpu.energy_j <= POWER_W * (lived_s + 0.5)
    assert report.throughput.samples >= 8 * 50 * (lived_s - 2.5)
    assert sum(p.gpu.energy_j or 0.0 for p in report.phases) == pytest.approx(
        report.energy.gpu.energy_j, rel=1e-9
    )


def test_the_command_says_that_it_was_cut_off(
    killed: tuple[Path, float], capsys: pytest.CaptureFixture[str]
) -> None:
    """energy-callbacks report on the folder writes a report whose first words are the warning."""
    folder, _ = killed
    assert main(["report", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "cut off" in shown
    warnings = json.loads((folder / "energy_report.json").read_text())["warnings"]
    assert "cut" in json.dumps(warnings[:3])


@pytest.mark.parametrize("interval_s", [0.3, 0.5, 0.8, 1.0])
def test_at_no_moment_is_more_than_a_second_unwritten(
    fake_nvml, tmp_path: Path, interval_s: float
) -> None:
    """Whenever it is killed: what the files hold by then reaches to within a second."""
    nvml = fake_nvml(Scenario(cards=(h200(Constant(POWER_W)),)))
    clock = CardClock(nvml.time)
    start_s = clock.monotonic_s()
    config = EnergyConfig(report_dir=tmp_path, devices=[0], sample_interval_s=interval_s)
    meter = EnergyMeter(config=config, clock=clock).start()
    clock.advance(3.0)
    for _ in range(60):
        clock.advance(0.137)
        meter.step(samples=8)
        lived_s = clock.monotonic_s() - start_s
        report = build(tmp_path)
        assert report.run.duration_s >= lived_s - 1.0
        assert report.energy.gpu.energy_j >= POWER_W * (lived_s - 1.0) * 0.995
    meter.stop()

"""A report after ``kill -9`` in the middle of a training lacks at most one second.

``tests.benchmarks.crash`` measures this in real processes and real time.
"""

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.cli import main
from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.report import EnergyReport, build
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.fake_nvml import Constant, Scenario, env, fixtures, h200
from tests.fake_nvml.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml

POWER_W = 200.0
TRAINING = """
import sys, time
from energy_callbacks import EnergyConfig, EnergyMeter
with EnergyMeter(config=EnergyConfig(report_dir=sys.argv[1], devices=[0])) as meter:
    with meter.phase("train"):
        while True:
            time.sleep(0.01)
            meter.step(samples=8)
"""


@dataclass(frozen=True, kw_only=True)
class Killed:
    """A training killed after some seconds.

    Attributes:
        folder: of the run.
        before: the report of its files just before the kill.
        end_unix_s: after the kill.
    """

    folder: Path
    before: EnergyReport
    end_unix_s: float


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A process killed when its files contain 2 s of the card's energy and 50 steps."""
    folder = tmp_path_factory.mktemp("killed")
    scenario = Scenario(cards=(h200(Constant(POWER_W)),))
    environment = env(scenario.write(folder / "scenario"))
    environment.pop("CUDA_VISIBLE_DEVICES", None)  # lanes hide cards from frameworks
    run = folder / "run"
    process = subprocess.Popen([sys.executable, "-c", TRAINING, str(run)], env=environment)
    while (before := so_far(run)) is None:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return Killed(folder=run, before=before, end_unix_s=time.time())


def so_far(run: Path) -> EnergyReport | None:
    """Return the report of its files, once they contain enough."""
    try:
        report = build(run)
    except EnergyCallbacksError:  # there is no journal yet
        return None
    energy_j, steps = report.energy.gpu.energy_j or 0.0, report.throughput.steps
    return report if energy_j > 2.0 * POWER_W and steps > 50 else None


def test_nothing_that_was_written_is_lost(killed: Killed) -> None:
    """The report has the energy, steps and time of the files before the kill, and no more."""
    report, before = build(killed.folder), killed.before
    lived_s = killed.end_unix_s - report.run.started_unix_s
    assert report.run.status == "cut off"
    assert before.run.duration_s <= report.run.duration_s <= lived_s
    energy_j = report.energy.gpu.energy_j
    assert before.energy.gpu.energy_j <= energy_j <= POWER_W * lived_s * 1.005
    assert before.throughput.samples <= report.throughput.samples <= 8 * 100 * lived_s
    assert sum(p.gpu.energy_j or 0.0 for p in report.phases) == pytest.approx(energy_j, rel=1e-9)


def test_the_command_says_that_it_was_cut_off(
    killed: Killed, capsys: pytest.CaptureFixture[str]
) -> None:
    """``energy-callbacks report`` begins with the warning."""
    assert main(["report", str(killed.folder)]) == 0
    shown = capsys.readouterr().out
    assert "cut off" in shown
    warnings = json.loads((killed.folder / "energy_report.json").read_text())["warnings"]
    assert "cut" in json.dumps(warnings[:3])


@pytest.mark.parametrize("interval_s", [0.3, 0.5, 0.8, 1.0])
def test_at_no_moment_is_more_than_a_second_unwritten(
    fake_nvml, tmp_path: Path, interval_s: float
) -> None:
    """At any moment the files are at most one second behind."""
    nvml = fake_nvml(Scenario(cards=(h200(Constant(POWER_W)),)))
    clock = CardClock(nvml.time)
    start_s = clock.monotonic_s()
    config = EnergyConfig(report_dir=tmp_path, devices=[0], sample_interval_s=interval_s)
    meter = EnergyMeter(config=config, clock=clock).start()
    clock.advance(3.0)
    for steps in range(1, 61):
        clock.advance(0.137)
        meter.step(samples=8)
        lived_s = clock.monotonic_s() - start_s
        report = build(tmp_path)
        assert report.run.duration_s >= lived_s - 1.0
        assert report.energy.gpu.energy_j >= POWER_W * (lived_s - 1.0) * 0.995
        assert (report.throughput.samples or 0) >= 8 * (steps - 1.0 / 0.137)
    meter.stop()

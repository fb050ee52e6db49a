"""Matrices of real processes: signals, kills, locks, and measured cards."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from energy_callbacks.matrix.attempts import AlreadyRunning, Results
from energy_callbacks.report import load
from tests.core.waiting import until
from tests.fake_nvml import Constant, FakeNvml, Scenario, card_uuid, h200
from tests.matrix.lab import Lab
from tests.matrix.launcher import Launcher

NAMED = "{a}-{b}-{repeat}"
# Ends a second after the first signal, by when a second signal would have arrived.
PATIENT = """
import pathlib, signal, sys, time
def hear(number, _): open("heard", "a").write(f"{number}\\n")
signal.signal(NUMBER, hear)
open("ready", "a").write(sys.argv[1])
while not pathlib.Path("heard").exists():
    time.sleep(0.05)
time.sleep(1.0)
sys.exit(9)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_and_loses_nothing(
    lab: Lab, launcher: Launcher, number: signal.Signals
) -> None:
    """The command receives it once; the next call runs what it ended, which then counts once."""
    text = PATIENT.replace("NUMBER", str(int(number)))
    (lab.folder / "job.py").write_text(text, encoding="utf-8")
    lab.write()
    process = lab.start()
    until((lab.folder / "ready").exists)
    process.send_signal(number)
    process.communicate(timeout=600.0)
    assert process.returncode == 128 + number
    assert (lab.folder / "heard").read_text().split() == [str(int(number))]
    assert (lab.folder / "ready").read_text() == "x-1-1"
    assert lab.run().code == 0
    assert lab.log == ["x-1-1", "x-2-1"]
    assert [one["finished"] for one in lab.table()["configurations"]] == [1, 1]


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    """The lock of a running process refuses others; a killed process releases it."""
    results = Results(folder=tmp_path, working_folder=tmp_path)
    code = (
        "import sys, time; from pathlib import Path; "
        "from energy_callbacks.matrix.attempts import Results; p = Path(sys.argv[1])\n"
        "with Results(folder=p, working_folder=p).locked(): print(flush=True); time.sleep(600)"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(
            AlreadyRunning, match=f"in use by another matrix .process {holder.pid} on"
        ):
            results.locked().__enter__()
        holder.kill()
    with results.locked():
        pass


def test_a_job_that_has_outlived_its_matrix(lab: Lab, launcher: Launcher) -> None:
    """After ``kill -9`` of the matrix alone its job is still running, and is not started again."""
    lab.write(command=[sys.executable, "job.py", NAMED, "600", "0"])
    process = lab.start()
    until(lambda: lab.begun)
    process.kill()
    process.wait()
    ended = lab.run()
    assert ended.code == 1
    assert "x-1 #1 of an earlier call is still running" in ended.err
    assert lab.begun == ["x-1-1"]
    measuring = [one for one in psutil.process_iter() if str(lab.results) in " ".join(words(one))]
    for one in measuring:  # the command itself continues, as after any kill -9 of ``run``
        one.kill()
    assert "is still running" in lab.run().err
    os.killpg(process.pid, signal.SIGKILL)
    until(lambda: "is still running" not in lab.run().err)
    assert lab.log == ["x-1-1", "x-2-1"]


def words(process: psutil.Process) -> list[str]:
    """Return its command line; empty if it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_each_card_is_measured_with_its_job(
    tmp_path: Path, fake_nvml: Callable[..., FakeNvml]
) -> None:
    """On two cards of different power, energies are those of the cards, tags those of the jobs."""
    scenario = Scenario(cards=(h200(Constant(200.0)), h200(Constant(400.0))))
    lab = Lab(tmp_path, fake_nvml(scenario, virtual=False).env())
    lab.environment.pop("CUDA_VISIBLE_DEVICES", None)
    lab.write(command=[sys.executable, "job.py", NAMED, "3", "0"])
    ended = lab.run()
    assert ended.code == 0, ended.err
    assert {mask for _, _, mask in lab.spans()} == {card_uuid(0), card_uuid(1)}
    found = lab.table()
    assert found["scope"] == "gpu"
    for one in found["configurations"]:
        report = load(Path(one["folders"][0]) / "energy_report.json")
        assert report.run.tags == {**one["parameters"], "repeat": "1"}
        [card] = [device for device in report.devices if device.kind == "gpu"]
        power_w = 200.0 if card.uuid == card_uuid(0) else 400.0
        assert one["energies_j"] == pytest.approx([power_w * report.run.duration_s], rel=0.1)

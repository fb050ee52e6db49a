"""A server that is killed: the GPU has its settings again, and no process is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from energy_callbacks.inference.planner.plan import Margin, Plan
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.profile import cleaner
from energy_callbacks.inference.profile.sweeps import equal
from energy_callbacks.inference.records import Interval, Prediction
from energy_callbacks.inference.traces import read
from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE, all_files
from energy_callbacks.powercap.settings import Setting
from tests.core.waiting import until
from tests.fake_nvml import card_uuid
from tests.inference.profile import conftest
from tests.inference.profile.conftest import ROOT, STEADY, Machine
from tests.powercap.safety import conftest as safety
from tests.powercap.safety.file_cards import AdminNvmlActuator

fake_nvml, machine = conftest.fake_nvml, conftest.machine


@pytest.fixture
def administrator(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> AdminNvmlActuator:
    """Provide what reads the settings of the card, whose limit is 650 W."""
    for name, value in machine.nvml.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(FOLDER_VARIABLE, str(machine.folder / "state"))
    one = AdminNvmlActuator()
    one.write(card_uuid(0), Setting(knob="limit", value=650.0))
    return one


def plan(path: Path) -> Path:
    """Write a plan of two tenants."""
    each = Interval(1.0, 0.9, 1.1)
    found = Plan(
        problem=Problem(models=(STEADY,), shares_pct=(50,), batches=(1,)),
        configuration=equal(STEADY, 50.0, 1, 2),
        prediction=Prediction(throughput_per_s=each, power_w=each),
        method="enumeration",
        value=1.0,
        bound=1.0,
        bound_reason="",
        margin=Margin(sigma_w=0.0, sensor_error_w=0.0),
    )
    found.write(path)
    return path


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal(
    number: signal.Signals, machine: Machine, administrator: AdminNvmlActuator
) -> None:
    """The limit found is back within two seconds; then there is no daemon and no tenant."""
    uuid = card_uuid(0)
    words = ["serve", "--gpu", "0", "--algorithm", "powercap", "--cap", "400", "--yes"]
    words += ["--seconds", "600"]
    words += ["--plan", str(plan(machine.folder / "plan.json")), "--out", str(machine.out)]
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.inference.serve.server_job", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    machine.jobs.append(job)
    assert job.stderr is not None
    while "requests/s" not in (line := job.stderr.readline()):
        assert line, "the server has ended"
    assert administrator.read(uuid, "limit") == 400.0
    processes = "\n".join(machine.left())
    assert processes.count("tenant_main") == 2
    assert processes.count(cleaner.CONTROL) == 2  # the daemon and its server
    pids = safety.family(job.pid)
    os.killpg(job.pid, number)
    slept_s = safety.slept_until(lambda: administrator.read(uuid, "limit") == 650.0, *pids)
    assert slept_s < safety.RESTORED_S
    until(lambda: not machine.left() and not list(machine.folder.glob("ec-*")))
    job.communicate(timeout=60.0)
    assert job.returncode == (130 if number == signal.SIGINT else -number)
    assert not list(all_files(machine.folder / "state"))
    assert all(row.phase == "online" for row in read(machine.out))

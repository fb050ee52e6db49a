"""A profile that ends in any way leaves no MPS daemon, no process and no lost row."""

import os
import re
import signal
import subprocess

import psutil
import pytest

from energy_callbacks.inference.profile import cleaner
from energy_callbacks.inference.profile.run_folder import RunFolder
from energy_callbacks.inference.traces import read
from tests.core.waiting import until
from tests.inference.profile.conftest import NO_BATCH, SHORT, Machine


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal(number: signal.Signals, machine: Machine) -> None:
    """Rows that were measured are in the file, and the next profile measures only the others."""
    job = machine.start(*SHORT, "--iterations", "50")
    assert job.stderr is not None
    seen = [job.stderr.readline() for _ in range(2)]
    assert [line[:6] for line in seen] == ["[1/50]", "[2/50]"]
    until(lambda: "\n".join(machine.left()).count("tenant_main") == 1)
    assert "\n".join(machine.left()).count(cleaner.CONTROL) == 2  # the daemon and its server
    os.killpg(job.pid, number)  # as Ctrl-C of a terminal does
    rest = job.communicate(timeout=60.0)[1]
    assert job.returncode == (130 if number == signal.SIGINT else -number)
    until(lambda: not machine.left() and not list(machine.folder.glob("ec-*")))
    shown = len(seen) + len(re.findall(r"^\[\d+/50\]", rest, re.MULTILINE))
    rows = read(machine.out)
    assert shown <= len(rows) <= shown + 1  # a row is written before it is shown
    assert all(row.status == "ok" or NO_BATCH in row.note for row in rows)
    if number == signal.SIGKILL:
        count = sum(row.status == "ok" for row in rows) + 2
        again = machine.start(*SHORT, "--iterations", str(count), "--resume")
        log = again.communicate(timeout=60.0)[1]
        assert again.returncode == all(row.status != "ok" for row in read(machine.out)), log
        assert [row.run_id == rows[0].run_id for row in read(machine.out)] == [
            *([True] * len(rows)),
            *([False] * 2),
        ]


def test_a_frozen_tenant(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant that does not react is killed, and so is a daemon that does not quit."""
    monkeypatch.setattr(cleaner, "_TENANTS_S", 0.2)
    monkeypatch.setattr(cleaner, "_END_S", 0.5)
    with RunFolder() as folder:
        folder.start_mps({})
        (folder.path / "pipe" / "control").unlink()
        stuck = subprocess.Popen(
            ["/bin/sh", "-c", "trap '' TERM; sleep 600 & wait"], env=folder.environment("tenant")
        )
        until(lambda: len(machine.left()) == 4)
        cleaner.clean(folder.path)
        assert stuck.wait(60.0) == -signal.SIGKILL
        until(lambda: not machine.left())


def test_the_cleaner_is_killed(machine: Machine) -> None:
    """The profile itself then ends everything."""
    with RunFolder() as folder:
        folder.start_mps({})
        folder._cleaner.kill()
    assert machine.left() == []


def test_a_long_folder_for_temporary_files(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets of MPS, whose paths have at most 107 bytes, are then in /tmp."""
    long = machine.folder / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr("tempfile.tempdir", None)
    with RunFolder() as folder:
        assert len(f"{folder.path}/pipe/control_privileged") <= 107


def test_a_share_of_the_user_does_not_limit_the_daemon(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A share in the environment would be an upper limit of all tenants."""
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    with RunFolder() as folder:
        folder.start_mps({})
        pid = (folder.path / "pipe" / "nvidia-cuda-mps-control.pid").read_text()
        environment = psutil.Process(int(pid)).environ()
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "100"


def test_other_profiles_go_on(machine: Machine) -> None:
    """The end of one profile does not end the daemon of another one."""
    with RunFolder() as one:
        one.start_mps({})
        with RunFolder() as other:
            other.start_mps({})
            until(lambda: len(machine.left()) == 4)
        assert len(machine.left()) == 2

"""Jobs that end in any way, in processes of their own: the value found is back, or is left."""

import os
import signal
from collections.abc import Callable

import pytest

from energy_callbacks.core.errors import CardInUse
from energy_callbacks.powercap.safety import gpu_lock
from energy_callbacks.powercap.safety.state_file import all_files
from energy_callbacks.powercap.settings import Setting
from tests.powercap.safety.conftest import EVERY_KIND, RESTORED_S, Job, Machine, slept_until, state

Start = Callable[..., Job]
FOUND = (700.0, 700.0)


@EVERY_KIND
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal(number: signal.Signals, start: Start, machine: Machine) -> None:
    """The watchdog restores all cards within two seconds, and the state files are gone."""
    machine.write(1, 600.0)
    job = start(count=2)
    assert machine.limits == (500.0, 500.0)
    job.kill(number)
    assert slept_until(lambda: machine.limits == (700.0, 600.0), job.watchdog) < RESTORED_S
    assert "limit 700 W restored, after limit 500 W" in job.end()
    assert not list(all_files(machine.folder))


@EVERY_KIND
@pytest.mark.parametrize(("ending", "code"), [("exits", 0), ("raises", 1)])
def test_the_end_of_the_interpreter(ending: str, code: int, start: Start, machine: Machine) -> None:
    """The value found is back, by the context or by the watchdog."""
    job = start(ending)
    job.end()
    assert job.process.returncode == code
    assert slept_until(lambda: machine.limits == FOUND, job.watchdog) < RESTORED_S
    slept_until(lambda: not list(all_files(machine.folder)))


def test_a_forked_worker_outlives_the_job(start: Start, machine: Machine) -> None:
    """The worker holds neither the watchdog's pipe nor the lock."""
    job = start("forks")
    job.kill()
    assert slept_until(lambda: machine.limits == FOUND, job.watchdog) < RESTORED_S
    slept_until(lambda: state(job.watchdog) == "Z")
    assert start().has_changed


def test_the_watchdog_is_in_a_session_of_its_own(start: Start, machine: Machine) -> None:
    """Signals to the job's group do not reach it, and SIGTERM to the watchdog does not end it."""
    job = start()
    assert os.getsid(job.watchdog) == job.watchdog
    os.kill(job.watchdog, signal.SIGTERM)
    job.kill()
    assert slept_until(lambda: machine.limits == FOUND, job.watchdog) < RESTORED_S


@EVERY_KIND
def test_the_watchdog_is_killed_too(start: Start, machine: Machine) -> None:
    """The next job on the card restores the value found before it changes anything."""
    job = start()
    job.kill_watchdog()
    job.kill()
    assert machine.limits == (500.0, 700.0)
    with machine.cards():
        assert machine.limits == FOUND


@EVERY_KIND
def test_two_jobs_on_one_card(
    start: Start, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second job gets an error that names the first, and changes nothing."""
    first = start()
    cards = machine.cards()
    with monkeypatch.context() as patch:
        patch.setattr(gpu_lock, "_PATIENCE_S", 0.1)
        with pytest.raises(CardInUse, match=f"process {first.process.pid} is changing"):
            cards.set(Setting(knob="limit", value=300.0))
    assert machine.limits == (500.0, 700.0)
    first.end()
    with cards:
        cards.set(Setting(knob="limit", value=300.0))
        assert machine.limits == (300.0, 300.0)
    assert machine.limits == FOUND


def test_the_lock_is_held_until_the_watchdog_has_ended(
    start: Start, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job begins between the end of a killed job and the restoring of its settings."""
    job = start()
    os.kill(job.watchdog, signal.SIGSTOP)
    job.kill()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(gpu_lock, "_PATIENCE_S", 0.1)
            with pytest.raises(CardInUse, match="another job is changing"):
                machine.cards().set(Setting(knob="limit", value=300.0))
    finally:
        os.kill(job.watchdog, signal.SIGCONT)
    with machine.cards():
        assert machine.limits == FOUND


@EVERY_KIND
def test_a_foreign_change(start: Start, machine: Machine) -> None:
    """The watchdog leaves a value that another program has set, and says so."""
    job = start()
    machine.write(0, 450.0)
    job.kill()
    assert "limit 450 W was set by another program after limit 500 W" in job.end()
    assert machine.limits == (450.0, 700.0)
    assert not list(all_files(machine.folder))

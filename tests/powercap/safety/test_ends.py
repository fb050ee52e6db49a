"""Jobs that end in any way, in processes of their own: the value found is back, or is left."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks.core.errors import CardInUse
from energy_callbacks.powercap.safety import gpu_lock
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.safety.state_file import StateFile
from energy_callbacks.powercap.settings import Setting
from tests.powercap.safety.conftest import RESTORED_S, Job, until
from tests.powercap.safety.file_cards import FileActuator, card, change

Start = Callable[..., Job]


def limit(uuid: str = "GPU-1") -> float:
    """Return the present limit of a card, W."""
    return float(card(uuid)["limit"])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal(number: signal.Signals, start: Start, folder: Path) -> None:
    """The watchdog restores all cards within two seconds, and the state files are gone."""
    change("GPU-2", limit=600.0)
    job = start("exits", 500.0, "GPU-1", "GPU-2")
    assert (limit(), limit("GPU-2")) == (500.0, 500.0)
    job.process.send_signal(number)
    job.process.wait()
    assert until(lambda: (limit(), limit("GPU-2")) == (700.0, 600.0)) < RESTORED_S
    assert "limit 700 W restored, after limit 500 W" in job.end()
    assert not list(folder.glob("*.json"))


@pytest.mark.parametrize(("ending", "code"), [("exits", 0), ("raises", 1)])
def test_the_end_of_the_interpreter(ending: str, code: int, start: Start, folder: Path) -> None:
    """The value found is back, by the context or by the watchdog, and is written once."""
    job = start(ending)
    job.end()
    assert job.process.returncode == code
    assert until(lambda: limit() == 700.0) < RESTORED_S
    assert card("GPU-1")["log"] == [["limit", 500.0], ["limit", 700.0]]
    assert not list(folder.glob("*.json"))


def test_a_forked_worker_outlives_the_job(start: Start) -> None:
    """The worker holds neither the watchdog's pipe nor the lock."""
    job = start("forks")
    job.process.kill()
    job.process.wait()
    assert until(lambda: limit() == 700.0) < RESTORED_S
    assert start().has_changed


def test_the_watchdog_is_in_a_session_of_its_own(start: Start) -> None:
    """Signals to the job's group do not reach it, and SIGTERM to the watchdog does not end it."""
    job = start()
    assert os.getsid(job.watchdog) == job.watchdog
    os.kill(job.watchdog, signal.SIGTERM)
    job.process.kill()
    job.process.wait()
    assert until(lambda: limit() == 700.0) < RESTORED_S


def test_the_watchdog_is_killed_too(start: Start, folder: Path) -> None:
    """The next job on the card restores the value found before it changes anything."""
    job = start()
    job.kill_watchdog()
    job.process.kill()
    job.process.wait()
    assert limit() == 500.0
    with ChangedCards(FileActuator(), ["GPU-1"], allow_changes=True, folder=folder):
        assert limit() == 700.0


def test_two_jobs_on_one_card(start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second job gets an error that names the first, and changes nothing."""
    monkeypatch.setattr(gpu_lock, "_PATIENCE_S", 0.1)
    first = start()
    cards = ChangedCards(FileActuator(), ["GPU-1", "GPU-2"], allow_changes=True, folder=folder)
    with pytest.raises(CardInUse, match=f"process {first.process.pid} is changing"):
        cards.set(Setting(knob="limit", value=300.0))
    assert (limit(), card("GPU-2")["log"]) == (500.0, [])
    first.end()
    cards.set(Setting(knob="limit", value=300.0))
    cards.restore()
    assert limit() == 700.0


def test_a_foreign_change_after_the_end(start: Start, folder: Path) -> None:
    """The watchdog leaves a value that another program has set, and says so."""
    job = start()
    change("GPU-1", limit=450.0)
    job.process.kill()
    assert "limit 450 W was set by another program after limit 500 W" in job.end()
    assert limit() == 450.0
    assert StateFile(folder, "GPU-1").read() is None

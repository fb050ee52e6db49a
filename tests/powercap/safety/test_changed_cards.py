"""Changes of simulated cards in this process."""

import os
from pathlib import Path

import pytest

from energy_callbacks.core.errors import (
    ActuatorError,
    ConsentError,
    ForeignChange,
    PowerCapError,
)
from energy_callbacks.powercap.safety import state_file
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.safety.heal import restore_card
from energy_callbacks.powercap.safety.state_file import StateFile, all_files
from energy_callbacks.powercap.settings import Setting
from tests.powercap.safety.file_cards import FileActuator, card, change

LOW = Setting(knob="limit", value=400.0)
LOWER = Setting(knob="limit", value=300.0)


def cards(folder: Path, *uuids: str, keep: bool = False) -> ChangedCards:
    """Return cards that may be changed; not locked yet."""
    names = uuids or ("GPU-1",)
    return ChangedCards(FileActuator(), names, allow_changes=True, folder=folder, keep=keep)


def test_without_consent(folder: Path) -> None:
    """Nothing is written, not even a file."""
    with pytest.raises(ConsentError, match="allow_changes=True"):
        ChangedCards(FileActuator(), ["GPU-1"], allow_changes=False, folder=folder)
    assert not folder.exists()


def test_each_card_gets_its_own_value_back(folder: Path) -> None:
    """The values found differ; all knobs are restored."""
    change("GPU-2", limit=650.0)
    with cards(folder, "GPU-1", "GPU-2") as changed:
        changed.set(LOW)
        changed.set(LOWER)
        changed.set(Setting(knob="clock", value=1200.0))
        assert (card("GPU-1")["limit"], card("GPU-2")["clock"]) == (300.0, 1200.0)
        done = changed.restore()
    assert [(one.setting.value, one.outcome) for one in done] == [
        (700.0, "restored"),
        (None, "restored"),
        (650.0, "restored"),
        (None, "restored"),
    ]
    assert [(card(uuid)["limit"], card(uuid)["clock"]) for uuid in ("GPU-1", "GPU-2")] == [
        (700.0, None),
        (650.0, None),
    ]


def test_a_value_outside_the_range(folder: Path) -> None:
    """It is refused before anything is written, on all cards."""
    with cards(folder, "GPU-1", "GPU-2") as changed:
        with pytest.raises(ValueError, match="must be between 200 and 700 W, got 900"):
            changed.set(Setting(knob="limit", value=900.0))
        assert not list(all_files(folder))
    assert card("GPU-1")["log"] == card("GPU-2")["log"] == []


def test_a_card_that_cannot_be_restored(folder: Path) -> None:
    """Nothing is written if the watchdog could not restore the value."""
    change("GPU-1", fault="refuses")
    with (
        cards(folder) as changed,
        pytest.raises(ActuatorError, match="ready; GPU-1: files; root"),
    ):
        changed.set(LOW)
    assert card("GPU-1")["limit"] == 700.0
    assert not list(all_files(folder))


def test_a_foreign_change(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It stops further changes of all cards, and is left as it is."""
    with cards(folder, "GPU-1", "GPU-2") as changed:
        changed.set(LOW)
        change("GPU-2", limit=500.0)
        with pytest.raises(ForeignChange, match="limit 300 W was not written"):
            changed.set(LOWER)
    assert (card("GPU-1")["limit"], card("GPU-2")["limit"]) == (700.0, 500.0)
    assert "and is left as it is; before, the GPU had limit 700 W" in caplog.text
    assert not list(all_files(folder))


def test_a_driver_that_rounds(folder: Path) -> None:
    """The rounded value is not a foreign change."""
    change("GPU-1", fault="rounds")
    with cards(folder) as changed:
        changed.set(Setting(knob="limit", value=440.0))
        assert card("GPU-1")["limit"] == 400.0
        changed.set(LOWER)
    assert card("GPU-1")["limit"] == 700.0


def test_a_driver_that_hangs(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The state file stays, and the next job restores the value."""
    with cards(folder) as changed:
        changed.set(LOW)
        change("GPU-1", fault="hangs")
    assert "limit 700 W could not be restored" in caplog.text
    assert "energy-callbacks powercap restore" in caplog.text
    assert card("GPU-1")["limit"] == 400.0
    change("GPU-1", fault="")
    with cards(folder):
        assert card("GPU-1")["limit"] == 700.0
    assert "an earlier job left the GPU changed" in caplog.text


def test_a_driver_that_refuses_changes_later(folder: Path) -> None:
    """The last value that was written still counts as ours, so that it is restored."""
    with cards(folder) as changed:
        changed.set(LOW)
        change("GPU-1", fault="refuses")
        for value in (300.0, 250.0):
            with pytest.raises(ActuatorError, match="no permission"):
                changed.set(Setting(knob="limit", value=value))
        assert card("GPU-1")["limit"] == 400.0
        change("GPU-1", fault="")
    assert card("GPU-1")["limit"] == 700.0


def test_one_damaged_state_file_of_two(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The other GPU is restored."""
    with cards(folder, "GPU-1", "GPU-2") as changed:
        changed.set(LOW)
        StateFile(folder, "GPU-1").path.write_text("{")
    assert "GPU-1.json cannot be read" in caplog.text
    assert (card("GPU-1")["limit"], card("GPU-2")["limit"]) == (400.0, 700.0)


def test_a_restart_of_the_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, because the driver has reset the card; the file is removed."""
    changed = cards(folder)
    changed.set(LOW)
    monkeypatch.setattr(state_file, "_BOOT_ID", folder / "GPU-1.lock")
    [done] = restore_card(StateFile(folder, "GPU-1"))
    assert done.outcome == "restarted"
    assert "the machine has been restarted" in done.message
    assert card("GPU-1")["limit"] == 400.0
    assert not list(all_files(folder))
    changed.close()


def test_a_killed_watchdog_is_replaced(folder: Path) -> None:
    """No further change is made without a watchdog."""
    with cards(folder) as changed:
        changed.set(LOW)
        first = changed._watchdog
        assert first is not None
        first._process.kill()
        first._process.wait()
        changed.set(LOWER)
        assert changed._watchdog is not None
        assert changed._watchdog.pid != first.pid
        assert changed._watchdog.is_running


def test_a_forked_copy(folder: Path) -> None:
    """It can neither change nor restore the cards, nor end the watchdog."""
    with cards(folder) as changed:
        changed.set(LOW)
        child = os.fork()
        if not child:
            try:
                changed.set(LOWER)
            except PowerCapError:
                changed.restore()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert card("GPU-1")["limit"] == 400.0
        assert changed._watchdog is not None
        assert changed._watchdog.is_running


def test_kept_settings(folder: Path) -> None:
    """They outlive the process; a job between has them as the value found."""
    for value in (500.0, 450.0):
        with cards(folder, keep=True) as kept:
            kept.set(Setting(knob="limit", value=value))
            assert kept._watchdog is None
    with cards(folder) as changed:
        changed.set(LOW)
    assert card("GPU-1")["limit"] == 450.0
    [file] = all_files(folder)
    assert file.kept
    [done] = restore_card(file)
    assert (done.outcome, card("GPU-1")["limit"]) == ("restored", 700.0)


def test_a_damaged_state_file(folder: Path) -> None:
    """Nothing is written; the error says what to do."""
    with cards(folder) as changed:
        changed.set(LOW)
    StateFile(folder, "GPU-1").path.write_text("{}")
    with pytest.raises(PowerCapError, match="then remove the file"), cards(folder):
        pass
    StateFile(folder, "GPU-1").remove()


def test_a_folder_of_others(folder: Path) -> None:
    """Files that another user can change are neither read nor written."""
    with cards(folder, keep=True) as kept:
        kept.set(LOW)
    folder.chmod(0o777)
    [file] = all_files(folder)
    with pytest.raises(PowerCapError, match="only you can use"):
        restore_card(file)
    with pytest.raises(PowerCapError, match="only you can use"), cards(folder) as changed:
        changed.set(LOWER)
    assert card("GPU-1")["limit"] == 400.0


def test_a_linked_lock(folder: Path, tmp_path: Path) -> None:
    """A symbolic link in the place of the lock file is not followed."""
    folder.mkdir(0o700)
    (folder / "GPU-1.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PowerCapError, match="lock file"), cards(folder):
        pass
    assert not (tmp_path / "elsewhere").exists()

"""``energy-callbacks powercap`` on simulated cards."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.cli import main
from energy_callbacks.powercap.actuators import choose
from energy_callbacks.powercap.safety import gpu_lock
from energy_callbacks.powercap.safety.gpu_lock import GpuLocks
from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE, all_files
from energy_callbacks.powercap.settings import Setting
from tests.fake_nvml import Constant, FakeNvml, Mig, Scenario, card_uuid, fixtures, h200
from tests.powercap.safety.file_cards import AdminNvmlActuator

fake_nvml = fixtures.fake_nvml
Play = Callable[..., FakeNvml]
SET = ["powercap", "set", "--yes"]


@pytest.fixture(autouse=True)
def _administrator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setitem(choose._MADE_BY, "nvml", AdminNvmlActuator)


@pytest.fixture
def nvml(fake_nvml: Play) -> FakeNvml:
    """Provide two cards with a limit of 700 W."""
    return fake_nvml(Scenario(cards=(h200(Constant(300.0)), h200(Constant(300.0)))))


def limits() -> list[float | None]:
    """Return the present limits, W."""
    return [AdminNvmlActuator().read(card_uuid(place), "limit") for place in (0, 1)]


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the JSON that was printed."""
    return json.loads(capsys.readouterr().out)


def test_status(nvml: FakeNvml, capsys: pytest.CaptureFixture[str]) -> None:
    """It tells constraints, present settings, clocks and what each actuator needs."""
    assert main(["powercap", "status", "--json"]) == 0
    first, _ = printed(capsys)["gpus"]
    limit, clock = first["settings"]["limit"], first["settings"]["clock"]
    assert (limit["lowest"], limit["present"], limit["highest"]) == (200.0, 700.0, 700.0)
    assert clock["steps"][0] == clock["lowest"]
    assert clock["steps"][-1] == clock["highest"]
    names = [one["actuator"] for one in first["actuators"]]
    assert names == ["nvml", "zeusd", "nvidia-smi", "hwmon"]
    assert all(one["needs"] for one in first["actuators"])
    assert first["changes"] == []
    assert main(["powercap", "status"]) == 0
    table = capsys.readouterr().out
    assert "0,1  zeusd" in table
    assert nvml.setter_calls() == []


def test_status_of_a_divided_card(fake_nvml: Play, capsys: pytest.CaptureFixture[str]) -> None:
    """It says why nothing can be changed, and ``set`` does not change it."""
    instance = Mig(uuid="MIG-0", gpu_instance=1)
    nvml = fake_nvml(Scenario(cards=(h200(Constant(300.0), mig_instances=(instance,)),)))
    assert main(["powercap", "status", "--devices", "all", "--json"]) == 0
    [card] = printed(capsys)["gpus"]
    assert card["settings"] == {}
    assert "MIG is enabled" in card["unsupported"]["limit"]
    assert main([*SET, "--limit-w", "500", "--devices", "all"]) == 1
    assert "MIG is enabled" in capsys.readouterr().err
    assert nvml.setter_calls() == []


def test_set_and_restore(nvml: FakeNvml, capsys: pytest.CaptureFixture[str]) -> None:
    """A setting stays after the command; the value found before the first change is restored."""
    assert main([*SET, "--limit-w", "500"]) == 0
    assert "stay until energy-callbacks powercap restore" in capsys.readouterr().err
    assert main([*SET, "--limit-w", "400", "--clock-mhz", "1200", "--devices", "0"]) == 0
    assert limits() == [400.0, 500.0]
    capsys.readouterr()
    assert main(["powercap", "status"]) == 0
    told = capsys.readouterr().out
    assert f"{card_uuid(0)}: limit 400 W was set by powercap set" in told
    assert "restore restores limit 700 W" in told
    assert main(["powercap", "restore", "--json"]) == 0
    assert {one["outcome"] for one in printed(capsys)} == {"restored"}
    assert limits() == [700.0, 700.0]
    assert nvml.setter_calls()[-1].card == 1
    assert main(["powercap", "restore"]) == 0
    assert capsys.readouterr().err == "nothing to restore\n"


@pytest.mark.parametrize("words", [["--json", "restore", "-q"], ["restore", "--json", "--quiet"]])
def test_common_options_may_be_before_the_action(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that was given before the action is not replaced by its default."""
    assert main(["powercap", *words]) == 0
    assert printed(capsys) == []


def test_without_consent(nvml: FakeNvml, capsys: pytest.CaptureFixture[str]) -> None:
    """No setter is called."""
    for arguments in (["set", "--limit-w", "500"], ["sweep", "--limits", "400", "--", "true"]):
        assert main(["powercap", *arguments]) == 2
        assert "add --yes to consent" in capsys.readouterr().err
    assert nvml.setter_calls() == []


def test_a_value_that_the_card_does_not_accept(
    nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is an error before anything is written."""
    assert main([*SET, "--limit-w", "100"]) == 2
    assert "limit must be between 200 and 700 W, got 100" in capsys.readouterr().err
    assert nvml.setter_calls() == []
    assert not list(all_files())


def test_restore_while_a_job_runs(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card of the job is left to the job; the others are restored."""
    assert main([*SET, "--limit-w", "500"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(gpu_lock, "_PATIENCE_S", 0.0)
    locks = GpuLocks([card_uuid(0)], None)
    assert main(["powercap", "restore"]) == 1
    assert f"{card_uuid(0)}: another job is changing" in capsys.readouterr().err
    assert limits() == [500.0, 700.0]
    locks.close()


def test_restore_leaves_a_foreign_change(
    nvml: FakeNvml, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is reported, and the exit code is 1."""
    assert main([*SET, "--limit-w", "500", "--devices", "0"]) == 0
    assert main([*SET, "--limit-w", "450", "--devices", "1"]) == 0
    capsys.readouterr()
    AdminNvmlActuator().write(card_uuid(0), Setting(knob="limit", value=300.0))
    assert main(["powercap", "restore"]) == 1
    assert "limit 300 W was set by another program" in capsys.readouterr().out
    assert limits() == [300.0, 700.0]

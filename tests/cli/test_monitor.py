"""Tests of ``energy-callbacks monitor`` on cards of known power, in virtual time."""

import json
import os
import re
from types import SimpleNamespace

import pytest

from energy_callbacks.cli import main, monitor
from tests.fake_nvml import Constant, Process, Scenario, fixtures, h200
from tests.fake_nvml.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml
GIB = 2**30


@pytest.fixture
def card(fake_nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide a card of 300 W with three processes: this one, its parent, and one outside."""
    processes = (
        Process(pid=os.getpid(), used_bytes=3 * GIB),
        Process(pid=os.getppid(), used_bytes=5 * GIB, kind="graphics"),
        Process(pid=2**22 + 5, used_bytes=GIB, kind="mps"),
    )
    nvml = fake_nvml(Scenario(cards=(h200(Constant(300.0), processes=processes),)))
    clock = CardClock(nvml.time)
    monkeypatch.setattr(monitor, "SystemClock", lambda: clock)
    monkeypatch.setattr(monitor, "time", SimpleNamespace(sleep=clock.advance, time=clock.unix_s))


def test_lines_for_machines(card: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Every line is a JSON object with power, energy since the start, and processes."""
    assert main(["monitor", "--json", "--interval", "1", "--seconds", "3"]) == 0
    looks = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(looks) == 3
    assert [look["elapsed_s"] for look in looks] == pytest.approx([1.0, 2.0, 3.0], abs=0.05)
    gpus = [next(d for d in look["devices"] if d["scope"] == "gpu") for look in looks]
    gpu = gpus[-1]
    assert gpu["power_w"] == pytest.approx(300.0, rel=0.03)
    assert gpus[0]["energy_j"] < gpus[1]["energy_j"] < gpu["energy_j"]
    # Up to one sampling period of 0.8 s has not been read yet.
    assert 300.0 * (3.0 - 0.9) < gpu["energy_j"] < 300.0 * 3.0 * 1.03
    assert [one["pid"] for one in gpu["processes"]] == [os.getppid(), os.getpid(), 2**22 + 5]
    assert [one["memory_bytes"] for one in gpu["processes"]] == [5 * GIB, 3 * GIB, GIB]
    assert gpu["processes"][1]["name"]
    assert gpu["processes"][2]["name"] is None
    assert gpu["temperature_c"] == pytest.approx(45.0)
    assert gpu["memory_utilisation"] == pytest.approx(0.2)
    assert gpu["memory_clock_hz"] == 3.201e9


def test_a_table_of_80_columns(
    card: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal the table is plain text, and no cell is cut off."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["monitor", "--seconds", "2.5"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    [*_, last] = [line for line in shown.splitlines() if "gpu0" in line]
    assert re.search(r" (29[5-9]|30[0-5]) W ", last)
    assert "unknown" in shown
    assert "5.00 GiB" in shown


def test_a_machine_without_a_card(capsys: pytest.CaptureFixture[str]) -> None:
    """Unavailable sensors are listed with a hint; estimates of the host are marked."""
    assert main(["monitor", "--interval", "0.5", "--seconds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "not measured: " in shown
    assert "~: estimated" in shown


@pytest.mark.parametrize("word", ["0", "-1", "soon", "inf"])
def test_times_that_are_none(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the value that was given."""
    with pytest.raises(SystemExit, match="2"):
        main(["monitor", "--interval", word])
    assert f"must be a positive number of seconds, got '{word}'" in capsys.readouterr().err

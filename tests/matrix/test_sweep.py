"""Sweeps of power limits over simulated jobs: settings, order, comparison and restoring."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.cli import main
from energy_callbacks.matrix import sweep
from energy_callbacks.matrix.engines import local
from energy_callbacks.powercap.actuators import choose
from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE, all_files
from energy_callbacks.powercap.settings import Setting
from tests.fake_nvml import Constant, FakeNvml, Scenario, card_uuid, h200
from tests.matrix.launcher import Launcher
from tests.powercap.safety.file_cards import AdminNvmlActuator

JOB = ["--", sys.executable, "job.py", "{x}", "0.1", "0"]


class Jobs:
    """Simulated jobs, and the limit of the card at the start of each.

    Attributes:
        seen: value in the environment, and limit of the card, of each job.
        on_start: called at the start of each job.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.seen: list[tuple[str, float | None]] = []
        self.on_start: Callable[[], object] = lambda: None

    def launch(self, words: Sequence[str], **more: Any) -> Any:
        """Start a job."""
        limit = AdminNvmlActuator().read(card_uuid(0), "limit")
        self.seen.append((more["env"]["SWEEP_LIMIT_W"], limit))
        self.on_start()
        return self._launcher.launch([*words[:-3], str(len(self.seen)), *words[-2:]], **more)


@pytest.fixture
def jobs(
    tmp_path: Path,
    fake_nvml: Callable[..., FakeNvml],
    launcher: Launcher,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Jobs]:
    """Provide a card with a limit of 600 W, and simulate jobs."""
    nvml = fake_nvml(Scenario(cards=(h200(Constant(300.0), limit_w=600.0),)), virtual=False)
    for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG"):  # for the watchdog
        monkeypatch.setenv(name, nvml.env()[name])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setitem(choose._MADE_BY, "nvml", AdminNvmlActuator)
    monkeypatch.chdir(tmp_path)
    one = Jobs(launcher)
    monkeypatch.setattr(local, "launch", one.launch)
    yield one
    assert AdminNvmlActuator().read(card_uuid(0), "limit") == 600.0
    assert not list(all_files())


def run(*options: str) -> int:
    """Run a sweep with two repeats and no pauses."""
    fixed = ["--yes", "--repeats", "2", "--cool-down", "0", "--out", "results"]
    return main(["powercap", "sweep", *fixed, *options, *JOB])


def test_a_sweep(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    """Each job runs at its limit; the limit found is measured, too, and is the baseline."""
    assert run("--limits", "300,450") == 0
    assert sorted(jobs.seen[:3]) == [("300", 300.0), ("450", 450.0), ("600", 600.0)]
    assert sorted(jobs.seen[3:]) == sorted(jobs.seen[:3])
    table = capsys.readouterr().out
    assert "limit_w" in table
    assert table.count("2 of 2") == 3
    assert run("--limits", "300,450") == 0
    assert len(jobs.seen) == 6


def test_a_signal(jobs: Jobs) -> None:
    """No further job runs, the limit is restored, and the exit code is that of a shell."""
    jobs.on_start = lambda: signal.raise_signal(signal.SIGTERM)
    assert run("--limits", "300") == 128 + signal.SIGTERM
    assert len(jobs.seen) == 1


def test_another_program_changes_the_limit(jobs: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    """The sweep ends, and leaves the limit as it is."""
    foreign = Setting(knob="limit", value=250.0)
    jobs.on_start = lambda: AdminNvmlActuator().write(card_uuid(0), foreign)
    assert run("--limits", "300") == 1
    assert len(jobs.seen) == 1
    told = capsys.readouterr().err
    assert "limit 250 W was set by another program" in told
    assert "left as it is" in told
    AdminNvmlActuator().write(card_uuid(0), Setting(knob="limit", value=600.0))


def test_a_limit_that_the_card_does_not_accept(jobs: Jobs) -> None:
    """No job runs."""
    assert run("--limits", "300,900") == 2
    assert jobs.seen == []


def test_the_order_is_random_within_a_repeat() -> None:
    """Each repeat has each setting once; the orders of repeats differ."""
    settings = [Setting(knob="clock", value=float(value)) for value in range(200, 1000, 100)]
    found = Setting(knob="clock", value=None)
    plan = sweep.plan(["true"], settings, baseline=found, repeats=5, cool_down_s=0.0, folder=Path())
    jobs = sweep._shuffled(plan)
    orders = [[job.configuration for job in jobs[at : at + 9]] for at in range(0, 45, 9)]
    assert all(set(order) == {"unlocked", *map(str, range(200, 1000, 100))} for order in orders)
    assert len(set(map(tuple, orders))) > 1


def test_one_setting_only() -> None:
    """It is refused, because there is nothing to compare."""
    one = Setting(knob="limit", value=300.0)
    with pytest.raises(ValueError, match="at least two settings, got 300"):
        sweep.plan(["true"], [one], baseline=one, repeats=1, cool_down_s=0.0, folder=Path())

"""How long the first rank waits for other ranks, and how long a caller waits for the report."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.report_process import meter_reports, queue
from energy_callbacks.testing import FakeClock, ScriptedSource


@pytest.fixture
def first_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnergyMeter:
    """The meter of the first of two ranks, which has ended."""
    monkeypatch.setenv("MASTER_PORT", "29500")
    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda _: 200.0)
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[source], clock=clock)
    meter._start(process=TrainingProcess(world_size=2))
    clock.advance(2.0)
    meter.stop()
    return meter


def second_rank(meter: EnergyMeter, pid: int, *, has_ended: bool = False) -> None:
    """Write the other rank's journal as the process with this number left it."""
    host = os.uname().nodename
    writer = journal.JournalWriter(journal.path_for(meter.run_folder, 1, host, 1))
    form = {"type": "header", "format": journal.FORMAT, "version": journal.VERSION}
    who = {"run_id": meter.run_id, "attempt": 1, "host": host, "rank": 1, "pid": pid}
    writer.write(form | who | {"unix_s": time.time()})
    if has_ended:
        writer.write({"type": "totals", "t_s": 2.0, "status": "finished", "energy": {}})
    writer.close()


def waited_s(meter: EnergyMeter) -> float:
    """Return how long the first rank waits."""
    start_s = time.monotonic()
    with mock.patch.object(meter_reports, "_RANKS_S", 0.3):
        meter_reports.wait_for_ranks(meter._lifecycle.newest)
    return time.monotonic() - start_s


def assert_no_wait(meter: EnergyMeter) -> None:
    """Assert that the first rank looks once at the journals, and does not sleep."""
    with mock.patch.object(time, "sleep") as sleep:
        meter_reports.wait_for_ranks(meter._lifecycle.newest)
    sleep.assert_not_called()


def test_a_rank_that_goes_on_is_waited_for(first_rank: EnergyMeter) -> None:
    """It may still write its last line."""
    second_rank(first_rank, os.getpid())
    assert waited_s(first_rank) >= 0.3


def test_a_rank_that_has_no_journal_yet_is_waited_for(first_rank: EnergyMeter) -> None:
    """It may still begin."""
    assert waited_s(first_rank) >= 0.3


def test_a_rank_that_has_ended_is_not_waited_for(first_rank: EnergyMeter) -> None:
    """All journals have their last line."""
    second_rank(first_rank, os.getpid(), has_ended=True)
    assert_no_wait(first_rank)


def test_a_report_waits_for_the_other_ranks(
    first_rank: EnergyMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It contains journals that are complete some moments later."""

    def end_second_rank(_: float) -> None:
        second_rank(first_rank, os.getpid(), has_ended=True)

    monkeypatch.setattr(time, "sleep", end_second_rank)
    assert [one.rank for one in first_rank.report().attempts] == [0, 1]


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_dead_rank_is_not_waited_for(first_rank: EnergyMeter, *, is_reaped: bool) -> None:
    """Lightning kills all ranks some seconds after one has died, so the report must not wait."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie then
    if is_reaped:
        child.wait()
    second_rank(first_rank, child.pid)
    assert_no_wait(first_rank)
    child.wait()


@pytest.mark.parametrize(("journal_s", "left_s"), [(0.0, 10.0), (7.0, 3.0), (10.5, 0.0)])
def test_the_time_limit_is_that_of_journal_and_report_together(
    journal_s: float,
    left_s: float,
    first_rank: EnergyMeter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report gets what the journal has left of ten seconds."""
    waits_s: list[float] = []
    attempt, clock = first_rank._lifecycle.newest, FakeClock()
    reports = meter_reports.MeterReports(clock)
    with mock.patch.object(meter_reports, "_RANKS_S", 0.0):
        reports.make(attempt)

    def wait_for_journal(timeout_s: float) -> None:
        waits_s.append(timeout_s)
        clock.sleep(journal_s)

    def wait_for_report(_: object, timeout_s: float) -> None:
        waits_s.append(timeout_s)

    thread = SimpleNamespace(is_ending=True, wait_for_journal=wait_for_journal)
    monkeypatch.setattr(attempt, "thread", thread)
    monkeypatch.setattr(queue.reports, "wait", wait_for_report)
    reports.wait(attempt, 10.0)
    assert waits_s == [10.0, pytest.approx(left_s)]

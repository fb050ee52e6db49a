"""The first rank waits for running ranks before it writes the report, not for dead ones."""

import os
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.report_process import meter_reports
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

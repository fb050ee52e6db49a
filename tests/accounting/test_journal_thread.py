"""The journal's thread on real time; ``tests/test_ending.py`` tests the end of an attempt."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting import journal_thread
from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.clock import SystemClock
from tests.accounting.interrupted import Steady
from tests.core.waiting import until

AT_MOST_S = 60.0


def meter_of(folder: Path, source: Steady) -> EnergyMeter:
    """A meter on real time."""
    config = EnergyConfig(report_dir=folder / "energy", sample_interval_s=0.05)
    return EnergyMeter(config=config, sources=[source])


def test_a_bug_on_the_real_writers_thread_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the journal's thread ends measuring and all threads of the attempt."""

    def broken() -> None:
        raise RuntimeError("sabotage")

    meter = meter_of(tmp_path, Steady())
    meter.start()
    attempt = meter._lifecycle.attempt
    assert attempt is not None
    until(lambda: attempt.recorder.settled_s > attempt._start_s)
    attempt.recorder.update = broken  # type: ignore[method-assign]
    until(lambda: not meter.is_running)
    assert attempt.thread._periodic.wait(AT_MOST_S)
    attempt._sampler.stop(AT_MOST_S)
    assert len(caplog.records) == 1


class Stuck(Steady):
    """A driver that does not answer after the first reading."""

    name = "stuck"
    interval_s = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.release, self.reads = threading.Event(), threading.Event(), 0

    def read(self) -> Sequence[Reading]:
        self.reads += 1
        if self.reads > 5:
            self.hangs.set()
            self.release.wait()
        return super().read()


def test_a_driver_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``stop`` returns in bounded time, totals are written, and a warning names the source."""
    monkeypatch.setattr(journal_thread, "_STOP_TIMEOUT_S", 0.2)
    monkeypatch.setattr(journal_thread, "_HUNG_S", 0.0)
    stuck = Stuck()
    meter = meter_of(tmp_path, stuck)
    meter.start()
    attempt = meter._lifecycle.attempt
    assert attempt is not None
    assert stuck.hangs.wait(AT_MOST_S)
    until(lambda: attempt.thread._known_hung)
    use_s = SystemClock().monotonic_s()
    meter.enter("train")
    meter.step(samples=8)
    meter.log(1)
    meter.stop()
    assert SystemClock().monotonic_s() - use_s < AT_MOST_S / 2.0
    [path] = journal.find(tmp_path / "energy")
    lines = list(journal.read(path))
    assert lines[-1]["type"] == "totals"
    messages = [line["message"] for line in lines if line.get("code") == "source_hangs"]
    assert any("has not responded" in message for message in messages)
    assert any("did not respond at the end" in message for message in messages)
    stuck.release.set()
    worker = attempt._sampler._workers[0]
    assert worker.periodic is not None
    assert worker.periodic.wait(AT_MOST_S)

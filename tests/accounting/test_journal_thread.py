"""The journal's thread; ``tests/test_ending.py`` tests the end of an attempt."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting import journal_thread
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal_thread import JournalThread
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.accounting.interrupted import Steady
from tests.core.waiting import until

AT_MOST_S = 60.0


def meter_of(folder: Path, source: Steady) -> EnergyMeter:
    """A meter on real time."""
    config = EnergyConfig(report_dir=folder / "energy", sample_interval_s=0.05)
    return EnergyMeter(config=config, sources=[source])


def broken(*_: object, **__: object) -> None:
    """An error in this package."""
    raise RuntimeError("sabotage")


def test_a_bug_on_the_real_writers_thread_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the journal's thread ends measuring and all threads of the attempt."""
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


class Restoring:
    """Control of power, which needs ``wait`` to restore it.

    Args:
        is_fast: whether it is restored in time.
    """

    def __init__(self, *, is_fast: bool) -> None:
        self.calls: list[str] = []
        self._is_fast = is_fast

    def ask_to_stop(self) -> None:
        """Record the call."""
        self.calls.append("ask_to_stop")

    def wait(self, timeout_s: float) -> bool:
        """Record the call."""
        self.calls.append("wait")
        return self._is_fast


def break_at_an_update(meter: EnergyMeter, clock: FakeClock) -> None:
    """The periodic work fails."""
    meter._lifecycle.attempt.recorder.update = broken  # type: ignore[union-attr, method-assign]
    clock.advance(5.0)


def break_at_the_last_row(meter: EnergyMeter, clock: FakeClock) -> None:
    """The figures of the last row cannot be computed."""
    meter._lifecycle.attempt.board.update = broken  # type: ignore[union-attr, method-assign]
    with meter.ending():
        clock.advance(5.0)


def break_at_the_end(meter: EnergyMeter, clock: FakeClock) -> None:
    """The totals cannot be written."""
    meter._lifecycle.attempt.recorder.finish = broken  # type: ignore[union-attr, method-assign]
    meter.stop()


def break_in_the_training(meter: EnergyMeter, clock: FakeClock) -> None:
    """A method that the training calls fails."""
    attempt = meter._lifecycle.attempt
    assert attempt is not None
    attempt.recorder.event = broken  # type: ignore[method-assign]
    meter.mark("x")
    attempt.thread.wait_for_journal(0.0)  # in virtual time, this runs the journal's last call


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize(
    "breaks", [break_at_an_update, break_at_the_last_row, break_at_the_end, break_in_the_training]
)
def test_a_broken_journal_is_ended(
    breaks: Callable[[EnergyMeter, FakeClock], None],
    is_fast: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its files are closed, the user's call is released, and power is restored."""
    clock, power = FakeClock(), Restoring(is_fast=is_fast)
    source = ScriptedSource(clock, power_w=lambda _: 200.0)
    config = EnergyConfig(report_dir=tmp_path, raw_readings=True)
    meter = EnergyMeter(config=config, sources=[source], clock=clock)

    def fit() -> JournalThread:
        call = ActiveCall.find("fit", package=__name__.partition(".")[0])
        meter._start(call=call)
        attempt = meter._lifecycle.attempt
        assert attempt is not None
        attempt.thread.power = power
        clock.advance(1.0)
        breaks(meter, clock)
        assert call is not None
        assert not call.is_under_way()
        return attempt.thread

    thread = fit()
    assert thread.over.is_set
    assert thread.raw is not None
    assert thread.raw._writer._file is thread.writer._file is None
    assert power.calls[-1] == "wait"
    messages = [record.getMessage() for record in caplog.records]
    assert sum("energy is no longer measured" in message for message in messages) == 1
    assert any("powercap restore" in message for message in messages) == (not is_fast)
    assert len(messages) == 1 + (not is_fast)


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

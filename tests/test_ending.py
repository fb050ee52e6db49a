"""Attempts without ``stop``: an exception or Ctrl-C in a framework without a hook for it."""

import copy
import json
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.report import build
from energy_callbacks.report_process.queue import PROCESS_VARIABLE
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.accounting.interrupted import Hanging, Steady
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.integrations.processes import Forking, Script, wait

HERE = __name__.partition(".")[0]


def meter_on(clock: FakeClock, folder: Path) -> EnergyMeter:
    """A meter on a constant, scripted 200 W."""
    source = ScriptedSource(clock, power_w=lambda t_s: 200.0, energy_j=lambda t_s: 200.0 * t_s)
    return EnergyMeter(sources=[source], clock=clock, config=EnergyConfig(report_dir=folder))


def fit(meter: EnergyMeter, clock: FakeClock, steps: int, error: BaseException | None) -> None:
    """A training with a step every second that ends without a hook."""
    meter._start(call=ActiveCall.find("fit", package=HERE))
    meter.enter("train")
    for _ in range(steps):
        clock.advance(1.0)
        meter.step(samples=4)
    if error is not None:
        raise error


def phases(meter: EnergyMeter) -> dict[str, float]:
    """Duration of each phase, s."""
    return {phase.name: phase.duration_s for phase in meter.report().phases}


def test_idle_is_not_train(tmp_path: Path) -> None:
    """A minute after the exception, the phase of the training still has only ten seconds."""
    clock = FakeClock()
    meter = meter_on(clock, tmp_path)
    with pytest.raises(RuntimeError):
        fit(meter, clock, 10, RuntimeError("boom"))
    clock.advance(60.0)
    assert not meter.is_running
    assert phases(meter)["train"] == pytest.approx(10.0, abs=0.5)
    report = meter.report()
    assert report.run.status == "failed"
    assert report.energy.gpu.energy_j == pytest.approx(200.0 * 11, rel=0.05)
    assert (tmp_path / "energy_report.html").is_file()


def test_the_report_is_right_at_once(tmp_path: Path) -> None:
    """Right after the exception, the report has the whole training and its end."""
    clock = FakeClock()
    meter = meter_on(clock, tmp_path)
    with pytest.raises(RuntimeError):
        fit(meter, clock, 10, RuntimeError("boom"))
    assert phases(meter)["train"] == pytest.approx(10.0)
    assert meter.report().efficiency.gpu.j_per_sample.value_j == pytest.approx(50.0)
    assert not meter.is_running


def test_ctrl_c_at_the_shell_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report has the exception that the interactive shell keeps."""
    clock = FakeClock()
    meter = meter_on(clock, tmp_path)
    with pytest.raises(KeyboardInterrupt) as caught:
        fit(meter, clock, 3, KeyboardInterrupt())
    for name in ("last_exc", "last_value"):
        monkeypatch.setattr(sys, name, caught.value, raising=False)
    report = meter.report()
    assert report.run.status == "interrupted"
    assert "KeyboardInterrupt" in report.run.error


def test_the_next_start_ends_the_attempt_before(tmp_path: Path) -> None:
    """A second ``fit`` at once is a second attempt, and the steps of both are counted."""
    clock = FakeClock()
    meter = meter_on(clock, tmp_path)
    with pytest.raises(RuntimeError):
        fit(meter, clock, 3, RuntimeError("boom"))
    fit(meter, clock, 4, None)
    meter.stop()
    report = meter.report()
    assert [attempt.steps for attempt in report.attempts] == [3, 4]
    assert [attempt.status for attempt in report.attempts] == ["failed", "finished"]


def test_a_long_step_is_no_end(tmp_path: Path) -> None:
    """A step of ten minutes inside the call does not end the attempt."""
    clock = FakeClock()
    meter = meter_on(clock, tmp_path)

    def fit() -> None:
        meter._start(call=ActiveCall.find("fit", package=HERE))
        meter.enter("train")
        clock.advance(600.0)
        meter.step(samples=1)
        meter.stop()

    fit()
    assert phases(meter)["train"] == pytest.approx(600.0)
    assert len(meter.report().attempts) == 1


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    """Starts scripts in new processes."""
    one = Forking.importing()
    yield one
    one.close()


@pytest.mark.parametrize(
    ("end", "status", "words"),
    [
        ("raises", "failed", "boom"),
        ("interrupts", "interrupted", "KeyboardInterrupt"),
        ("returns", "failed", "stopped unexpectedly"),
        ("catches", "failed", "stopped unexpectedly"),
    ],
)
def test_a_script_leaves_its_report(
    forking: Forking, tmp_path: Path, end: str, status: str, words: str
) -> None:
    """A real process writes it at exit, or half a second after the call has ended."""
    script = Script(module="tests.unstopped", folder=tmp_path, arguments=(end,))
    code = wait(forking.start(script))
    assert "AssertionError" not in script.output
    if end == "interrupts":
        assert code == -signal.SIGINT, "a shell's loop must see the Ctrl-C"
    report = json.loads((tmp_path / "energy_report.json").read_text())
    assert report["run"]["status"] == status
    assert words in report["run"]["error"]
    assert report["throughput"]["samples"] == 4


def test_a_second_ctrl_c_ends_the_exit(forking: Forking, tmp_path: Path) -> None:
    """It ends the wait for a sensor that hangs; the log says how to make the report."""
    script = Script(module="tests.unstopped", folder=tmp_path, arguments=("interrupts twice",))
    assert wait(forking.start(script)) == -signal.SIGINT
    assert script.output.count("Traceback") == 1, "only that of the first one"
    assert f"energy-callbacks report {tmp_path}" in script.output
    build(tmp_path)


def test_stopping_and_noticing_at_once_is_one_end(tmp_path: Path) -> None:
    """If the journal's thread and a caller end an attempt at once, it ends once."""
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[])

    def fit() -> None:
        meter._start(call=ActiveCall.find("fit", package=HERE))
        meter.enter("train")

    fit()
    stoppers = [threading.Thread(target=end) for end in (meter.stop, meter.report, meter.stop)]
    for thread in stoppers:
        thread.start()
    for thread in stoppers:
        thread.join(30.0)
        assert not thread.is_alive()
    assert len(list(tmp_path.glob("attempts/*/*.jsonl"))) == 1
    assert meter.report().run.status in ("failed", "finished")


def test_a_meter_that_was_stopped_is_free(tmp_path: Path) -> None:
    """A stopped meter is not registered for the interpreter's exit."""
    import gc
    import weakref

    clock = FakeClock()
    meter = meter_on(clock, tmp_path)
    fit(meter, clock, 1, None)
    meter.stop()
    gone = weakref.ref(meter)
    del meter, clock
    gc.collect()
    assert gone() is None


def test_the_end_of_a_training_waits_for_no_sensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last row is logged and the meter has ended while the last reading still hangs."""
    # For slow machines.
    monkeypatch.setattr("energy_callbacks.report_process.endings._LAST_ROW_S", 30.0)
    monkeypatch.setattr("energy_callbacks.accounting.journal_thread._STOP_TIMEOUT_S", 60.0)
    source, said = Hanging(), queue.SimpleQueue[str]()
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[source])
    meter._start(say=said.put)
    try:
        meter.step(samples=4)
        assert meter._wait_until_seen(meter.now_s(), 60.0)
        with meter.ending():
            row, totals = meter.log(1), meter.totals()
        assert not source.let_go.is_set()
        assert not meter.is_running
        [path] = journal.find(tmp_path)
        assert not journal.has_ended(path)
    finally:
        source.let_go.set()
    assert row["energy/gpu_wh"] > 0.0
    assert totals["energy/gpu_wh"] == pytest.approx(row["energy/gpu_wh"])
    line = said.get(timeout=60.0)
    assert line.endswith(f"report: {tmp_path / 'energy_report.html'}")
    assert said.empty(), "there is one line"
    assert meter.wait_for_report() == tmp_path / "energy_report.html"
    assert meter.report().run.status == "finished"


def test_reports_wait_for_the_last_readings(tmp_path: Path) -> None:
    """``report`` is called while the last reading still hangs."""
    source = Hanging()
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[source])
    meter.start()
    with meter.ending():
        pass

    def let_go() -> None:
        source.is_reached.wait(60.0)
        source.let_go.set()

    thread = threading.Thread(target=let_go)
    thread.start()
    report = meter.report()
    thread.join()
    assert report.run.status == "finished"


def test_a_run_continues_after_the_end_of_its_journal(tmp_path: Path) -> None:
    """A second meter in the same folder waits for the journal of the first one."""
    source = Hanging()
    config = EnergyConfig(report_dir=tmp_path)
    first, second = (EnergyMeter(config=config, sources=[one]) for one in (source, Steady()))
    first.start()
    with first.ending():
        state = first.state()
    release = threading.Thread(target=lambda: source.is_reached.wait(60.0) and source.let_go.set())
    release.start()
    second.start(state=state)
    release.join()
    assert journal.has_ended(journal.find(tmp_path)[0])
    second.stop()
    assert [attempt.status for attempt in second.report().attempts] == ["finished", "finished"]


@pytest.mark.parametrize("process", ["0", "1"])
def test_a_script_that_ends_after_its_training_leaves_its_report(
    forking: Forking, tmp_path: Path, process: str
) -> None:
    """The exit waits for the report process; without one, the script makes the report."""
    script = Script(
        module="tests.unstopped",
        folder=tmp_path,
        arguments=("ends",),
        environment={PROCESS_VARIABLE: process},
    )
    assert wait(forking.start(script)) == 0, script.output
    report = json.loads((tmp_path / "energy_report.json").read_text())
    assert report["run"]["status"] == "finished"
    assert report["throughput"]["samples"] == 4


def test_virtual_trainings_have_their_report_at_once(tmp_path: Path) -> None:
    """Nothing runs in the background, and the summary is exact."""
    clock = FakeClock()
    meter, said = meter_on(clock, tmp_path), []
    meter._start(say=said.append)
    meter.enter("train")
    clock.advance(10.0)
    with meter.ending():
        pass
    assert (tmp_path / "energy_report.html").is_file()
    [line] = said
    assert line.startswith("0.556 Wh (gpu 0.556 Wh measured)")


def test_a_copy_has_no_report_to_wait_for(tmp_path: Path) -> None:
    """Neither has a meter that never started, nor one that was stopped."""
    meter = meter_on(FakeClock(), tmp_path)
    assert meter.wait_for_report() is None
    meter.start()
    meter.stop()
    assert meter.wait_for_report() is None
    assert copy.copy(meter).wait_for_report() is None

"""Signals: a handler may call any method of a meter, whatever the meter does at this moment."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.testing import FakeClock
from tests.accounting.interrupted import STAGES, Hanging
from tests.integrations.processes import Forking, Running, Script, wait

# All lines take minutes.
LINES = 8


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple]]:
    """The script of each stage, all of which run at the same time."""
    forking = Forking.importing("tests.accounting.interrupted")
    running: dict[str, tuple[Script, Running]] = {}
    for stage in STAGES:
        folder = tmp_path_factory.mktemp(stage)
        module = "tests.accounting.interrupted"
        script = Script(module=module, folder=folder, arguments=(stage, str(LINES)))
        running[stage] = script, forking.start(script)
    yield running
    forking.close()


@pytest.mark.parametrize("stage", STAGES)
def test_a_handler_may_stop_the_meter_or_save_a_checkpoint(
    interrupted: dict[str, tuple], stage: str
) -> None:
    """At each stage nothing hangs or raises, and the journal is complete afterwards."""
    script, running = interrupted[stage]
    assert wait(running, timeout_s=300.0) == 0, script.output
    assert int(script.output.split()[-1]) > 1
    assert "Traceback" not in script.output


def test_a_handler_may_stop_the_meter_while_stop_waits(tmp_path: Path) -> None:
    """The signal comes while ``stop`` waits for a sensor; before, this hung for ever."""
    source = Hanging()
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[source])
    handled: list[bool] = []

    def handler(number: int, frame: object) -> None:
        source.let_go.set()
        meter.stop()
        [path] = journal.find(tmp_path)
        handled.append(journal.has_ended(path))

    def send() -> None:
        source.is_reached.wait(60.0)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, handler)
    sender = threading.Thread(target=send)
    try:
        meter.start()
        sender.start()
        meter.stop()
    finally:
        source.let_go.set()
        sender.join(60.0)
        signal.signal(signal.SIGTERM, before)
    assert handled == [True], "stop in the handler waits for the end of the journal, too"
    assert meter.report().run.status == "finished"


class PreemptedError(Exception):
    """What a handler of the user raises."""


def preempt(number: int, frame: object) -> None:
    """End the training."""
    raise PreemptedError


@pytest.fixture
def _preempting() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, preempt)
    yield
    signal.signal(signal.SIGTERM, before)


def send(*_: object) -> float:
    """Send SIGTERM to this process."""
    signal.raise_signal(signal.SIGTERM)
    return 0.0


@pytest.mark.usefixtures("_preempting")
@pytest.mark.parametrize(
    "function",
    [
        "accounting.journal.previous_attempts._heads",
        "accounting.metrics.carbon.intensity",
        "accounting.metrics.carbon.place",
    ],
)
def test_a_handler_may_raise_while_the_meter_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    """Its exception ends the training; it is not taken for an error of what was read."""
    monkeypatch.setattr(f"energy_callbacks.{function}", send)
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[])
    with pytest.raises(PreemptedError):
        meter.start()


@pytest.mark.usefixtures("_preempting")
def test_a_handler_may_raise_while_ranks_vote(tmp_path: Path) -> None:
    """Its exception ends the training; it is not taken for an error of the network."""
    config = EnergyConfig(report_dir=tmp_path, max_energy_wh=1.0)
    meter = EnergyMeter(config=config, sources=[], clock=FakeClock()).start()
    with pytest.raises(PreemptedError):
        meter.is_over_budget(send)
    meter.stop()


@pytest.mark.usefixtures("_preempting")
def test_a_handler_may_raise_while_profilers_stop(tmp_path: Path) -> None:
    """The attempt then ends nevertheless, and its journal is complete."""

    class Slow:
        def start(self, meter: object) -> None:
            """Nothing."""

        mark = step = start

        def stop(self) -> None:
            send()

    config, clock = EnergyConfig(report_dir=tmp_path), FakeClock()
    meter = EnergyMeter(config=config, sources=[], clock=clock, profilers=[Slow()]).start()
    with pytest.raises(PreemptedError), meter.ending():
        pass
    [path] = journal.find(tmp_path)
    assert journal.has_ended(path)
    assert meter.report().run.status == "failed"


def test_messages_may_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If standard output is closed, the line at the end is lost with one warning."""

    def say(line: str) -> None:
        raise ValueError("I/O operation on closed file")

    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[], clock=FakeClock())
    with meter._start(say=say).ending():
        pass
    assert caplog.text.count("a message about energy cannot be printed") == 1

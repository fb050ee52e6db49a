"""Signals: a handler may call any method of a meter, whatever the meter does at this moment."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
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

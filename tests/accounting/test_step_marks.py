"""``StepMarks`` reports batches and steps as the methods of the meter do."""

import os
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.step_marks import READY, STEP, StepMarks
from energy_callbacks.testing import FakeClock, ScriptedSource


def meter_of(clock: FakeClock, folder: Path, *profilers: object) -> EnergyMeter:
    """Return a running meter on a scripted sensor."""
    source = ScriptedSource(clock, power_w=lambda _: 100.0)
    config = EnergyConfig(report_dir=folder)
    return EnergyMeter(config=config, sources=[source], clock=clock, profilers=profilers).start()  # type: ignore[arg-type]


def report_all(marks: StepMarks) -> None:
    """Report an event in each of four ways."""
    marks.ready()
    marks.done()
    marks.step()
    marks.append((STEP, marks.now_s(), 8, None, None))


def trained(clock: FakeClock, meter: EnergyMeter, *, is_fast: bool) -> tuple[float | None, ...]:
    """Train four steps with waits of 0.25 s; return steps, samples, tokens and waits."""
    marks = meter._step_marks()
    with meter, meter.phase("train"):
        for _ in range(4):
            clock.advance(0.25)
            marks.ready() if is_fast else meter.data_ready()
            clock.advance(0.5)
            marks.done() if is_fast else meter.batch_done()
            clock.advance(0.25)
            marks.ready() if is_fast else meter.data_ready()
            clock.advance(0.5)
            marks.step(8, 80) if is_fast else meter.step(8, 80)
    told = meter.report().throughput
    waits = told.data_wait_s
    return told.steps, told.samples, told.tokens, waits


def test_they_do_the_same_as_the_meter(tmp_path: Path) -> None:
    """Steps, samples, tokens and waits are the same."""
    found = []
    for is_fast in (True, False):
        clock = FakeClock()
        meter = meter_of(clock, tmp_path / str(is_fast))
        found.append(trained(clock, meter, is_fast=is_fast))
    assert found[0] == found[1]
    assert list(found[0]) == pytest.approx([4, 32, 320, 1.75])


def test_they_do_nothing_after_the_end(tmp_path: Path) -> None:
    """After ``stop``, events do not fill a queue that nobody reads."""
    meter = meter_of(FakeClock(), tmp_path)
    marks, attempt = meter._step_marks(), meter._lifecycle.attempt
    assert attempt is not None
    meter.stop()
    report_all(marks)
    assert not attempt.steps._events


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_they_do_nothing_in_a_forked_child(tmp_path: Path) -> None:
    """A child has no thread that reads the queue; the parent still reports."""
    meter = meter_of(FakeClock(), tmp_path)
    marks, attempt = meter._step_marks(), meter._lifecycle.attempt
    assert attempt is not None
    child = os.fork()
    if child == 0:
        report_all(marks)
        os._exit(len(attempt.steps._events))
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    report_all(marks)
    assert len(attempt.steps._events) == 4


def test_profilers_get_the_events_too(tmp_path: Path) -> None:
    """With a profiler, events are passed to the methods of the meter."""

    class Listener:
        heard: list[str]

        def start(self, meter: object) -> None:
            self.heard = []

        def mark(self, name: str, t_s: float) -> None:
            self.heard.append(name)

        def step(self, t_s: float) -> None:
            self.heard.append("step")

        def stop(self) -> None: ...

    listener = Listener()
    meter = meter_of(FakeClock(), tmp_path, listener)
    marks = meter._step_marks()
    marks.ready()
    marks.done()
    marks.step(1)
    marks.append((READY, marks.now_s(), None, None, None))
    assert listener.heard == ["data_ready", "batch_done", "step", "data_ready"]
    meter.stop()

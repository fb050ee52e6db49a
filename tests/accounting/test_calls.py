"""Calls of frameworks in an attempt of the user; the contract has tests with real frameworks."""

from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.accounting.test_journal_thread import AT_MOST_S, Stuck, meter_of

POWER_W = 200.0


class Runs:
    """Runs of trackers that record the reports that they get."""

    def __init__(self) -> None:
        self.reports: list[tuple[dict[str, float], Path]] = []

    def report(self, figures: dict[str, float], folder: Path) -> None:
        """Record a report."""
        self.reports.append((figures, folder))


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock()


@pytest.fixture
def meter(tmp_path: Path, clock: FakeClock) -> EnergyMeter:
    """A meter with a card of constant power."""
    source = ScriptedSource(clock, power_w=lambda _: POWER_W, interval_s=1.0)
    config = EnergyConfig(report_dir=tmp_path / "energy")
    return EnergyMeter(config=config, sources=[source], clock=clock)


def attempt_of(meter: EnergyMeter) -> Any:
    """Return the running attempt."""
    return meter._lifecycle.running


def train(meter: EnergyMeter, clock: FakeClock, steps: int, planned: int | None = None) -> None:
    """Do what an adapter does in ``fit``."""
    meter._start()
    meter.plan(steps if planned is None else planned)
    with meter.phase("train"):
        for _ in range(steps):
            clock.advance(0.7)
            meter.step(samples=4)


def test_an_attempt_that_an_adapter_begins_ends_with_its_call(
    meter: EnergyMeter, clock: FakeClock
) -> None:
    """Also if the user calls ``start`` in between, which then does nothing."""
    meter._start()
    meter.start()
    train(meter, clock, 3)
    with meter._end_call():
        assert meter.totals()
    assert not meter.is_running


def test_a_call_that_begins_twice_ends_once(meter: EnergyMeter, clock: FakeClock) -> None:
    """An adapter starts the meter at several hooks of a call; its last hook ends all phases."""
    with meter, meter.phase("mine"):
        meter._start()
        meter.enter("tuning")
        meter._start()
        meter.leave("mine")
        with meter._end_call():
            assert attempt_of(meter).recorder.phases.names == ["idle", "mine"]
        assert attempt_of(meter).calls == 1
        meter._start()
        assert attempt_of(meter).calls == 2


def test_the_objects_of_a_call_are_released_at_its_end(meter: EnergyMeter) -> None:
    """In the last row they can still be read; afterwards the meter keeps no model alive."""
    calls = []

    def fit(batch_size: int) -> None:
        calls.append(ActiveCall.find("fit", package="tests"))
        meter._start(call=calls[-1])
        with meter._end_call():
            assert calls[-1].local("batch_size") == batch_size
        assert calls[-1].local("batch_size") is None

    with meter:
        fit(8)
        fit(16)
    assert len(calls) == 2


class Marks:
    """A profiler that records marks."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def start(self, meter: Any) -> None: ...

    def mark(self, name: str, t_s: float) -> None:
        """Record a mark."""
        self.names.append(name)

    def step(self, t_s: float) -> None: ...

    def stop(self) -> None: ...


def test_profilers_receive_the_end_of_a_call(tmp_path: Path, clock: FakeClock) -> None:
    """After an exception in Lightning, no phase of the call is left before its last hook."""
    marks = Marks()
    meter = EnergyMeter(report_dir=tmp_path, sources=[], clock=clock, profilers=[marks])
    with meter, meter.phase("mine"):
        meter._start()
        meter.enter("train")
        meter.enter("validation")
        with meter._end_call():
            assert marks.names[-1] == "phase:mine"


def test_figures_at_the_end_of_a_call_are_up_to_now(meter: EnergyMeter, clock: FakeClock) -> None:
    """The sensor, which is read once a second, is asked."""
    with meter:
        start_s = clock.monotonic_s()
        train(meter, clock, 20)
        end_s = clock.monotonic_s()
        with meter._end_call():
            found = meter.log(20)
        assert found["energy/gpu_wh"] * 3600 == pytest.approx(POWER_W * (end_s - start_s))


def test_figures_of_a_call_are_not_those_of_the_call_before(
    meter: EnergyMeter, clock: FakeClock
) -> None:
    """Its first row has no efficiency of another model; its energy includes the time before."""
    with meter:
        train(meter, clock, 20)
        with meter._end_call():
            assert "efficiency/gpu_j_per_sample" in meter.log(20)
        meter._start()
        assert meter.scalars() == {}
        with meter.phase("validation"):
            clock.advance(2.0)
        found = meter.scalars()
        assert "efficiency/gpu_j_per_sample" not in found
        assert found["energy/gpu_wh"] * 3600 > POWER_W * 20 * 0.7


def test_plans_are_those_of_the_first_training(meter: EnergyMeter, clock: FakeClock) -> None:
    """An evaluation before it has no steps; a second training has neither forecast nor resume."""
    with meter:
        meter._start()
        with meter._end_call():
            pass
        train(meter, clock, 5, planned=1000)
        assert attempt_of(meter).forecaster.planned_steps == 1000
        with meter._end_call():
            pass
        train(meter, clock, 5, planned=1000)
        meter.resumed(5)
        assert attempt_of(meter).forecaster.planned_steps is None
    report = meter.report()
    assert report.progress is not None
    assert report.progress.step[-1] == 10


def test_the_trackers_of_each_call_get_the_report(meter: EnergyMeter, clock: FakeClock) -> None:
    """A second search for runs in one call replaces the first one."""
    replaced, first, second = Runs(), Runs(), Runs()
    with meter:
        for number, found in enumerate(((replaced, first), (second,)), start=1):
            train(meter, clock, 5)
            for runs in found:
                meter._add_run_logs(runs)  # type: ignore[arg-type]
            with meter._end_call():
                pass
            assert attempt_of(meter).calls == number
            assert not first.reports
    assert replaced.reports == []
    assert [len(runs.reports) for runs in (first, second)] == [1, 1]
    assert first.reports == second.reports


def test_a_meter_that_is_not_stopped_is_reported_at_exit(
    meter: EnergyMeter, clock: FakeClock
) -> None:
    """The interpreter ends the attempt, also after a call that has ended."""
    meter.start()
    train(meter, clock, 5)
    runs = Runs()
    meter._add_run_logs(runs)  # type: ignore[arg-type]
    with meter._end_call():
        pass
    meter._lifecycle.exit(attempt_of(meter))
    assert len(runs.reports) == 1
    assert meter.report().run.status == "failed"


def test_without_a_call_no_report_is_made(meter: EnergyMeter, clock: FakeClock) -> None:
    """A loop without callbacks saves its report itself."""
    with meter:
        clock.advance(5.0)
    assert meter.run_folder is not None
    assert not list(meter.run_folder.glob("energy_report.*"))


def test_a_sensor_that_hangs_does_not_hold_up_the_end_of_a_call(tmp_path: Path) -> None:
    """The wait for newest values is bounded, in real time."""
    stuck = Stuck()
    meter = meter_of(tmp_path, stuck)
    with meter:
        assert stuck.hangs.wait(AT_MOST_S)
        meter._start()
        meter.enter("train")
        begin_s = SystemClock().monotonic_s()
        with meter._end_call():
            assert attempt_of(meter).recorder.phases.name == "idle"
        assert SystemClock().monotonic_s() - begin_s < AT_MOST_S / 2.0
        stuck.release.set()

"""``EnergyMeter``: whole runs on virtual and on real time."""

import copy
import json
import math
import os
import pickle
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import energy_callbacks
from energy_callbacks import EnergyConfig, EnergyMeter, JournalError
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.callback import meter_from
from energy_callbacks.core.config import DISABLED_VARIABLE, RUN_DIR_VARIABLE
from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.frameworks import cuda_events
from energy_callbacks.sensing.schedule import BEAT_S
from energy_callbacks.testing import FakeClock, InMemoryOutput, ScriptedSource
from tests.core.forking import in_a_child
from tests.core.waiting import until
from tests.sensing.frameworks.scripted_events import ScriptedDevice
from tests.tuning.simulated import BusyClock

AT_MOST_S = 60.0
CPU = Device(key="cpu0", kind="cpu", scope="host", name="scripted CPU")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (DISABLED_VARIABLE, RUN_DIR_VARIABLE, "RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock()


def card(clock: FakeClock, power_w: float = 200.0, device: Device | None = None) -> ScriptedSource:
    """A card at constant power."""
    return ScriptedSource(
        clock,
        power_w=lambda _: power_w,
        energy_j=lambda t: power_w * t,
        kind="mean",
        device=device,
    )


def meter_of(folder: Path, clock: FakeClock, **settings: Any) -> EnergyMeter:
    """A meter on virtual time."""
    config = EnergyConfig(report_dir=folder / "energy", country="DEU")
    sources = settings.pop("sources", None)
    return EnergyMeter(
        config=config,
        sources=[card(clock)] if sources is None else sources,
        clock=clock,
        **settings,
    )


def train(meter: EnergyMeter, clock: FakeClock, steps: int = 20) -> None:
    """Train with a step every second."""
    with meter.phase("train"):
        for _ in range(steps):
            clock.advance(1.0)
            meter.step(samples=64, tokens=640)
        meter.epoch(0)


def lines(meter: EnergyMeter) -> list[dict[str, Any]]:
    """Lines of the newest journal of a run."""
    assert meter.run_folder is not None
    return list(journal.read(journal.find(meter.run_folder)[-1]))


def of(meter: EnergyMeter, kind: str) -> list[dict[str, Any]]:
    """Lines of one kind of the newest journal."""
    return [line for line in lines(meter) if line.get("kind", line["type"]) == kind]


# --- a whole run


def test_a_whole_run_is_exact(tmp_path: Path, clock: FakeClock) -> None:
    """200 W for 20 s are 4000 J in the totals, the phases, ``energy`` and the report."""
    meter = meter_of(tmp_path, clock, sources=[card(clock), card(clock, 50.0, CPU)])
    with meter:
        start_s = clock.monotonic_s()
        train(meter, clock)
    assert not meter.is_running
    totals = of(meter, "totals")[0]
    assert totals["status"] == "finished"
    assert totals["energy"]["gpu0"]["energy_j"] == pytest.approx(4000.0, rel=1e-9)
    span = next(span for span in of(meter, "span") if span["phase"] == "train")
    assert span["energy"]["cpu0"]["energy_j"] == pytest.approx(1000.0, rel=1e-9)
    answer = meter.energy(start_s, clock.monotonic_s())
    assert answer.energy_j == pytest.approx(5000.0, rel=1e-9)
    assert meter.energy(start_s + 3.0, start_s + 4.0, "gpu").energy_j == pytest.approx(
        200.0, rel=1e-9
    )
    assert meter.scalars()["efficiency/gpu_j_per_sample"] == pytest.approx(3.125, rel=1e-6)
    assert sum(pool["samples"] for pool in of(meter, "steps")) == 20 * 64
    assert [line["epoch"] for line in of(meter, "epoch")] == [0]
    assert meter.report().energy.total.energy_j == pytest.approx(5000.0, rel=1e-9)


def test_the_header_says_who_where_and_with_which_settings(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The first line names run, attempt, process, place and settings."""
    process = TrainingProcess(
        framework="keras", framework_version="3.1", rank=3, local_rank=1, world_size=4
    )
    meter = meter_of(tmp_path, clock)
    meter._start(process=process)
    clock.advance(1.0)
    meter.stop()
    header = lines(meter)[0]
    assert header["type"] == "header"
    assert {key: header[key] for key in ("framework", "rank", "local_rank", "world_size")} == {
        "framework": "keras",
        "rank": 3,
        "local_rank": 1,
        "world_size": 4,
    }
    assert header["attempt"] == 1
    assert header["run_id"] == meter.run_id
    assert header["pid"] == os.getpid()
    assert header["config"]["sample_interval_s"] == BEAT_S
    assert "DEU" in json.dumps(header["config"])
    assert header["unix_s"] == pytest.approx(1.7e9)


def test_log_writes_to_every_output_and_returns_what_it_wrote(
    tmp_path: Path, clock: FakeClock
) -> None:
    """Both outputs get the same row; closing the meter closes them."""
    outputs = [InMemoryOutput(), InMemoryOutput()]
    meter = meter_of(tmp_path, clock, outputs=outputs)
    with meter:
        train(meter, clock)
        clock.advance(0.5)
        row = meter.log(20)
    assert row["power/gpu_w"] == pytest.approx(200.0)
    assert [output.rows for output in outputs] == [[(20, row)]] * 2
    assert all(output.is_closed for output in outputs)


def test_a_window_named_afterwards_is_no_training_in_the_live_figures(
    tmp_path: Path, clock: FakeClock
) -> None:
    """Ten seconds of evaluation between two steps do not change joules per sample."""
    meter = meter_of(tmp_path, clock)
    with meter, meter.phase("train"):
        for _ in range(5):
            clock.advance(1.0)
            meter.step(samples=10)
        evaluated_from_s = meter.now_s()
        clock.advance(10.0)
        meter.window("validation", evaluated_from_s, meter.now_s())
        for _ in range(5):
            clock.advance(1.0)
            meter.step(samples=10)
        clock.advance(1.0)
        live = meter.scalars()
    assert live["efficiency/gpu_j_per_sample"] == pytest.approx(20.0, rel=1e-6)
    assert live["throughput/samples_per_s"] == pytest.approx(10.0, rel=1e-6)


def test_totals_are_of_the_whole_attempt(tmp_path: Path, clock: FakeClock) -> None:
    """After fast and slow steps, the newest span has the slow ones, the totals all."""
    meter = meter_of(tmp_path, clock)
    with meter, meter.phase("train"):
        for _ in range(10):
            clock.advance(1.0)
            meter.step(samples=100)
        clock.advance(0.5)
        meter.scalars()
        assert meter.totals() == {}
        for _ in range(10):
            clock.advance(1.0)
            meter.step(samples=10)
    assert meter.scalars()["throughput/samples_per_s"] == pytest.approx(100 / 10.5, rel=1e-6)
    assert meter.totals()["throughput/samples_per_s"] == pytest.approx(1100 / 20.5, rel=1e-6)
    assert meter.totals()["efficiency/gpu_j_per_sample"] == pytest.approx(
        200.0 * 20.5 / 1100, rel=1e-6
    )


def test_samples_that_are_told_at_the_end_of_an_epoch(tmp_path: Path, clock: FakeClock) -> None:
    """Steps without samples have no joules per sample; the count at the end is exact."""
    meter = meter_of(tmp_path, clock)
    with meter, meter.phase("train"):
        for _ in range(10):
            clock.advance(1.0)
            meter.step(samples=None)
        assert "efficiency/gpu_j_per_sample" not in meter.scalars()
        assert meter.report().throughput.samples is None
        meter.count(samples=95)
        clock.advance(1.0)
        meter.scalars()
        for _ in range(10):
            clock.advance(1.0)
            meter.step(samples=9.5)
        clock.advance(1.0)
        assert meter.scalars()["throughput/samples_per_s"] == pytest.approx(95 / 11, rel=1e-6)
        meter.count(samples=-1)
    counts = [line["samples"] for line in of(meter, "steps")]
    assert None in counts
    assert sum(count for count in counts if count is not None) == pytest.approx(189.0)
    report = meter.report()
    assert report.throughput.samples == 189
    assert report.throughput.tokens is None
    assert report.attempts[0].samples == 189


def test_marks_windows_and_waits_reach_the_journal(tmp_path: Path, clock: FakeClock) -> None:
    """A mark with its time, a window named afterwards, waits between batches."""
    meter = meter_of(tmp_path, clock)
    with meter:
        start_s = clock.monotonic_s()
        with meter.phase("train"):
            for _ in range(5):
                clock.advance(0.5)
                meter.data_ready()
                clock.advance(0.5)
                meter.batch_done()
                meter.step(samples=1)
        meter.mark("compiled", start_s + 2.0)
        meter.window("validation", start_s + 1.0, start_s + 3.0)
        meter.window("empty", start_s + 1.0, start_s + 1.0)
        clock.advance(1.0)
    assert [(m["name"], m["t_s"]) for m in of(meter, "mark")] == [("compiled", 2.0)]
    assert [w["name"] for w in of(meter, "window")] == ["validation"]
    assert of(meter, "window")[0]["energy"]["gpu0"]["energy_j"] == pytest.approx(400.0, rel=1e-9)
    assert sum(pool["data_wait_s"] for pool in of(meter, "steps")) == pytest.approx(4 * 0.5)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("nan loss"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(1), "interrupted"),
    ],
)
def test_an_exception_ends_the_run_in_order_and_passes_through(
    tmp_path: Path, clock: FakeClock, error: BaseException, status: str
) -> None:
    """The exception is raised unchanged; totals have its text, and open phases are closed."""
    meter = meter_of(tmp_path, clock)
    with pytest.raises(type(error)) as caught, meter, meter.phase("train"):  # noqa: PT012
        clock.advance(3.0)
        raise error
    assert caught.value is error
    totals = of(meter, "totals")[0]
    words = f"{type(error).__name__}: {error}".removesuffix(": ")
    assert (totals["status"], totals["error"]) == (status, words)
    assert totals["energy"]["gpu0"]["energy_j"] == pytest.approx(600.0, rel=1e-9)


def test_nothing_is_done_outside_a_run(tmp_path: Path, clock: FakeClock) -> None:
    """Before ``start`` and after ``stop`` no method raises, and energy is unknown."""
    meter = meter_of(tmp_path, clock)
    use(meter)
    assert meter.energy(0.0, 1.0).energy_j is None
    assert meter.scalars() == {}
    assert (meter.run_id, meter.run_folder, meter.is_running) == (None, None, False)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(JournalError, match="never started"):
        meter.report()
    with meter:
        clock.advance(1.0)
    before = lines(meter)
    use(meter)
    clock.advance(10.0)
    assert lines(meter) == before


def use(meter: EnergyMeter) -> None:
    """Call all methods that an adapter calls during a training."""
    with meter.phase("train"):
        meter.step(samples=8, tokens=None)
        meter.data_ready()
        meter.batch_done()
        meter.mark("anything")
        meter.window("validation", 1.0, 2.0)
        meter.epoch(1)
    meter.enter("test")
    meter.leave("test")
    meter.leave("never entered")
    meter.log(3)
    meter.stop()


def test_scopes_and_windows_that_make_no_sense_are_refused(
    tmp_path: Path, clock: FakeClock
) -> None:
    """``energy`` raises for wrong arguments."""
    with meter_of(tmp_path, clock) as meter:
        clock.advance(2.0)
        with pytest.raises(ValueError, match="unknown scope 'gpus'"):
            meter.energy(1000.0, 1001.0, "gpus")
        with pytest.raises(ValueError, match="must end after it starts"):
            meter.energy(1001.0, 1000.0)
        assert meter.is_running


# --- starts


def test_a_second_start_is_a_second_attempt_of_the_same_run(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The run id stays, there are two journals, and a start while running does nothing."""
    meter = meter_of(tmp_path, clock)
    for attempt in (1, 2):
        with meter:
            run_id = meter.run_id
            assert meter.start() is meter
            train(meter, clock, steps=5)
        assert lines(meter)[0]["attempt"] == attempt
        assert lines(meter)[0]["run_id"] == run_id
    assert meter.run_folder is not None
    assert len(journal.find(meter.run_folder)) == 2
    assert len({next(iter(journal.read(p)))["run_id"] for p in journal.find(meter.run_folder)}) == 1


def test_a_second_start_without_a_folder_goes_on_in_the_first(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trainings with one meter in a plain loop are two attempts in one folder."""
    folders = iter([Path("energy_runs/1"), Path("energy_runs/2")])
    monkeypatch.setattr("energy_callbacks.meter.default_folder", lambda _: next(folders))
    meter = EnergyMeter(sources=[card(clock)], clock=clock)
    for _ in range(2):
        with meter:
            clock.advance(2.0)
    assert lines(meter)[0]["attempt"] == 2


def test_energy_so_far_goes_on_after_a_resume(tmp_path: Path, clock: FakeClock) -> None:
    """The energy of a resumed run does not begin at 0 Wh again."""
    meter = meter_of(tmp_path, clock)
    with meter:
        train(meter, clock)
    first_wh = meter.scalars()["energy/gpu_wh"]
    with meter:
        train(meter, clock, steps=5)
    assert meter.scalars()["energy/gpu_wh"] > first_wh


def test_a_run_id_from_a_checkpoint_is_kept(tmp_path: Path, clock: FakeClock) -> None:
    """A resumed run in another folder has the id of the checkpoint."""
    meter = meter_of(tmp_path, clock)
    meter.start(state={"run_id": "abc123"})
    assert meter.run_id == "abc123"
    meter.stop()


def test_the_folder_of_the_settings_comes_before_that_of_the_adapter(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``report_dir`` overrides the adapter's folder, and a parent's folder both."""
    meter = meter_of(tmp_path, clock)
    meter.start(tmp_path / "adapter").stop()
    assert meter.run_folder == tmp_path / "energy"
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path / "parent"))
    meter.start(tmp_path / "adapter").stop()
    assert meter.run_folder == tmp_path / "parent"


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(
    tmp_path: Path, clock: FakeClock
) -> None:
    """A file in place of the folder is a PermissionError, and nothing is running."""
    (tmp_path / "energy").write_text("a file")
    meter = meter_of(tmp_path, clock)
    with pytest.raises(PermissionError, match="report_dir="):
        meter.start()
    assert not meter.is_running


@pytest.mark.parametrize("variable", [RUN_DIR_VARIABLE, "ENERGY_CALLBACKS_REPORT_DIR"])
def test_the_variable_of_a_folder_that_cannot_be_written_is_named(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``report_dir=`` would change nothing, or hide the cause."""
    (tmp_path / "energy").write_text("a file")
    monkeypatch.setenv(variable, str(tmp_path / "energy"))
    with pytest.raises(PermissionError, match=f"give a writable folder: .* variable {variable}$"):
        EnergyMeter(sources=[]).start()


def test_an_unknown_country_is_refused_at_construction() -> None:
    """An unknown country is an error on any machine."""
    with pytest.raises(ValueError, match="Atlantis"):
        EnergyMeter(config=EnergyConfig(country="Atlantis"))


def test_settings_and_a_ready_meter_exclude_each_other(clock: FakeClock) -> None:
    """A callback accepts either of them; a given meter is used unchanged."""
    ready = EnergyMeter(sources=[], clock=clock)
    assert meter_from({"meter": ready}, ()) is ready
    assert meter_from({"pue": 1.5}, ()).config.pue == 1.5
    with pytest.raises(ValueError, match="has its own settings"):
        meter_from({"pue": 1.5, "meter": ready}, ())


def test_settings_can_be_passed_by_name(clock: FakeClock) -> None:
    """They are those of ``EnergyConfig``, and are checked by it."""
    meter = EnergyMeter(country="DEU", devices="all", clock=clock)
    assert meter.config == EnergyConfig(country="DEU", devices="all")
    with pytest.raises(ValueError, match="Atlantis"):
        EnergyMeter(country="Atlantis")
    with pytest.raises(TypeError, match=r"EnergyMeter has no setting 'contry'; .* 'country'"):
        EnergyMeter(contry="DEU")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="config= has all settings, but country was also given"):
        EnergyMeter(config=EnergyConfig(), country="DEU")


@pytest.mark.parametrize("name", ["data_ready", "batch_done"])
def test_events_of_a_batch_are_methods(tmp_path: Path, clock: FakeClock, name: str) -> None:
    """``mark`` would write them as events of the user; the error names the method."""
    with meter_of(tmp_path, clock) as meter:
        getattr(meter, name)()
        with pytest.raises(ValueError, match=rf"call the method {name}\(\)"):
            meter.mark(name)


def test_calls_of_a_function_are_a_phase(tmp_path: Path, clock: FakeClock) -> None:
    """Two calls of 3 s and the 1 s of an inner call: phases of 4 s and 2 s, none counted twice."""
    meter = meter_of(tmp_path, clock)

    @meter.measure("inner")
    def inner() -> None:
        clock.advance(1.0)

    @meter.measure("outer")
    def outer(base: int, *, add: int) -> int:
        """Add two numbers in 3 s."""
        inner()
        clock.advance(2.0)
        return base + add

    assert outer(1, add=2) == 3, "while nothing is measured"
    with meter, meter.phase("train"):
        assert [outer(1, add=2), outer(2, add=3)] == [3, 5]
        clock.advance(4.0)
    found = {phase.name: phase.duration_s for phase in meter.report().phases}
    assert found == pytest.approx({"outer": 4.0, "inner": 2.0, "train": 4.0})
    assert (outer.__name__, outer.__doc__) == ("outer", "Add two numbers in 3 s.")


def test_an_exception_ends_a_measured_call(tmp_path: Path, clock: FakeClock) -> None:
    """It reaches the caller, and the phase ends."""
    meter = meter_of(tmp_path, clock)

    @meter.measure("broken")
    def broken() -> None:
        clock.advance(1.0)
        raise KeyError("mine")

    with meter, meter.phase("train"):
        with pytest.raises(KeyError, match="mine"):
            broken()
        clock.advance(1.0)
    found = {phase.name: phase.duration_s for phase in meter.report().phases}
    assert found == pytest.approx({"broken": 1.0, "train": 1.0})


def test_what_works_after_its_return_is_not_measured() -> None:
    """A coroutine and generators have done nothing when the call returns."""

    async def coroutine() -> None: ...

    async def stream() -> AsyncIterator[int]:
        yield 1

    def batches() -> Iterator[int]:
        yield 1

    for function in (coroutine, stream, batches):
        with pytest.raises(TypeError, match=f"when it returns, got .*{function.__name__}"):
            EnergyMeter().measure("x")(function)


def test_names_of_other_modules_are_explained() -> None:
    """The message of ``from energy_callbacks import ...`` names the module."""
    with pytest.raises(ImportError, match=r"from energy_callbacks\.lightning, \.keras or"):
        exec("from energy_callbacks import GpuEnergyCallback")
    with pytest.raises(ImportError, match=r"import it from energy_callbacks\.profiling"):
        exec("from energy_callbacks import KernelProfiler")
    assert not hasattr(energy_callbacks, "no_such_name")
    assert not hasattr(energy_callbacks, "GpuEnergyCallback"), "LightningCLI asks"
    with pytest.raises(AttributeError, match=r"import it from energy_callbacks\.lightning"):
        _ = energy_callbacks.GpuEnergyCallback


def test_the_switch_turns_everything_off(
    tmp_path: Path,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When disabled there is no file, no output and no thread."""
    monkeypatch.setenv(DISABLED_VARIABLE, "1")
    meter = meter_of(tmp_path, clock, outputs=[InMemoryOutput()])
    with meter:
        assert not meter.is_running
        use(meter)
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []


def test_saving_a_report_that_was_switched_off_is_silent(
    tmp_path: Path,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When disabled, no warning about a missing report is logged."""
    monkeypatch.setenv(DISABLED_VARIABLE, "1")
    meter = meter_of(tmp_path, clock)
    meter.start()
    meter.save_report()
    assert caplog.records == []


def test_nothing_to_log_is_not_written(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs get no rows before the first readings, or when disabled."""
    output = InMemoryOutput()
    meter_of(tmp_path, clock, outputs=[output]).start().log(1)
    monkeypatch.setenv(DISABLED_VARIABLE, "1")
    meter_of(tmp_path, clock, outputs=[output]).start().log(1)
    assert output.rows == []


def test_a_process_of_torchrun_is_known_by_its_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain loop under ``torchrun`` has its ranks; without it, it is a single process."""
    assert TrainingProcess.from_environment() == TrainingProcess()
    for name, value in (("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    assert TrainingProcess.from_environment() == TrainingProcess(rank=5, local_rank=1, world_size=8)


# --- never harms the training

SABOTAGE: list[Any] = [
    ("recorder", "enter", lambda m: m.enter("train")),
    ("recorder", "leave", lambda m: m.leave("train")),
    ("recorder", "event", lambda m: m.epoch(1)),
    ("recorder", "event", lambda m: m.mark("x")),
    ("recorder", "window", lambda m: m.window("x", 1.0, 2.0)),
    ("recorder", "steps", lambda m: m.step(8)),
    ("recorder", "steps", lambda m: m.data_ready()),
    ("board", "take", lambda m: m.log(1)),
    ("recorder", "finish", lambda m: m.stop()),
    ("thread", "ask_to_end", lambda m: m.stop()),
    ("timeline", "finish", lambda m: m.stop()),
]


def _broken(*_: object, **__: object) -> None:
    raise RuntimeError("sabotage")


@pytest.mark.parametrize(("part", "method", "call"), SABOTAGE, ids=lambda v: str(v)[:20])
def test_a_bug_of_ours_is_one_warning_and_the_end_of_measuring(
    part: str,
    method: str,
    call: Callable[[EnergyMeter], object],
    *,
    tmp_path: Path,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """For each internal error nothing is raised, and one warning is logged."""
    meter = meter_of(tmp_path, clock)
    meter.start()
    clock.advance(1.0)
    setattr(getattr(meter._lifecycle.attempt, part), method, _broken)
    call(meter)
    use(meter)
    clock.advance(5.0)
    assert not meter.is_running
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "energy is no longer measured" in caplog.records[0].getMessage()
    assert caplog.records[0].exc_info is not None


def test_a_bug_on_the_writers_thread_ends_measuring(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """An error in the journal's thread is one warning; calls of the training do not raise."""
    meter = meter_of(tmp_path, clock)
    meter.start()
    clock.advance(1.0)
    assert meter._lifecycle.attempt is not None
    meter._lifecycle.attempt.recorder.update = _broken  # type: ignore[method-assign]
    clock.advance(5.0)
    assert not meter.is_running
    use(meter)
    assert len(caplog.records) == 1


class Steady:
    """A card at 100 W on real time; picklable."""

    name = "steady"
    interval_s = 0.01

    def __init__(self) -> None:
        self.channel = Channel(
            device=Device(key="gpu0", kind="gpu", scope="gpu", name="GPU"),
            quantity="power",
            kind="gauge",
        )
        self.closed = 0

    def open(self) -> Sequence[Channel]:
        return [self.channel]

    def read(self) -> Sequence[Reading]:
        return [Reading(self.channel, SystemClock().monotonic_s(), 100.0)]

    def close(self) -> None:
        self.closed += 1


def real_meter(folder: Path, *sources: Any, **settings: Any) -> EnergyMeter:
    """A meter on real time."""
    config = EnergyConfig(report_dir=folder / "energy", sample_interval_s=0.05)
    return EnergyMeter(config=config, sources=sources or [Steady()], **settings)


def test_scalars_never_raise(tmp_path: Path, clock: FakeClock) -> None:
    """An internal error does not raise in ``scalars``."""
    meter = meter_of(tmp_path, clock)
    meter.start()
    assert meter._lifecycle.attempt is not None
    meter._lifecycle.attempt.board.take = _broken  # type: ignore[method-assign]
    assert not meter.scalars()


class FailingOutput(InMemoryOutput):
    """A tracking service that is down."""

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        raise ConnectionError("service is down")

    def close(self) -> None:
        raise ConnectionError("service is down")


def test_an_output_that_fails_does_not_end_measuring(tmp_path: Path, clock: FakeClock) -> None:
    """A tracking service that is down loses its rows, not the energy report."""
    good = InMemoryOutput()
    failing = FailingOutput()
    failing.close = lambda: None  # type: ignore[method-assign]
    with meter_of(tmp_path, clock, outputs=[failing, good]) as meter:
        train(meter, clock)
        meter.log(20)
        assert meter.is_running
    assert good.rows
    assert of(meter, "totals")


def test_an_output_that_cannot_be_closed_does_not_harm(tmp_path: Path, clock: FakeClock) -> None:
    """The end of a ``with`` block does not raise an error of an output."""
    with meter_of(tmp_path, clock, outputs=[FailingOutput()]):
        clock.advance(1.0)


def test_counts_of_other_libraries_are_numbers(tmp_path: Path, clock: FakeClock) -> None:
    """Samples as a numpy integer or a tensor of one number, an epoch as numpy: plain numbers."""
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    with meter_of(tmp_path, clock) as meter, meter.phase("train"):
        for samples in (np.int64(8), torch.tensor(8), 8):
            clock.advance(2.0)
            meter.step(samples=samples)
        meter.epoch(np.int64(3))
    assert [pool["samples"] for pool in of(meter, "steps")] == [8.0, 8.0, 8.0]
    assert of(meter, "epoch")[0]["epoch"] == 3


# --- real threads


def test_a_run_on_real_threads_adds_up_and_leaves_none_behind(tmp_path: Path) -> None:
    """At 100 W, joules are watts times seconds of each phase, and all threads end."""
    source = Steady()
    meter = real_meter(tmp_path, source)
    with meter, meter.phase("train"):
        attempt = meter._lifecycle.attempt
        assert attempt is not None
        until(lambda: attempt.recorder.settled_s > attempt._start_s + 0.1)
        # Threads may begin late: the beginning is then not measured.
        until(lambda: meter.energy(attempt._start_s, meter.now_s(), "gpu").coverage > 0.6)
        meter.step(samples=8)
        until(meter.scalars)
    totals = of(meter, "totals")[0]
    assert source.closed == 1
    spans = of(meter, "span")
    parts_j = sum(span["energy"]["gpu0"]["energy_j"] or 0.0 for span in spans if span["energy"])
    total = totals["energy"]["gpu0"]
    assert parts_j == pytest.approx(total["energy_j"], rel=1e-9)
    assert total["energy_j"] == pytest.approx(100.0 * totals["t_s"] * total["coverage"], rel=1e-6)
    assert total["coverage"] > 0.5
    until(lambda: not any(t.name.startswith("energy_callbacks") for t in threading.enumerate()))


def test_events_of_a_training_do_not_wait_for_the_timeline(
    tmp_path: Path, clock: FakeClock
) -> None:
    """While another thread holds the timeline's lock, no event of a training waits."""
    meter = meter_of(tmp_path, clock).start()
    taken, free, done = threading.Event(), threading.Event(), threading.Event()

    def hold() -> None:
        assert meter._lifecycle.attempt is not None
        with meter._lifecycle.attempt.timeline._lock:
            taken.set()
            free.wait(AT_MOST_S)

    def train_a_step() -> None:
        meter.plan(10)
        meter.resumed(5)
        meter.enter("train")
        meter.data_ready()
        meter.mark("mine")
        meter.step(samples=8)
        meter.count(tokens=9)
        meter.window("checkpoint", 1000.0, 1001.0)
        meter.epoch(1)
        meter.record_metrics({"loss": 1.0})
        meter.leave("train")
        done.set()

    threads = [threading.Thread(target=one, daemon=True) for one in (hold, train_a_step)]
    threads[0].start()
    assert taken.wait(AT_MOST_S)
    threads[1].start()
    was_waiting = not done.wait(AT_MOST_S / 2.0)
    free.set()
    for thread in threads:
        thread.join(AT_MOST_S)
    assert not was_waiting
    assert meter.is_running
    meter.stop()


# --- copies and children


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
@pytest.mark.parametrize("is_running", [False, True])
def test_a_copy_of_a_meter_does_not_run(
    tmp_path: Path, twin_of: Callable[[EnergyMeter], EnergyMeter], is_running: bool
) -> None:
    """A copied or pickled meter is not running, even if the original has an open event file."""
    meter = real_meter(tmp_path, outputs=[TensorBoardOutput(tmp_path / "events")])
    if is_running:
        meter.start()
        until(lambda: meter.log(1))
    twin = twin_of(meter)
    assert not twin.is_running
    assert meter.is_running is is_running
    assert twin.config == meter.config
    use(twin)
    assert twin.scalars() == {}
    assert twin.run_id is None
    assert meter.is_running is is_running
    meter.stop()
    meter.close()
    with twin:
        assert twin.is_running


def test_a_running_meter_on_a_fake_clock_can_be_copied(tmp_path: Path, clock: FakeClock) -> None:
    """Frameworks copy callbacks, also in tests with virtual time."""
    meter = meter_of(tmp_path, clock)
    meter.start()
    clock.advance(1.0)
    twin = copy.deepcopy(meter)
    assert not twin.is_running
    assert meter.is_running
    meter.stop()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[EnergyMeter]:
    """A running meter on real threads."""
    meter = real_meter(tmp_path)
    meter.start()
    attempt = meter._lifecycle.attempt
    assert attempt is not None
    until(lambda: attempt.recorder.settled_s > attempt._start_s)
    yield meter
    meter.stop()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_in_a_forked_child_every_method_does_nothing(running: EnergyMeter) -> None:
    """A worker process with a copy of the meter neither writes to nor stops the parent's run."""
    assert running.run_folder is not None
    path = journal.find(running.run_folder)[0]

    def work() -> bool:
        size = path.stat().st_size
        use(running)
        return (
            not running.is_running and running.scalars() == {} and running.log(1) == {} and size > 0
        )

    assert in_a_child(work) == 0
    assert running.is_running
    assert {line["pid"] for line in lines(running) if line["type"] == "header"} == {os.getpid()}
    assert not [line for line in of(running, "phase") if line["phase"] in ("train", "test")]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_question_in_a_forked_child_does_not_hang(running: EnergyMeter) -> None:
    """A child that was forked while a lock was held gets an unknown energy at once."""
    assert running._lifecycle.newest is not None
    held, release = threading.Event(), threading.Event()

    def hold(lock: Any) -> None:
        with lock:
            held.set()
            release.wait(AT_MOST_S)

    holder = threading.Thread(target=hold, args=(running._lifecycle.newest.timeline._lock,))
    holder.start()
    assert held.wait(AT_MOST_S)
    code = in_a_child(lambda: running.energy(0.0, 1.0).energy_j is None)
    release.set()
    holder.join(AT_MOST_S)
    assert code == 0


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_writes_no_report(running: EnergyMeter) -> None:
    """Only the parent writes the report."""
    assert running.run_folder is not None
    in_a_child(lambda: running.save_report() is None)
    assert not list(running.run_folder.glob("energy_report.*"))


# --- the report


def test_the_report_is_written_and_summed_up_in_one_line(tmp_path: Path, clock: FakeClock) -> None:
    """Three files in the run folder, and a summary of one line with the first path."""
    meter = meter_of(tmp_path, clock)
    with meter:
        train(meter, clock)
    summary = meter.save_report()
    assert summary is not None
    assert "\n" not in summary
    names = sorted(path.name for path in (tmp_path / "energy").glob("energy_report.*"))
    assert names == ["energy_report.html", "energy_report.json", "energy_report.txt"]


def test_a_report_of_a_meter_that_was_never_started(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written, and a warning says why, unless measuring is disabled."""
    assert EnergyMeter().save_report() is None
    [warning] = caplog.messages
    assert "no report is written: the meter was never started" in warning
    assert "call start()" in warning
    monkeypatch.setenv(DISABLED_VARIABLE, "1")
    assert EnergyMeter().save_report() is None
    assert len(caplog.messages) == 1


def test_the_report_can_be_asked_for_at_any_time(tmp_path: Path, clock: FakeClock) -> None:
    """During a run, the report covers the readings so far."""
    with meter_of(tmp_path, clock) as meter:
        train(meter, clock)
        clock.advance(1.0)
        so_far = meter.report().energy.total.energy_j
        assert so_far == pytest.approx(4000.0, rel=0.1)


# --- steps timed by the device


def queue_ahead(meter: EnergyMeter, clock: FakeClock, device: ScriptedDevice) -> dict[str, float]:
    """Ten steps of a second are queued at once; the figures after four and a half seconds."""
    with meter, meter.phase("train"):
        clock.advance(1.0)
        for _ in range(10):
            device.launch(1.0)
            meter.step(samples=64)
        clock.advance(4.6)
        found = meter.scalars()
        clock.advance(10.0)
    return found


def test_step_events_follow_the_device(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of ten queued steps are done at 200 W: 250 J each, with the second before them."""
    device = ScriptedDevice(clock)
    monkeypatch.setattr(cuda_events, "open_events", lambda: device)
    config = EnergyConfig(report_dir=tmp_path, step_events=True)
    meter = EnergyMeter(config=config, sources=[card(clock)], clock=clock)
    found = queue_ahead(meter, clock, device)
    assert found["efficiency/gpu_j_per_step"] == pytest.approx(250.0, rel=1e-3)
    assert found["throughput/samples_per_s"] == pytest.approx(4 * 64 / 5.0, rel=1e-3)
    pools = of(meter, "steps")
    assert sum(pool["steps"] for pool in pools) == 10
    assert all(0.0 < pool["end_error_s"] < 1e-3 for pool in pools)
    assert not [line for line in lines(meter) if line["type"] == "warning"]
    assert of(meter, "header")[0]["config"]["step_events"] is True
    assert device.alive == []


def test_step_events_are_off_unless_asked_for(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default steps have no events: they end when they were queued."""
    device = ScriptedDevice(clock)
    monkeypatch.setattr(cuda_events, "open_events", lambda: device)
    config = EnergyConfig(report_dir=tmp_path, phase_events=False)
    meter = EnergyMeter(config=config, sources=[card(clock)], clock=clock)
    found = queue_ahead(meter, clock, device)
    assert found["efficiency/gpu_j_per_step"] == pytest.approx(20.0, rel=1e-3)
    assert device.events == []
    assert of(meter, "steps")[0]["end_error_s"] is None


@pytest.mark.parametrize("has_events", [True, False])
def test_phase_events_follow_the_device(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, has_events: bool
) -> None:
    """The host is 50 to 150 ms ahead of a card that draws 400 W, and 100 W in validations.

    With events, a validation has its energy within 1 %. Without, its length on the card is unknown.
    """
    device, edges_s = ScriptedDevice(clock), [clock.monotonic_s()]
    monkeypatch.setattr(cuda_events, "open_events", lambda: device)
    dice = np.random.default_rng(0)

    def energy_j(t_s: float) -> float:
        ends_s = np.minimum([*edges_s[1:], math.inf], t_s)
        return float(np.maximum(ends_s - edges_s, 0.0) @ np.resize([400.0, 100.0], len(edges_s)))

    def work(duration_s: float) -> None:
        device.launch(duration_s)
        clock.advance(device.done_s - dice.uniform(0.05, 0.15) - clock.monotonic_s())
        edges_s.append(device.done_s)

    gpu = Device(key="gpu0", kind="gpu", scope="gpu", name="simulated", uuid="GPU-1")
    source = ScriptedSource(
        clock, power_w=lambda _: 1.0, energy_j=energy_j, kind="mean", device=gpu
    )
    config = EnergyConfig(report_dir=tmp_path, phase_events=has_events)
    with EnergyMeter(config=config, sources=[source], clock=clock) as meter, meter.phase("train"):
        for _ in range(20):
            work(2.0)
            with meter.phase("validation"):
                work(1.0)
        clock.advance(1.0)
    by_name = {phase.name: phase.gpu for phase in meter.report().phases}
    found = by_name["validation"]
    assert found.energy_j == pytest.approx(2000.0, abs=found.error_j)
    assert (found.error_j < 20.0) == has_events
    assert device.alive == []


def test_step_events_without_a_device_say_so(tmp_path: Path, clock: FakeClock) -> None:
    """If no step can be timed, there is one warning, and the run is as without events."""
    config = EnergyConfig(report_dir=tmp_path, step_events=True)
    with EnergyMeter(config=config, sources=[card(clock)], clock=clock) as meter:
        train(meter, clock)
    warnings = [line for line in lines(meter) if line["type"] == "warning"]
    assert [line["code"] for line in warnings] == ["step_events"]
    assert "0 of 20 steps" in warnings[0]["message"]
    assert meter.totals()["efficiency/gpu_j_per_sample"] == pytest.approx(3.125, rel=1e-6)


def test_waiting_until_sensors_have_told(tmp_path: Path) -> None:
    """Waits until the readings arrive or the timeout; returns at once if nothing is measured."""
    clock = BusyClock()
    source = ScriptedSource(clock, power_w=lambda t_s: 200.0, interval_s=0.3)
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[source], clock=clock)
    with meter:
        clock.advance(5.0)
        now_s = clock.monotonic_s()
        assert meter._wait_until_seen(now_s, 3.0)
        assert clock.monotonic_s() - now_s <= 0.35
        assert meter.energy(now_s - 1.0, now_s, "gpu").coverage == 1.0
        now_s = clock.monotonic_s()
        assert not meter._wait_until_seen(now_s + 100.0, 0.5)
        assert clock.monotonic_s() - now_s == pytest.approx(0.5)
    assert not meter._wait_until_seen(now_s, 10.0)
    assert clock.monotonic_s() - now_s < 1.0


def test_arguments_of_a_wrong_type_are_refused(tmp_path: Path) -> None:
    """At once, with what was passed and what to write instead."""
    wrong: Any
    for wrong, message in (
        ({"config": {"country": "DEU"}}, "config must be EnergyConfig(...), got {'country'"),
        ({"outputs": TensorBoardOutput(tmp_path)}, "outputs must be a list, got <"),
        ({"outputs": "tensorboard"}, "outputs must be a list, got 'tensorboard'"),
        ({"outputs": [print]}, "an output has the methods write and close, got <built-in"),
        ({"outputs": [InMemoryOutput]}, "an output has the methods write and close, got <class"),
        ({"clock": 3}, "monotonic_s, unix_s, sleep and every, got 3; leave clock out"),
        ({"clock": FakeClock}, "monotonic_s, unix_s, sleep and every, got <class"),
        ({"sources": "nvml"}, "sources must be a list, got 'nvml'; leave sources out for"),
        ({"sources": 5}, "sources must be a list, got 5"),
        ({"sources": ["nvml"]}, "a source has the methods open, read and close, got 'nvml'; leave"),
    ):
        with pytest.raises(TypeError, match=re.escape(message)):
            EnergyMeter(**wrong)
    with pytest.raises(TypeError, match=re.escape("meter must be EnergyMeter(...), got 3")):
        meter_from({"meter": 3}, ())  # type: ignore[typeddict-item]


def test_measure_needs_a_name() -> None:
    """``@meter.measure`` without a name would replace the function by another one."""
    with pytest.raises(TypeError, match=re.escape("write @meter.measure('predict')")):
        EnergyMeter().measure(len)  # type: ignore[arg-type]


def test_a_state_that_is_none_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    """Otherwise a resumed training would silently begin a new run; an empty state does."""
    meter = meter_of(tmp_path, clock)
    with pytest.raises(TypeError, match=r"state must be a result of state\(\), got 'abc'"):
        meter.start(state="abc")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a dictionary with model, epoch"):
        meter.start(state={"model": {}, "epoch": 3})
    assert not meter.is_running
    with meter.start(state={}):
        assert meter.is_running


@pytest.mark.parametrize("method", ["data_ready", "batch_done", "mark"])
def test_events_at_wrong_times_are_refused(tmp_path: Path, clock: FakeClock, method: str) -> None:
    """At the call, with the value; the measurement goes on and has all energy."""
    wrong: Any
    with meter_of(tmp_path, clock) as meter, meter.phase("train"):
        call = partial(meter.mark, "compiled") if method == "mark" else getattr(meter, method)
        clock.advance(10.0)
        for wrong in ("now", [1], b"x"):
            with pytest.raises(TypeError, match=rf"{method}\(\) .* got {re.escape(repr(wrong))}"):
                call(wrong)
        for wrong in (clock.unix_s(), math.nan, math.inf):
            with pytest.raises(ValueError, match=rf"{method}\(\) .* got {wrong!r}, now is 1010"):
                call(wrong)
        call(np.float64(1010.0 + 1e-9))
        clock.advance(10.0)
    assert meter.report().run.status == "finished"
    assert meter.report().energy.total.energy_j == pytest.approx(4000.0)
    assert len(of(meter, "mark")) == (method == "mark")


def test_a_plan_that_is_no_whole_number_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    """Before, a forecast ended the measurement, or could not be read."""
    wrong: Any
    with meter_of(tmp_path, clock) as meter:
        for wrong in ("10", None, 62.5, math.nan, math.inf):
            with pytest.raises(TypeError, match=rf"plan\(\) .* got {wrong!r}; pass int\(steps\)"):
                meter.plan(wrong)
        meter.plan(np.int64(100))
        train(meter, clock, steps=50)
    forecast = meter.report().forecast
    assert forecast is not None
    assert forecast.planned_steps == 100


def test_an_energy_of_the_future_is_refused(tmp_path: Path, clock: FakeClock) -> None:
    """Usually its times are those of another clock, such as time.time()."""
    with meter_of(tmp_path, clock) as meter:
        clock.advance(2.0)
        with pytest.raises(ValueError, match="is in the future, now is"):
            meter.energy(clock.unix_s() - 1.0, clock.unix_s())


def test_wrong_counts_and_metrics_do_not_end_the_measurement(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Counts that are no numbers are unknown; each mistake is logged once."""
    wrong: Any
    with meter_of(tmp_path, clock) as meter, meter.phase("train"):
        for wrong in ("many", [1, 2], math.nan, -8, math.inf):
            clock.advance(2.0)
            meter.step(samples=wrong, tokens=10)
            meter.record_metrics(wrong)
            meter.log(1)
    report = meter.report()
    assert report.run.status == "finished"
    assert report.throughput.steps == 5
    assert (report.throughput.samples, report.throughput.tokens) == (None, 50)
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        "record_metrics takes a dictionary, got 'many'",
        "the number of samples of a step must be a finite number of at least 0, got 'many'",
    ]


def test_steps_and_epochs_that_are_no_numbers_are_unknown(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The metrics are kept; each mistake is logged once."""
    wrong: Any
    with meter_of(tmp_path, clock) as meter, meter.phase("train"):
        meter.resumed("7")  # type: ignore[arg-type]
        for wrong in ("1", [1], 1.5, math.nan):
            clock.advance(2.0)
            meter.record_metrics({"loss": 0.5}, step=wrong, epoch=1)
        meter.record_metrics({"loss": 0.5}, step=np.int64(8), epoch="2")  # type: ignore[arg-type]
    report = meter.report()
    assert "damaged_lines" not in {warning.code for warning in report.warnings}
    assert report.run.status == "finished"
    assert [(one["step"], one["epoch"]) for one in of(meter, "metrics")] == [
        *[(None, 1)] * 4,
        (8, None),
    ]
    assert of(meter, "resume") == []
    first, second = (record.getMessage().split(";")[0] for record in caplog.records)
    assert first == "resumed() needs a whole number of steps, got '7'"
    assert second.endswith("and a number as epoch, got step='1' and epoch=1")


def test_wrong_times_of_windows_do_not_end_the_measurement(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Such windows are ignored, with one warning; later windows have their energy."""
    wrong: Any
    with meter_of(tmp_path, clock) as meter, meter.phase("train"):
        clock.advance(10.0)
        for wrong in (clock.unix_s(), "9:15", None, math.nan, math.inf):
            meter.window("wrong", meter.now_s() - 1.0, wrong)
            meter.window("wrong", wrong, wrong)
        meter.window("validation", meter.now_s() - 3.0, meter.now_s())
    assert [(one["name"], one["end_s"] - one["start_s"]) for one in of(meter, "window")] == [
        ("validation", 3.0)
    ]
    assert meter.report().run.status == "finished"
    [warning] = (record.getMessage() for record in caplog.records)
    assert "needs two past times of now_s(), got 1009.0 and 1700000010.0, now is" in warning


def test_the_report_of_a_disabled_meter_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Advice to call start() would not help."""
    monkeypatch.setenv(DISABLED_VARIABLE, "1")
    with EnergyMeter() as meter, pytest.raises(JournalError, match=f"{DISABLED_VARIABLE} disables"):
        meter.report()

"""Tests of ``KernelProfiler`` in a meter on virtual time.

The traces are known: a kernel runs for 6 ms of every 10 ms.
"""

import copy
import gzip
import json
import math
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.core.records import Energy
from energy_callbacks.profiling.kernels import KernelProfiler, findings
from energy_callbacks.profiling.kernels.schedule import Schedule, Stretch
from energy_callbacks.report.model.profile_kernels import KernelProfile
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.profiling.kernels.cuda_trace import GEMM, Work, trace
from tests.profiling.kernels.lab import FakeRecorder

STEP_S, POWER_W = 0.01, 300.0


class Bench:
    """A training on virtual time with a profiler."""

    def __init__(self, folder: Path, profiler: KernelProfiler, *, has_sensor: bool = True) -> None:
        self.clock = FakeClock()
        sources = [ScriptedSource(self.clock, power_w=lambda _: POWER_W)] if has_sensor else []
        self.meter = EnergyMeter(
            config=EnergyConfig(report_dir=folder),
            sources=sources,
            clock=self.clock,
            profilers=[profiler],
        )

    def train(self, steps: int, step_s: float = STEP_S) -> None:
        """Trains steps of one length in the phase ``train``."""
        with self.meter.phase("train"):
            for _ in range(steps):
                self.clock.advance(step_s)
                self.meter.step(samples=32)

    def found(self) -> KernelProfile:
        """Returns the kernel profile in the report."""
        profile = self.meter.report().profile
        assert profile is not None
        assert profile.kernels is not None
        return profile.kernels


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeRecorder]:
    """Returns a function that installs the recorder of all windows."""
    return lambda **given: FakeRecorder(**given).install(monkeypatch)


def test_the_whole_way(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """At 300 W a step takes 3 J, of which the kernel has 60 %.

    Windows open after 10, 50 and 250 steps; a step is measured between windows.
    """
    recorder = fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10, 50, 250)))
    with bench.meter:
        bench.train(400)
    assert recorder.told == ["open", *["step"] * 4, "close"] * 3
    found = bench.found()
    assert (found.windows, found.steps, found.measured_steps) == (3, 400, 6)
    assert found.step_s == pytest.approx(STEP_S)
    assert found.j_per_step == pytest.approx(POWER_W * STEP_S, rel=0.01)
    assert found.overhead == pytest.approx(0.0, abs=1e-9)
    assert found.busy_share == pytest.approx(0.6)
    classes = {row.name: row for row in found.classes}
    assert classes["matrix product"].energy_j == pytest.approx(1.8, rel=0.01)
    assert sum(row.energy_j or 0.0 for row in found.classes) == pytest.approx(found.j_per_step)
    assert found.scope == "gpu"
    for file in (*found.traces, found.folded, found.speedscope):
        assert file is not None
        assert (tmp_path / file).is_file()
    assert len(found.traces) == 3


def test_the_energy_of_a_step_has_the_edges_of_its_stretches() -> None:
    """Two stretches of 50 steps with 6 J from edges each: 0.12 J a step, or it is not resolved."""
    stretches = [Stretch(start_s=s, end_s=s + 1.0, steps=50) for s in (0.0, 2.0)]

    def found(edge_j: float) -> Energy:
        energy = Energy(energy_j=150.0, edge_j=edge_j, method="power", coverage=1.0)
        meter = SimpleNamespace(
            wait_until_seen=lambda until_s, patience_s: True,
            energy=lambda start_s, end_s, _: energy,
        )
        run = SimpleNamespace(meter=meter, schedule=SimpleNamespace(stretches=stretches))
        return findings._step_energy(run, "gpu")

    assert found(6.0).edge_j == pytest.approx(0.12)
    assert found(6.0).energy_j == pytest.approx(3.0)
    assert found(80.0) == Energy(energy_j=None)


def test_the_trace_has_power_beside_its_kernels(
    tmp_path: Path, fake: Callable[..., FakeRecorder]
) -> None:
    """The trace has the power of sensors on its own clock; the uncompressed file is removed."""
    fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(100,)))
    with bench.meter:
        bench.train(400)
    kept = tmp_path / bench.found().traces[0]
    assert not list((tmp_path / "profile").glob("kernels-*.json"))
    with gzip.open(kept, "rt") as file:
        document = json.load(file)
    power = [line for line in document["traceEvents"] if line["name"] == "gpu0 power (W)"]
    assert {round(line["args"]["W"]) for line in power} == {300}
    base_s = document["baseTimeNanoseconds"] / 1e9
    zero_unix_s = bench.clock.unix_s() - bench.clock.monotonic_s()
    window_s = 1000.0 + 100 * STEP_S + zero_unix_s  # FakeClock begins at 1000
    seen_s = [base_s + line["ts"] / 1e6 for line in power]
    assert min(seen_s) < window_s < window_s + 0.05 < max(seen_s)


def test_windows_wait_until_they_are_affordable(
    tmp_path: Path, fake: Callable[..., FakeRecorder]
) -> None:
    """At 1 s per window and a limit of 5 %, the second opens after 40 s, the third after 60 s."""
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10, 50, 250)))
    opened: list[float] = []

    def cost() -> None:
        opened.append(bench.clock.monotonic_s() - 1000.0)
        bench.clock.advance(0.5)

    fake(cost=cost)
    with bench.meter:
        bench.train(9000)
    starts = opened[::2]
    assert starts == pytest.approx([0.1, 40.0, 60.0], abs=0.2)
    overhead = bench.found().overhead
    assert overhead is not None
    assert overhead == pytest.approx(3.0 / 90.0, rel=0.02)


@pytest.mark.parametrize("max_overhead", [0.01, 0.05])
def test_the_averaged_cost_stays_below_the_budget(max_overhead: float) -> None:
    """The limit holds from the second window on; the cost of the first is not known before."""
    schedule = Schedule((10, 20, 30, 40, 50, 60), 5, max_overhead)
    t_s, spent_s, closed = 0.0, 0.0, 0
    for step in range(200_000):
        t_s += 0.01
        action = schedule.step(t_s)
        if action in ("open", "close"):
            spent_s += 0.3
            t_s += 0.3
            closed += action == "close"
        if closed > 1 and action == "close":
            assert spent_s <= max_overhead * t_s, step
    assert closed == 6
    assert schedule.cost_s == pytest.approx(spent_s, rel=0.01)


def test_another_phase_ends_a_window(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """A validation within a window drops the window, and another one is recorded later."""
    recorder = fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)))
    with bench.meter:
        bench.train(12)
        assert recorder.told == ["open", "step", "step", "abort"]
        assert not recorder.is_running
        with bench.meter.phase("validation"):
            bench.clock.advance(100.0)
        bench.train(30)
    found = bench.found()
    assert found.windows == 1
    assert found.step_s == pytest.approx(STEP_S)  # the validation is in no step


def test_the_training_ends_in_a_window(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """The end of the training stops the profiler, and the report states why there is no profile."""
    recorder = fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)))
    bench.meter.start()
    for _ in range(12):
        bench.clock.advance(STEP_S)
        bench.meter.step()
    bench.meter.stop(RuntimeError("the training failed"))
    assert recorder.told[-1] == "abort"
    assert not recorder.is_running
    found = bench.found()
    assert found.windows == 0
    assert "no window was recorded in 12 steps" in found.notes[0]


@pytest.mark.parametrize("moment", ["open", "step", "close"])
def test_a_recorder_that_fails_ends_itself_alone(
    tmp_path: Path,
    fake: Callable[..., FakeRecorder],
    caplog: pytest.LogCaptureFixture,
    moment: str,
) -> None:
    """A failing recorder is stopped with a warning; training and report continue."""
    recorder = fake(fails=moment)
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)))
    with bench.meter:
        bench.train(100)
    assert not recorder.is_running
    assert f"{moment} failed" in caplog.text
    assert bench.meter.report().throughput.steps == 100


def test_a_trace_that_is_too_large_is_the_last(
    tmp_path: Path, fake: Callable[..., FakeRecorder]
) -> None:
    """After a trace that is too large, no more windows open; the report has a note."""
    recorder = fake(too_large=True)
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10, 50)))
    with bench.meter:
        bench.train(100)
    assert recorder.told.count("open") == 1
    assert list((tmp_path / "profile").iterdir()) == []
    assert "too large" in bench.found().notes


def test_the_cap_is_of_all_windows(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """The limit of the second window is what the first one left."""
    recorder = fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10, 50), max_trace_bytes=1_000_000))
    with bench.meter:
        bench.train(30)
        assert recorder.max_bytes == 1_000_000
        bench.train(50)
    assert recorder.max_bytes < 1_000_000


def test_memory_does_not_grow_over_100_000_steps() -> None:
    """Memory does not grow after 20,000 steps, with an interruption every 100 steps."""
    schedule = Schedule((10, 50, 250, 1000), 5, 0.05)

    def run(first: int, last: int) -> None:
        for step in range(first, last):
            schedule.step(0.01 * step)
            if step % 100 == 0:
                schedule.interrupt()

    run(0, 20_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run(20_000, 120_000)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 20_000


def test_the_first_steps_are_unlike_the_others(
    tmp_path: Path, fake: Callable[..., FakeRecorder]
) -> None:
    """Slow first steps, which compile and tune, do not count: steps after a window do."""
    fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)))
    with bench.meter:
        with bench.meter.phase("train"):
            for _ in range(5):
                bench.clock.advance(1.0)
                bench.meter.step()
        bench.train(300)
    found = bench.found()
    assert found.step_s == pytest.approx(STEP_S)
    assert found.j_per_step == pytest.approx(POWER_W * STEP_S, rel=0.01)


def test_other_ranks_record_nothing(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """Ranks other than the first record only with ``all_ranks``."""
    for all_ranks, windows in ((False, 0), (True, 1)):
        recorder = fake()
        profiler = KernelProfiler(windows_after=(10,), all_ranks=all_ranks)
        bench = Bench(tmp_path / str(all_ranks), profiler)
        bench.meter._start(process=TrainingProcess(rank=1, local_rank=1, world_size=2))
        bench.train(50)
        bench.meter.stop()
        assert recorder.told.count("open") == windows


def test_without_a_sensor(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """Without a sensor, times are known, energy is not, and no flame graph is written."""
    fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)), has_sensor=False)
    with bench.meter:
        bench.train(50)
    found = bench.found()
    assert found.busy_share == pytest.approx(0.6)
    assert {row.energy_j for row in found.classes} == {None}
    assert (found.j_per_step, found.folded, found.speedscope) == (None, None, None)


def test_the_record_is_small(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """3,000 kernels with names of 1,000 characters fit into 200 kB and still add up."""
    from tests.profiling.kernels.cuda_trace import Work, trace

    work = [
        Work(
            name=f"kernel{i}" + "x" * 1000,
            asked_us=0.1 * i,
            start_us=0.5 * i,
            duration_us=0.5,
        )
        for i in range(3_000)
    ]
    fake(document=lambda: trace(work))
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)))
    with bench.meter:
        bench.train(50)
    lines = next(tmp_path.glob("attempts/*/*.jsonl")).read_text().splitlines()
    (line,) = [one for one in lines if '"profile"' in one]
    assert len(line) < 200_000
    found = bench.found()
    kernels_s = sum(row.time_s for row in found.kernels)
    assert kernels_s == pytest.approx(0.0015)
    assert found.kernels[-1].name == "2960 others"


def test_a_second_attempt_begins_afresh(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """A second attempt counts steps from its own start."""
    recorder = fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)))
    for _ in range(2):
        with bench.meter:
            bench.train(30)
    assert recorder.told.count("open") == 2
    assert bench.found().steps == 30


def test_copies_profile_nothing_yet() -> None:
    """Copies of a profiler have its settings and no run."""
    profiler = KernelProfiler(flops_per_step=1e12)
    for other in (pickle.loads(pickle.dumps(profiler)), copy.deepcopy(profiler)):
        assert other.flops_per_step == 1e12
        other.step(1.0)
        other.stop()


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"windows_after": ()}, "windows_after"),
        ({"windows_after": (50, 10)}, "windows_after"),
        ({"windows_after": (0,)}, "windows_after"),
        ({"windows_after": 10}, "windows_after"),
        ({"windows_after": (1.5, 3)}, "windows_after"),
        ({"active_steps": 1}, "active_steps"),
        ({"active_steps": 2.5}, "active_steps"),
        ({"active_steps": "3"}, "active_steps"),
        ({"max_events": 0}, "max_events"),
        ({"max_trace_bytes": -1}, "max_trace_bytes"),
        ({"warm_up_steps": 0}, "warm_up_steps"),
        ({"max_overhead": 0.0}, "max_overhead"),
        ({"flops_per_step": -1.0}, "flops_per_step"),
        ({"flops_per_step": math.inf}, "flops_per_step"),
        ({"framework": "mxnet"}, "framework"),
    ],
)
def test_settings_that_make_no_sense(given: dict[str, Any], what: str) -> None:
    """Invalid settings raise an error that names the setting."""
    with pytest.raises(ValueError, match=what):
        KernelProfiler(**given)


def test_windows_that_are_lost_have_their_cost_too() -> None:
    """If a validation every four steps drops every window, few are opened and their cost counts."""
    schedule = Schedule((10, 50, 250, 1000), 5, 0.05)
    t_s, opened, cost_s = 0.0, 0, 0.0
    for step in range(1, 4001):
        t_s += 0.1
        if schedule.step(t_s) == "open":
            opened += 1
            t_s += 1.0
            cost_s += 1.0
        if step % 4 == 0:
            schedule.abort(t_s)
    assert opened < 25
    assert cost_s < 0.06 * t_s
    assert schedule.cost_s == pytest.approx(cost_s, rel=0.1)


def test_what_closing_took_is_not_lost_with_the_phase() -> None:
    """The cost of closing a window is known also if a validation follows immediately."""
    schedule = Schedule((10, 20), 5, 0.05)
    t_s = 0.0
    for _ in range(60):
        t_s += 0.1
        if schedule.step(t_s) == "close":
            t_s += 5.0
            schedule.abort(t_s)
    assert schedule.cost_s == pytest.approx(5.0, rel=0.05)


def test_the_first_window_opens_after_the_first_step(
    tmp_path: Path, fake: Callable[..., FakeRecorder]
) -> None:
    """If all other steps are in the window, its cost has nothing to be compared with."""
    fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(1,)))
    with bench.meter:
        bench.train(6)
    found = bench.found()
    assert (found.windows, found.measured_steps) == (1, 2)
    assert found.overhead is None


def test_the_cost_of_the_last_window_is_a_part_of_the_training() -> None:
    """A window that costs 90 s of 100 s prolongs the training to ten times its usual duration."""
    schedule = Schedule((4,), 10, 0.05)
    for step in range(10):
        schedule.step(float(step))
    schedule.abort(100.0)
    assert schedule.cost_s == pytest.approx(91.0)
    assert schedule.overhead == pytest.approx(91.0 / 9.0)


def test_a_trace_that_cannot_be_read(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """Other windows are evaluated, and the report names the trace: PyTorch may write bad JSON."""
    recorder = fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10, 50), max_overhead=1.0))
    with bench.meter:
        bench.train(30)
        recorder.path.with_suffix(".json").write_text('{"traceEvents": [{"name": "a"b"}]}')
        bench.train(70)
    found = bench.found()
    assert (found.windows, found.measured_steps) == (2, 2)
    assert found.traces[0] == "profile/kernels-0-1.json"
    assert "the trace of window 1 could not be read" in found.notes[0]


def test_no_trace_can_be_read(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """The report does not state that the windows were empty."""
    recorder = fake()
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)))
    with bench.meter:
        bench.train(30)
        recorder.path.with_suffix(".json").write_text("{")
    (note,) = bench.found().notes
    assert "the trace of window 1 could not be read" in note


def test_kernels_without_a_duration(tmp_path: Path, fake: Callable[..., FakeRecorder]) -> None:
    """If no kernel takes time, the shares of the parts of a step are unknown."""
    fake(document=lambda: trace([Work(name=GEMM, asked_us=0.0, start_us=10.0, duration_us=0.0)]))
    bench = Bench(tmp_path, KernelProfiler(windows_after=(10,)))
    with bench.meter:
        bench.train(30)
    assert (bench.found().measured_steps, bench.found().parts) == (2, None)

"""Tests of LineProfiler in a meter, with programs whose shares are known."""

import copy
import json
import logging
import os
import pickle
import threading
import time
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.records import Device
from energy_callbacks.profiling.common.line_tracker import LineTracker
from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.frameworks import torch_kernels
from energy_callbacks.profiling.lines import LineProfiler
from energy_callbacks.report import build
from energy_callbacks.report.render import html
from energy_callbacks.report.render.text import render
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.profiling.lines import scripts, virtual
from tests.profiling.lines.traces import BASE_NS, launch, trace

CPU = Device(key="cpu0", kind="cpu", scope="host", name="scripted processor")


def meter_of(folder, clock, profiler, *, with_gpu=False):
    """Return a meter of a host with 50 W, and optionally a GPU with 300 W."""
    sources = [ScriptedSource(clock, power_w=lambda t_s: 50.0, device=CPU, interval_s=0.05)]
    if with_gpu:
        sources.append(ScriptedSource(clock, power_w=lambda t_s: 300.0, interval_s=0.05))
    config = EnergyConfig(report_dir=folder)
    return EnergyMeter(sources=sources, clock=clock, config=config, profilers=[profiler])


def found_in(folder):
    """Return the line profile of the report."""
    profile = build(folder).profile
    assert profile is not None
    assert profile.lines is not None
    return profile.lines


def measured(folder, program, *, profiler=None):
    """Run a real program in the phase train; returns the line profile of the report."""
    profiler = profiler or LineProfiler(rate_hz=100.0, max_overhead=0.9)
    meter = meter_of(folder, SystemClock(), profiler)
    with meter, meter.phase("train"):
        program()
        end_s = time.monotonic() + 60.0
        while not profiler._run._sampler.looks:  # on a busy machine, the first one may be late
            assert time.monotonic() < end_s
    return found_in(folder)


@pytest.fixture
def played(monkeypatch):
    """Runs a virtual program in the phase train; returns the line profile of the report."""
    interpreter = virtual.Interpreter(FakeClock()).install(monkeypatch)

    def run(folder, program, *, with_gpu=False, profiler=None):
        profiler = profiler or LineProfiler(rate_hz=100.0)
        meter = meter_of(folder, interpreter.clock, profiler, with_gpu=with_gpu)
        with meter, meter.phase("train"):
            program(interpreter, meter)
        return found_in(folder)

    return run


def test_a_line_that_works_and_two_that_wait(tmp_path, played):
    """Each line gets its time at 50 W; nearly all energy is attributed."""
    program, turns = virtual.work_sleep_and_read, 400
    found = played(tmp_path, lambda interpreter, meter: program(interpreter, turns))
    assert [scope.scope for scope in found.scopes] == ["host"]
    assert found.duration_s == pytest.approx(0.1 * turns)
    assert found.energy_j == pytest.approx(50.0 * found.duration_s, rel=0.01)
    assert found.attributed_j >= 0.95 * found.energy_j
    (count,) = [one for one in found.functions if one.function == "count"]
    by_line = {one.line: one for one in found.lines if one.function == program.__name__}
    before, sleep, read = (
        by_line[scripts.line_with(program, name)] for name in ("WORK", "SLEEP", "READ")
    )
    for line, time_s in ((sleep, 0.03), (read, 0.02)):
        assert line.energy_j == pytest.approx(50.0 * time_s * turns, rel=0.15)
        assert line.waiting_j > 0.9 * line.energy_j
    # Of Python's last 5 ms a look is told only when the next call lets go.
    assert count.energy_j + before.energy_j == pytest.approx(50.0 * 0.05 * turns, rel=0.1)
    assert count.energy_j > 4.0 * before.energy_j
    assert count.waiting_j < 0.05 * count.energy_j
    leading = {(one.function, one.line) for one in found.lines[:2]}
    assert (sleep.function, sleep.line) in leading


def reader():
    """Return a function that blocks in a read for 20 ms."""
    read, write = os.pipe()

    def late():
        time.sleep(0.02)
        os.write(write, b"x")

    def call():
        threading.Thread(target=late).start()
        os.read(read, 1)

    return call


@pytest.mark.slow(
    reason="4 s of real work and waits; test_a_line_that_works_and_two_that_wait has virtual ones"
)
def test_a_real_line_that_works_and_two_that_wait(tmp_path):
    """Each line gets its time at 50 W; nearly all energy is attributed."""
    program, took_s = scripts.work_sleep_and_read, []
    found = measured(tmp_path, lambda: took_s.extend(program(40, reader())))
    assert found.energy_j == pytest.approx(50.0 * found.duration_s, rel=0.1)
    assert found.attributed_j >= 0.7 * found.energy_j
    by_function = {one.function: one for one in found.functions}
    by_line = {one.line: one for one in found.lines if one.function == program.__name__}
    sleep = by_line[scripts.line_with(program, "SLEEP")]
    assert sleep.energy_j == pytest.approx(50.0 * took_s[1], rel=0.2)
    assert sleep.waiting_j > 0.8 * sleep.energy_j
    count, before = by_function["count"], by_line[sleep.line - 1]  # of Python's last 5 ms
    assert count.energy_j + before.energy_j == pytest.approx(50.0 * took_s[0], rel=0.2)
    assert count.energy_j > 1.5 * before.energy_j
    assert count.waiting_j < 0.2 * count.energy_j
    read = next(one for one in found.lines if one.function.endswith("reader.<locals>.call"))
    assert read.waiting_j > 0.7 * read.energy_j
    leading = {(one.function, one.line) for one in found.lines[:4]}
    assert (sleep.function, sleep.line) in leading


class PlayedWindow:
    """A window with a scripted trace: kernels of one line for 15 of 20 ms."""

    def __init__(self, steps):
        self.heavy = Line(__file__, scripts.line_with(gpu_program, "HEAVY"), "gpu_program")

    def open(self):
        return True

    def step(self):
        return True

    def close(self):
        pass

    def result(self):
        followed = LineTracker()
        followed.add(BASE_NS, self.heavy)
        events = launch(1, at_us=10, runs_us=(100, 15_100))
        return torch_kernels.kernel_times(trace(events), followed.at)


def gpu_program(interpreter, meter):
    """Run steps of 20 ms with a line that launches kernels and one that waits for the GPU."""
    for _ in range(150):
        assert meter.is_running  # HEAVY
        interpreter.wait(0.02)  # WAITS
        meter.step(samples=1)


def test_the_gpus_joules_go_to_who_launched_not_to_who_waits(tmp_path, monkeypatch, played):
    """A CPU-heavy, a GPU-heavy and a waiting line have most energy; lines sum to the totals."""
    monkeypatch.setattr(torch_kernels, "KernelWindow", PlayedWindow)
    monkeypatch.setattr(torch_kernels, "is_used", lambda: True)

    def program(interpreter, meter):
        virtual.count(interpreter, 2.0)
        gpu_program(interpreter, meter)

    found = played(tmp_path, program, with_gpu=True)
    heavy = found.lines[0]
    assert heavy.line == scripts.line_with(gpu_program, "HEAVY")
    assert heavy.gpu_share == 1.0
    scopes = {one.scope: one for one in found.scopes}
    assert heavy.gpu_j == pytest.approx(scopes["gpu"].attributed_j)
    waits = next(o for o in found.lines if o.line == scripts.line_with(gpu_program, "WAITS"))
    assert waits.gpu_j is None
    assert waits.waiting_j > 0.7 * waits.energy_j
    assert {one.function for one in found.lines[:3]} == {"gpu_program", "count"}
    for one in found.scopes:
        lines_j = sum((o.gpu_j if one.scope == "gpu" else o.host_j) or 0.0 for o in found.lines)
        assert lines_j == pytest.approx(one.attributed_j)
        assert one.attributed_j <= one.energy_j
    # A constant 300 W has no lower power: idle time has what it took, by time.
    busy = 150 * 0.015 / found.duration_s
    assert scopes["gpu"].attributed_j / scopes["gpu"].energy_j == pytest.approx(busy, rel=0.02)


def test_without_a_trace_of_kernels_the_gpus_joules_are_nobodys(tmp_path, played):
    """A line that waits for the GPU does not get its energy because it waits."""
    found = played(tmp_path, lambda interpreter, meter: interpreter.wait(1.0), with_gpu=True)
    (gpu,) = [one for one in found.scopes if one.scope == "gpu"]
    assert gpu.attributed_j is None
    assert "no kernels were recorded" in gpu.reason
    assert found.unattributed_j >= gpu.energy_j
    assert all(one.gpu_j is None for one in found.lines)


def test_every_report_has_the_section(tmp_path):
    """Text, terminal, page and JSON contain the profile of a real program."""
    measured(tmp_path, lambda: scripts.count(6_000_000))
    report = build(tmp_path)
    page = report._repr_html_()
    for shown in (render(report), render(report, 60), page):
        assert "Energy by source line" in shown
        assert "Energy by function" in shown
        assert "attributed" in shown
        assert "is attributed to lines" in " ".join(shown.split())
    assert html.from_html(html.render(report)).profile == report.profile
    from rich.console import Console

    from energy_callbacks.report.render.terminal import print_rich

    console = Console(record=True, width=100, force_terminal=True)
    print_rich(report, console)
    assert "Energy by source line" in console.export_text()
    assert json.loads((tmp_path / "profile/lines.speedscope.json").read_text())["profiles"]


def test_it_is_pickled_and_copied_before_and_while_it_runs(tmp_path):
    """A copy has the settings and does not run."""
    profiler = LineProfiler(rate_hz=80.0)
    twins = []

    def program():
        twins.extend([pickle.loads(pickle.dumps(profiler)), copy.deepcopy(profiler)])
        scripts.count(3_000_000)

    measured(tmp_path, program, profiler=profiler)
    for twin in twins:
        assert asdict(twin) == asdict(profiler)
        twin.step(1.0)
        twin.mark("phase:train", 1.0)
        twin.stop()
    found = measured(tmp_path / "again", lambda: scripts.count(3_000_000), profiler=twins[0])
    assert found.looks > 0


def test_a_second_attempt_begins_afresh(tmp_path, played):
    """The report shows the newest attempt."""
    profiler = LineProfiler(rate_hz=100.0)
    for duration_s in (3.0, 1.0):
        found = played(
            tmp_path, lambda program, meter, s=duration_s: program.wait(s), profiler=profiler
        )
        assert found.duration_s == pytest.approx(duration_s)
        (line,) = found.lines
        assert line.wall_s == pytest.approx(duration_s, abs=0.1)


def test_on_another_thread_it_says_so_and_nothing_else_happens(tmp_path, caplog):
    """A training on another thread has no line profile, and a warning says why."""
    meter = EnergyMeter(
        sources=[], config=EnergyConfig(report_dir=tmp_path), profilers=[LineProfiler()]
    )

    def program():
        with meter, meter.phase("train"):
            meter.step()

    with caplog.at_level(logging.WARNING):
        thread = threading.Thread(target=program)
        thread.start()
        thread.join()
    assert build(tmp_path).profile is None
    assert "on the main thread" in caplog.text


@pytest.mark.parametrize(
    "settings",
    [
        {"rate_hz": 0.0}, {"rate_hz": 1e6}, {"windows": -1}, {"windows": 1.5}, {"window_steps": 0},
        {"window_steps": 1.5}, {"max_overhead": 0},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings):
    """The constructor raises an error with the value."""
    (value,) = settings.values()
    with pytest.raises(ValueError, match=str(value)):
        LineProfiler(**settings)


def test_of_several_ranks_the_first_is_followed(tmp_path):
    """Other ranks than the first are not profiled: they would overwrite its files."""
    profiler = LineProfiler()
    profiler.start(SimpleNamespace(rank=1, now_s=time.monotonic))
    assert profiler._run is None
    profiler.step(0.0)
    profiler.stop()

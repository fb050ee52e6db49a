"""Tests of the host profiler, with a fake clock and sensor."""

import copy
import cProfile
import importlib
import json
import logging
import math
import os
import pickle
import pstats
import pydoc
import sys
import threading
import time

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.records import Device
from energy_callbacks.profiling.host import HostProfiler
from energy_callbacks.profiling.host.calls import ProfileWindow
from energy_callbacks.report import build
from energy_callbacks.report.charts.catalogue import pictures
from energy_callbacks.report.model import profile_host
from energy_callbacks.report.model.schema import from_json, to_json
from energy_callbacks.report.render import html, text
from energy_callbacks.testing import FakeClock, ScriptedSource

CPU = Device(key="cpu", kind="cpu", scope="host", name="CPU")
HOST_W, STEP_S = 100.0, 2.0


def busy(number):
    """Do some real work."""
    return sum(one * one for one in range(2000)) + number


def train(folder, *profilers, steps=40, device=CPU, fails_at=None, rank=0):
    """Run steps of 2 s on the fake clock at 100 W, with some real calls in each."""
    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda t_s: HOST_W, device=device)
    meter = EnergyMeter(
        sources=[source] if device else [],
        clock=clock,
        config=EnergyConfig(report_dir=folder),
        profilers=profilers,
    )
    with meter, meter.phase("train"):
        for number in range(steps):
            if number == fails_at:
                raise RuntimeError("the user's own")
            busy(number)
            clock.advance(STEP_S)
            meter.step(samples=1)
    return meter


def calls_of(folder):
    """Return the calls of the report."""
    return build(folder).profile.host.calls


def test_the_window_holds_the_steps_asked_for(tmp_path):
    """20 steps after the first 10 are profiled: 20 calls of ``busy``, 40 s, a file for pstats."""
    train(tmp_path, HostProfiler())
    calls = calls_of(tmp_path)
    assert (calls.first_step, calls.steps, calls.duration_s) == (10, 20, 40.0)
    saved = pstats.Stats(str(tmp_path / "profile" / "host.prof")).stats
    [(_, count, *_)] = [line for key, line in saved.items() if key[2] == "busy"]
    assert count == 20
    assert sys.getprofile() is None


def test_the_joules_of_the_window_are_attributed_whole(tmp_path):
    """100 W for 40 s are 4000 J: functions and the unattributed rest sum to it."""
    train(tmp_path, HostProfiler())
    calls = calls_of(tmp_path)
    assert calls.energy_j == pytest.approx(4000.0, rel=1e-3)
    own_j = calls.attributed_j(calls.own_s)
    assert own_j == pytest.approx(100.0 * calls.own_s, rel=1e-3)
    rows = profile_host.rows(calls)
    seconds = sum(float(row[2].split()[0]) for row in rows)
    assert seconds == pytest.approx(40.0, rel=0.01)
    assert rows[-1][0] == "unattributed"
    assert rows[-1][-1].endswith("kJ")


def test_without_a_sensor_there_are_times_and_no_joules(tmp_path):
    """Unknown energy is not reported as 0 J."""
    train(tmp_path, HostProfiler(), device=None)
    calls = calls_of(tmp_path)
    assert calls.energy_j is None
    assert {row[-1] for row in profile_host.rows(calls)} == {"not known"}
    assert calls.own_s > 0.0


def test_the_energy_of_a_gpu_is_not_the_hosts(tmp_path):
    """If only a GPU is measured, the energy of the host is unknown."""
    train(tmp_path, HostProfiler(), device=Device(key="gpu0", kind="gpu", scope="gpu", name="GPU"))
    assert calls_of(tmp_path).energy_j is None


def test_the_window_ends_in_time(tmp_path):
    """A window of at most 5 s has three steps of 2 s."""
    train(tmp_path, HostProfiler(longest_s=5.0))
    assert calls_of(tmp_path).steps == 3


@pytest.mark.parametrize("fails_at", [15, 35])
def test_a_training_that_breaks_leaves_no_profiler(tmp_path, fails_at):
    """After an error no profiler is active, and the steps until then are in the report."""
    with pytest.raises(RuntimeError, match="own"):
        train(tmp_path, HostProfiler(), fails_at=fails_at)
    cProfile.Profile().runcall(busy, 1)  # raises on Python 3.12 where one is active
    assert sys.getprofile() is None
    assert calls_of(tmp_path).steps == min(fails_at - 10, 20)


def test_a_window_that_another_thread_ends_is_over_on_its_own():
    """If another thread ends a window, the profiler stops on the training thread."""
    window = ProfileWindow()
    other = threading.Thread(target=window.end)
    other.start()
    other.join()
    time.sleep(0.01)
    assert sys.getprofile() is None
    cProfile.Profile().runcall(busy, 1)


def test_too_few_steps_are_no_window(tmp_path):
    """Five steps do not reach the window: the report has no section."""
    train(tmp_path, HostProfiler(), steps=5)
    assert build(tmp_path).profile is None


@pytest.mark.parametrize(("steps", "first"), [(5, 0), (40, 10)])
def test_a_whole_program_is_followed_where_it_makes_no_steps(tmp_path, steps, first):
    """With ``whole``, few steps are profiled from the beginning, many in the window only."""
    train(tmp_path, HostProfiler(whole=True), steps=steps)
    assert calls_of(tmp_path).first_step == first


def test_beside_another_profiler_it_does_not_start(tmp_path, caplog):
    """The user's profiler continues; a warning says why ours did not start."""
    mine = cProfile.Profile()
    mine.enable()
    try:
        with caplog.at_level(logging.WARNING):
            train(tmp_path, HostProfiler(), steps=20)
    finally:
        mine.disable()
    assert caplog.text.count("another profiler is active") == 1
    assert build(tmp_path).profile is None
    assert any(key[2] == "busy" for key in pstats.Stats(mine).stats)


def test_a_forked_child_is_not_followed(tmp_path):
    """In a forked child the profiler is off."""
    read, write = os.pipe()

    class Forks:
        """Forks in a step, after the profiler."""

        def start(self, meter):
            self.steps = 0

        def mark(self, name, t_s):
            pass

        def stop(self):
            pass

        def step(self, t_s):
            self.steps += 1
            if self.steps == 15:
                pid = os.fork()
                if not pid:
                    os.write(write, repr(sys.getprofile()).encode())
                    os._exit(0)
                os.waitpid(pid, 0)

    train(tmp_path, HostProfiler(), Forks())
    assert os.read(read, 100) == b"None"
    assert calls_of(tmp_path).steps == 20


def test_memory_lines_are_in_the_report(tmp_path, monkeypatch):
    """A line that allocates 64 MiB is in the file, the report and the page."""
    # A mapping of its own: malloc may give memory that was freed before, which the process has.
    (tmp_path / "loaded_subject.py").write_text(
        "import mmap\n"
        "FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE\n"
        "def load(number):\n    kept = mmap.mmap(-1, 64 << 20, FLAGS)\n    return len(kept)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("loaded_subject")
    before = module.load
    monkeypatch.setattr(sys.modules[__name__], "busy", lambda n: module.load(number=n))
    folder = tmp_path / "run"
    train(folder, HostProfiler(functions=["loaded_subject:load"]), steps=1)
    assert module.load is before
    memory = build(folder).profile.host.memory
    assert "mmap.mmap(-1, 64 << 20" in (folder / "profile" / memory.file).read_text()
    [line] = [line for line in memory.lines if "mmap.mmap" in line]
    assert "64.0 MiB" in line
    assert line.strip() in text.render(build(folder), 120)
    assert "mmap.mmap(-1, 64 &lt;&lt; 20" in html.render(build(folder))


@pytest.mark.charts
def test_the_report_shows_it_everywhere(tmp_path):
    """Text, page and pictures have the table and the icicle; JSON restores the report."""
    train(tmp_path, HostProfiler())
    report = build(tmp_path)
    told = text.render(report)
    assert "Host: calls by own time" in told
    assert "cProfile records callers by function only" in told
    assert "attributed" in told
    page = html.render(report)
    assert 'aria-label="Host: calls with their callees"' in page
    assert "host_icicle" in dict(pictures(report))
    assert from_json(to_json(report)) == report


def test_the_record_is_bounded(tmp_path):
    """A deep and wide program leaves less than 200 kB in the journal."""
    deep = {}
    exec(
        "\n".join(
            f"def f{n}(): return {' + '.join(f'f{m}()' for m in range(n + 1, min(n + 3, 18))) or 1}"
            for n in range(18)
        ),
        deep,
    )
    train(tmp_path, HostProfiler(skip=0, steps=3), steps=3)
    profile = cProfile.Profile()
    profile.runcall(deep["f0"])
    from energy_callbacks.profiling.host.calls import Calls

    calls = Calls(pstats.Stats(profile).stats)
    assert len(json.dumps([calls.top(), calls.tree()])) < 100_000


def test_profilers_are_copied_before_the_training():
    """A profiler can be pickled and copied, as callbacks are."""
    profiler = HostProfiler(functions=["pydoc:plain"])
    for one in (copy.deepcopy(profiler), pickle.loads(pickle.dumps(profiler))):
        assert one.functions == ("pydoc:plain",)


def test_the_whole_profile_stays_if_no_other_can_begin(tmp_path, monkeypatch, caplog):
    """If the user's profiler is active at step ``skip``, the profile until then is recorded."""
    windows = [ProfileWindow]

    def window():
        if not windows:
            raise ValueError("another profiler is active")
        return windows.pop()()

    monkeypatch.setattr("energy_callbacks.profiling.host.profiler.ProfileWindow", window)
    train(tmp_path, HostProfiler(whole=True, skip=10))
    calls = calls_of(tmp_path)
    assert (calls.first_step, calls.steps, calls.duration_s) == (0, 10, 20.0)
    assert "another profiler is active" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"skip": -1}, {"skip": 3.5}, {"skip": math.nan}, {"steps": 0}, {"steps": math.inf},
        {"longest_s": 0.0}, {"longest_s": math.nan},
    ],
)  # fmt: skip
def test_wrong_numbers_are_refused(wrong):
    """The constructor raises an error with the value."""
    with pytest.raises(ValueError, match=f"{next(iter(wrong))}={next(iter(wrong.values()))}"):
        HostProfiler(**wrong)


def test_one_function_needs_no_list():
    """A function, like a name, may be given without a list."""
    for one in ("pydoc:plain", pydoc.plain):
        assert HostProfiler(functions=one).names == ("pydoc:plain",)


def test_wrong_names_are_refused():
    """The constructor raises an error with similar names."""
    with pytest.raises(ValueError, match="did you mean plain"):
        HostProfiler(functions=["pydoc:plane"])


def test_the_users_own_profile_goes_on(tmp_path):
    """A user's profiler that starts after our window is not affected by it."""
    window = ProfileWindow()
    window.end()
    theirs = cProfile.Profile()
    theirs.enable()
    try:
        window.save(tmp_path / "host.prof")
        sum(range(10))
    finally:
        theirs.disable()
    names = {entry.code for entry in theirs.getstats()}
    assert any("sum" in str(name) for name in names)
    assert pstats.Stats(str(tmp_path / "host.prof")).total_calls >= 0

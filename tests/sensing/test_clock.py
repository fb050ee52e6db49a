"""Jobs on the real clock's threads and on the fake one's virtual time."""

import math
import queue
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from energy_callbacks.sensing import clock as clock_module
from energy_callbacks.sensing.clock import Latch, SystemClock
from energy_callbacks.testing import FakeClock

LONG_S = 60.0  # never waited for: a test that needs it has failed
AT_MOST_S = 30.0


def counting(enough: int) -> tuple[Callable[[], None], threading.Event, list[float]]:
    """A job that records its runs, and an event that is set after enough of them."""
    clock, reached, runs = SystemClock(), threading.Event(), []

    def job() -> None:
        runs.append(clock.monotonic_s())
        if len(runs) >= enough:
            reached.set()

    return job, reached, runs


def test_a_job_runs_at_once_and_once_more_after_it_was_asked_to_stop() -> None:
    """Started and stopped within its first interval, a job has run exactly twice."""
    job, first, runs = counting(1)
    periodic = SystemClock().every(LONG_S, job, name="test")
    assert first.wait(AT_MOST_S)
    periodic.ask_to_stop()
    assert periodic.wait(AT_MOST_S)
    assert len(runs) == 2


def test_a_stop_during_a_run_still_brings_one_more() -> None:
    """A job that is asked to stop while it runs, runs again: the last run sees everything."""
    begun, go_on, runs = threading.Event(), threading.Event(), []

    def job() -> None:
        runs.append(go_on.is_set())
        begun.set()
        assert go_on.wait(AT_MOST_S)

    periodic = SystemClock().every(LONG_S, job, name="test")
    assert begun.wait(AT_MOST_S)
    periodic.ask_to_stop()
    go_on.set()
    assert periodic.wait(AT_MOST_S)
    assert runs == [False, True]


def test_a_job_runs_soon_if_it_is_asked_to() -> None:
    """Asked within its first interval, a job runs a second time without waiting for its end."""
    job, second, runs = counting(2)
    periodic = SystemClock().every(LONG_S, job, name="test")
    while not second.is_set():
        periodic.run_soon()
        second.wait(0.01)
    periodic.ask_to_stop()
    assert periodic.wait(AT_MOST_S)
    assert runs[-1] - runs[0] < LONG_S


def test_an_endless_interval_ends_with_the_last_run() -> None:
    """A source that is read only at the start and at the end has the interval ``inf``."""
    job, first, runs = counting(1)
    periodic = SystemClock().every(math.inf, job, name="test")
    assert first.wait(AT_MOST_S)
    periodic.ask_to_stop()
    assert periodic.wait(AT_MOST_S)
    assert len(runs) == 2


class VirtualTime:
    """Replaces ``time`` and the alarm of a thread; time passes by waiting."""

    def __init__(self) -> None:
        self.now_s, self.is_stopping = 0.0, False

    def monotonic(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return 0.0

    def wait(self, duration_s: float) -> None:
        assert duration_s >= 0.0
        self.now_s += duration_s

    def clear(self) -> None:
        """Nothing wakes these jobs."""


def test_a_late_run_does_not_delay_the_ones_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that take 0 s, 0.6 s, 2.5 s and 0 s start at 0, 1, 2, at once, and a second later."""
    virtual, runs, takes_s = VirtualTime(), [], [0.0, 0.6, 2.5, 0.0, 0.0]

    def job() -> None:
        runs.append(virtual.now_s)
        virtual.now_s += takes_s[len(runs) - 1]
        virtual.is_stopping = len(runs) == 4

    monkeypatch.setattr(clock_module, "time", virtual)
    monkeypatch.setattr(clock_module, "_Alarm", lambda: virtual)
    assert SystemClock().every(1.0, job, name="test").wait(AT_MOST_S)
    assert runs == pytest.approx([0.0, 1.0, 2.0, 4.5, 5.5])


def test_a_turn_that_is_late_brings_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may return the time from the start of this run to the start of the next.

    The thread wakes up to 0.3 s late; the job wants to run at whole seconds.
    """
    virtual, runs, late_s = VirtualTime(), [], iter((0.3, 0.05, 0.2, 0.0, 0.1))
    wait = virtual.wait

    def late_wait(duration_s: float) -> None:
        wait(duration_s + next(late_s))

    def job() -> float:
        runs.append(virtual.now_s)
        virtual.is_stopping = len(runs) == 5
        return math.floor(virtual.now_s + 0.01) + 1.0 - virtual.now_s

    monkeypatch.setattr(virtual, "wait", late_wait)
    monkeypatch.setattr(clock_module, "time", virtual)
    monkeypatch.setattr(clock_module, "_Alarm", lambda: virtual)
    assert SystemClock().every(9.0, job, name="test").wait(AT_MOST_S)
    assert runs == pytest.approx([0.0, 1.3, 2.05, 3.2, 4.0, 5.1])


def test_processor_time_of_a_job_is_known_once_it_has_ended() -> None:
    """Two runs that compute for 20 ms each have taken 40 ms and little more."""

    def job() -> None:
        until_s = time.thread_time() + 0.02
        while time.thread_time() < until_s:
            pass

    periodic = SystemClock().every(LONG_S, job, name="test")
    assert periodic.cpu_s == 0.0
    periodic.ask_to_stop()
    assert periodic.wait(AT_MOST_S)
    assert 0.04 <= periodic.cpu_s < 0.5


def test_a_job_sets_its_own_next_interval() -> None:
    """A job that returns an interval is called again after that one."""
    done, runs = threading.Event(), []

    def job() -> float:
        runs.append(1)
        if len(runs) == 3:
            done.set()
        return 0.001

    periodic = SystemClock().every(LONG_S, job, name="test")
    assert done.wait(AT_MOST_S)
    periodic.ask_to_stop()
    assert periodic.wait(AT_MOST_S)


def test_a_hanging_job_is_not_waited_for() -> None:
    """``wait`` returns False after its timeout if a job hangs, and True once it has ended."""
    begun, release = threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        release.wait(LONG_S)

    clock = SystemClock()
    periodic = clock.every(LONG_S, job, name="test")
    assert begun.wait(AT_MOST_S)
    periodic.ask_to_stop()
    before_s = clock.monotonic_s()
    assert not periodic.wait(0.05)
    assert clock.monotonic_s() - before_s < AT_MOST_S
    release.set()
    assert periodic.wait(AT_MOST_S)


def test_jobs_run_on_daemon_threads_with_their_name() -> None:
    """The thread of a job does not keep the process alive, and has a name."""
    seen: list[threading.Thread] = []
    periodic = SystemClock().every(
        LONG_S, lambda: seen.append(threading.current_thread()), name="energy_callbacks probe"
    )
    periodic.ask_to_stop()
    assert periodic.wait(AT_MOST_S)
    assert seen[0].daemon
    assert seen[0].name == "energy_callbacks probe"
    assert seen[0] is not threading.main_thread()


def test_the_fake_clock_runs_jobs_in_order_at_their_virtual_times() -> None:
    """Two jobs of 0.3 s and 0.5 s run at exactly their times, in the order of time."""
    clock = FakeClock(start_s=100.0)
    runs: list[tuple[str, float]] = []

    def note(name: str) -> Callable[[], None]:
        return lambda: runs.append((name, round(clock.monotonic_s() - 100.0, 9)))

    clock.every(0.3, note("a"), name="a")
    clock.every(0.5, note("b"), name="b")
    assert runs == []
    clock.advance(1.0)
    assert runs == [
        ("a", 0.0),
        ("b", 0.0),
        ("a", 0.3),
        ("b", 0.5),
        ("a", 0.6),
        ("a", 0.9),
        ("b", 1.0),
    ]
    assert clock.monotonic_s() == 101.0


def test_the_last_run_of_a_fake_job_happens_in_wait() -> None:
    """After ``ask_to_stop`` nothing runs until ``wait``, and then exactly once."""
    clock, runs = FakeClock(), []
    periodic = clock.every(1.0, lambda: runs.append(clock.monotonic_s()), name="test")
    clock.advance(1.5)
    periodic.ask_to_stop()
    clock.advance(5.0)
    assert len(runs) == 2
    assert periodic.wait(60.0)
    assert periodic.wait(60.0)
    assert runs[2:] == [clock.monotonic_s()]


def test_a_fake_job_that_sleeps_lets_time_pass() -> None:
    """A job that takes longer than its interval is run again immediately."""
    clock, runs = FakeClock(start_s=0.0), []

    def job() -> float:
        runs.append(clock.monotonic_s())
        clock.sleep(2.0)
        return 1.0

    clock.every(9.0, job, name="test")
    clock.advance(4.5)
    assert runs == [0.0, 2.0, 4.0]
    assert clock.monotonic_s() == 6.0


def test_the_wall_clock_may_jump_and_monotonic_time_does_not() -> None:
    """Setting the wall clock moves only wall time."""
    clock = FakeClock(start_s=5.0, start_unix_s=1000.0)
    clock.set_wall_clock(-300.0)
    clock.advance(1.0)
    assert clock.unix_s() == 701.0
    assert clock.monotonic_s() == 6.0


def test_both_clocks_tell_seconds() -> None:
    """The system clock's times are those of the ``time`` module."""
    clock = SystemClock()
    assert (clock.monotonic_s, clock.unix_s) == (time.monotonic, time.time)


def test_a_latch_may_be_used_in_a_handler_that_interrupts_it() -> None:
    """At each line of ``set`` and ``wait``, the same thread may call both of them again."""
    interrupted: list[str] = []

    def handler(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code in (Latch.set.__code__, Latch.wait.__code__) and event == "line":
            sys.settrace(None)
            interrupted.append(frame.f_code.co_name)
            latch.set()
            assert latch.wait(AT_MOST_S)
            sys.settrace(handler)
        return handler

    latch = Latch()
    before_s = time.monotonic()
    tracer = sys.gettrace()
    sys.settrace(handler)
    try:
        latch.set()
        assert latch.wait(AT_MOST_S)
    finally:
        sys.settrace(tracer)
    assert set(interrupted) == {"set", "wait"}
    assert time.monotonic() - before_s < AT_MOST_S


def test_all_threads_that_wait_for_a_latch_go_on() -> None:
    """Also those that begin to wait afterwards."""
    latch, passed = Latch(), queue.SimpleQueue[bool]()
    threads = [threading.Thread(target=lambda: passed.put(latch.wait(AT_MOST_S))) for _ in range(3)]
    for thread in threads:
        thread.start()
    latch.set()
    assert [passed.get(timeout=AT_MOST_S) for _ in threads] == [True] * 3
    assert latch.wait(0.0)
    assert not Latch().wait(0.0)

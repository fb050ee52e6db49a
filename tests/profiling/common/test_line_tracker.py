"""Tests of a thread that traces its own lines."""

import os
import sys
import threading
import time

import pytest

from energy_callbacks.profiling.common import line_tracker
from energy_callbacks.profiling.common.line_tracker import LineTracker
from tests.profiling.lines.scripts import line_with


def _nothing():
    pass


pytestmark = pytest.mark.usefixtures("untraced")


def test_moments_have_their_lines_in_calls_and_after_them():
    """Lines are known in a function that was running before, and in callbacks from a library."""
    moments = {}

    def now(name):
        moments[name] = time.time_ns()

    def callback(_):
        now("inside")  # INSIDE
        return 0

    def program():
        tracker = LineTracker()
        assert tracker.start()
        now("running")  # RUNNING
        sorted([1], key=callback)
        now("after")  # AFTER
        tracker.stop()
        return tracker

    lines = program()
    for name in ("running", "inside", "after"):
        # The clock is read in the call of ``now``, a function of the user's, too.
        before = lines.at(moments[name] - 1)
        assert before is not None
        assert before.function.endswith("now")
    numbers = {line.line for line in lines._lines if line is not None}
    assert line_with(callback, "INSIDE") in numbers
    assert {line_with(program, "RUNNING"), line_with(program, "AFTER")} <= numbers


def test_after_a_return_it_is_the_callers_line_again():
    """The moment after a call belongs to the line that called."""
    times = []

    def callee():
        pass

    def program():
        tracker = LineTracker()
        tracker.start()
        callee(); times.append(time.time_ns())  # CALLS  # fmt: skip  # noqa: E702
        tracker.stop()
        return tracker

    assert program().at(times[0]).line == line_with(program, "CALLS")


def test_it_leaves_no_trace():
    """No trace function is left, neither on the thread nor on its frames."""
    tracker = LineTracker()
    tracker.start()
    tracker.stop()
    count = len(tracker)
    for _ in range(10):
        pass
    assert sys.gettrace() is None
    assert sys._getframe().f_trace is None
    assert len(tracker) == count


def test_a_debugger_or_coverage_keeps_its_tracing():
    """Tracing does not start if another trace function is installed."""

    def tracer(frame, event, argument):
        return None

    sys.settrace(tracer)
    try:
        assert not LineTracker().start()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)


def test_it_ends_itself_after_many_lines(monkeypatch):
    """The number of lines, and so the memory, is limited."""
    monkeypatch.setattr(line_tracker, "MOST_MOMENTS", 100)
    tracker = LineTracker()
    tracker.start()
    for _ in range(1000):
        pass
    assert len(tracker) == 101
    assert tracker.at(time.time_ns()) is None, "what came later is not known"
    tracker.stop()
    assert sys.gettrace() is None


def test_a_loop_over_numbers_is_followed_no_further(monkeypatch):
    """After too many lines of a call, its line is unknown; the caller's line is known again."""
    monkeypatch.setattr(line_tracker, "MOST_IN_A_CALL", 100)
    times = []

    def endless():
        for _ in range(1000):
            pass
        times.append(time.time_ns())

    def program():
        tracker = LineTracker()
        tracker.start()
        endless()
        times.append(time.time_ns())  # AFTER
        tracker.stop()
        return tracker

    lines = program()
    assert len(lines) < 130
    assert lines.at(times[0]) is None
    assert lines.at(times[1]).line == line_with(program, "AFTER")


def test_another_thread_can_end_it():
    """Stopped on another thread, tracing ends with the next line."""
    tracker = LineTracker()
    tracker.start()
    thread = threading.Thread(target=tracker.stop)
    thread.start()
    thread.join()
    count = len(tracker)
    _nothing()
    assert sys.gettrace() is None
    assert len(tracker) <= count + 1


def test_a_forked_child_is_not_followed():
    """A forked child, such as a worker of a loader, is not traced."""
    tracker = LineTracker()
    assert tracker.start()
    moments = len(tracker)
    child = os.fork()
    if child == 0:
        for _ in range(100):
            _nothing()
        is_free = sys.gettrace() is None and len(tracker) <= moments + 20
        os._exit(0 if is_free else 1)
    tracker.stop()
    assert os.waitpid(child, 0)[1] == 0

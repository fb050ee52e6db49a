"""A thread that follows itself knows its line at every moment."""

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
    """Also in a function that was running before, and in a library that calls the user's code."""
    moments = {}

    def now(name):
        moments[name] = time.time_ns()

    def callback(_):
        now("inside")  # INSIDE
        return 0

    def program():
        follower = LineTracker()
        assert follower.start()
        now("running")  # RUNNING
        sorted([1], key=callback)
        now("after")  # AFTER
        follower.stop()
        return follower

    followed = program()
    for name in ("running", "inside", "after"):
        # The clock is read in the call of ``now``, a function of the user's, too.
        before = followed.at(moments[name] - 1)
        assert before is not None
        assert before.function.endswith("now")
    numbers = {line.line for line in followed._lines if line is not None}
    assert line_with(callback, "INSIDE") in numbers
    assert {line_with(program, "RUNNING"), line_with(program, "AFTER")} <= numbers


def test_after_a_return_it_is_the_callers_line_again():
    """The moment after a call belongs to the line that called."""
    times = []

    def callee():
        pass

    def program():
        follower = LineTracker()
        follower.start()
        callee(); times.append(time.time_ns())  # CALLS  # fmt: skip  # noqa: E702
        follower.stop()
        return follower

    assert program().at(times[0]).line == line_with(program, "CALLS")


def test_it_leaves_no_trace():
    """Neither on the thread nor on frames that go on running."""
    follower = LineTracker()
    follower.start()
    follower.stop()
    count = len(follower)
    for _ in range(10):
        pass
    assert sys.gettrace() is None
    assert sys._getframe().f_trace is None
    assert len(follower) == count


def test_a_debugger_or_coverage_keeps_its_tracing():
    """It does not begin where somebody traces."""

    def tracer(frame, event, argument):
        return None

    sys.settrace(tracer)
    try:
        assert not LineTracker().start()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)


def test_it_ends_itself_after_many_lines(monkeypatch):
    """A step of millions of lines does not fill the memory."""
    monkeypatch.setattr(line_tracker, "MOST_MOMENTS", 100)
    follower = LineTracker()
    follower.start()
    for _ in range(1000):
        pass
    assert len(follower) == 101
    assert follower.at(time.time_ns()) is None, "what came later is not known"
    follower.stop()
    assert sys.gettrace() is None


def test_a_loop_over_numbers_is_followed_no_further(monkeypatch):
    """Its line is not known any more; that of its caller is, as soon as it goes on."""
    monkeypatch.setattr(line_tracker, "MOST_IN_A_CALL", 100)
    times = []

    def endless():
        for _ in range(1000):
            pass
        times.append(time.time_ns())

    def program():
        follower = LineTracker()
        follower.start()
        endless()
        times.append(time.time_ns())  # AFTER
        follower.stop()
        return follower

    followed = program()
    assert len(followed) < 130
    assert followed.at(times[0]) is None
    assert followed.at(times[1]).line == line_with(program, "AFTER")


def test_another_thread_can_end_it():
    """The meter may be stopped elsewhere: then it ends with the next line."""
    follower = LineTracker()
    follower.start()
    thread = threading.Thread(target=follower.stop)
    thread.start()
    thread.join()
    count = len(follower)
    _nothing()
    assert sys.gettrace() is None
    assert len(follower) <= count + 1


def test_a_forked_child_is_not_followed():
    """A worker of a loader that is forked in a window runs as it would without us."""
    follower = LineTracker()
    assert follower.start()
    moments = len(follower)
    child = os.fork()
    if child == 0:
        for _ in range(100):
            _nothing()
        is_free = sys.gettrace() is None and len(follower) <= moments + 20
        os._exit(0 if is_free else 1)
    follower.stop()
    assert os.waitpid(child, 0)[1] == 0

"""Ends of steps against a device whose timeline is known in closed form."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energy_callbacks.sensing.frameworks.work_ends import WorkEnd, WorkEnds
from energy_callbacks.testing import FakeClock
from tests.sensing.frameworks.scripted_events import ScriptedDevice

Marked = list[tuple[WorkEnd, float]]


class Bench:
    """Steps are launched on a scripted device; their true ends are kept."""

    def __init__(self, pool_size: int = 4096, **device: float) -> None:
        self.clock = FakeClock()
        self.device = ScriptedDevice(self.clock, **device)  # type: ignore[arg-type]
        self.ends = WorkEnds(self.clock, lambda: self.device, pool_size=pool_size)
        self.marked: Marked = []

    def step(self, duration_s: float, host_s: float = 0.0) -> WorkEnd:
        """The host works for a while, then queues a step that keeps the device busy."""
        self.clock.sleep(host_s)
        self.device.launch(duration_s)
        end = self.ends.mark(self.clock.monotonic_s())
        self.marked.append((end, max(self.device.done_s, self.clock.monotonic_s())))
        return end

    def settle_after(self, duration_s: float) -> None:
        self.clock.sleep(duration_s)
        self.ends.settle()

    def errors_s(self) -> list[float]:
        return [abs(end.end_s - truth_s) for end, truth_s in self.marked if end.end_s is not None]


def test_a_step_ends_when_the_device_has_finished_it() -> None:
    """Host five steps ahead: ends are true to 30 us, where host marks are 140 ms early."""
    bench = Bench()
    for _ in range(200):
        bench.step(28e-3, host_s=1e-3)
        ahead_s = bench.device.done_s - bench.clock.monotonic_s()
        bench.settle_after(max(ahead_s - 5 * 28e-3, 0.0))
    bench.settle_after(1.0)

    assert all(end.error_s is not None for end, _ in bench.marked)
    assert max(bench.errors_s()) < 30e-6
    early_s = [truth_s - end.queued_s for end, truth_s in bench.marked[10:]]
    assert min(early_s) > 0.13


@settings(max_examples=60)
@given(data=st.data())
def test_truth_lies_in_the_stated_bounds(data: st.DataObject) -> None:
    """Whatever the clocks' drift, the load, the queue of anchors and the looks: bounds hold."""
    duration = st.floats(1e-5, 0.4)
    bench = Bench(
        drift=data.draw(st.floats(-2.9e-4, 2.9e-4)),
        offset_s=data.draw(st.floats(0.0, 1e6)),
        call_s=data.draw(st.floats(1e-7, 3e-4)),
    )
    for _ in range(data.draw(st.integers(1, 30))):
        bench.device.idle_delay_s = data.draw(st.sampled_from([5e-6, 1e-3, 15e-3, 0.1]))
        bench.step(data.draw(duration), host_s=data.draw(duration))
        if data.draw(st.booleans()):
            bench.settle_after(data.draw(st.floats(0.0, 1.0)))
    bench.device.idle_delay_s = 5e-6
    bench.settle_after(20.0)

    for end, truth_s in bench.marked:
        assert end.end_s is not None
        assert end.error_s is not None
        # A float of about 1e5 s of device time has a grain of 1e-11 s; what the step's event
        # itself took to be recorded is part of its end.
        assert abs(end.end_s - truth_s) <= end.error_s + bench.device.call_s + 1e-9


def test_drift_is_in_the_bounds_and_does_not_add_up() -> None:
    """An hour at 100 ppm of drift is 0.36 s; looked after each half second, errors stay 50 us."""
    bench = Bench(drift=1e-4)
    for _ in range(3600):
        bench.step(0.9)
        bench.settle_after(0.5)
        bench.settle_after(0.5)

    assert max(bench.errors_s()) < 60e-6
    assert max(end.error_s or 0.0 for end, _ in bench.marked) < 0.2e-3


def test_what_is_under_way_is_not_waited_for() -> None:
    """A step of ten seconds has no end after one, and a look at it takes under a millisecond."""
    bench = Bench()
    end = bench.step(10.0)
    before_s = bench.clock.monotonic_s()
    bench.settle_after(1.0)
    assert bench.clock.monotonic_s() - before_s < 1.001
    assert end.end_s is None
    bench.settle_after(9.5)
    assert end.end_s == pytest.approx(bench.marked[0][1], abs=1e-4)


def test_streams_that_end_out_of_order() -> None:
    """The second step, on a stream of its own, ends first: both ends are true."""
    bench = Bench()
    slow = bench.step(0.3)
    bench.device.stream = 1
    fast = bench.step(0.1)
    bench.settle_after(0.2)
    bench.settle_after(0.3)

    assert slow.end_s is not None
    assert fast.end_s is not None
    assert slow.end_s - fast.end_s == pytest.approx(0.2, abs=1e-4)
    assert max(bench.errors_s()) < 1e-4


def test_an_exhausted_pool_leaves_host_marks_and_is_used_again() -> None:
    """Three events for five steps: two keep the host's mark, counted; later ones are timed."""
    bench = Bench(pool_size=3)
    ends = [bench.step(0.1) for _ in range(5)]
    assert [end.end_s for end in ends[3:]] == [end.queued_s for end in ends[3:]]
    assert all(end.error_s is None for end in ends[3:])
    assert (bench.ends.host_marks, bench.ends.marked) == (2, 5)
    for _ in range(50):
        bench.settle_after(1.0)
        bench.step(0.1)
    bench.settle_after(1.0)

    assert bench.ends.host_marks == 2
    anchors = 8
    assert len(bench.device.events) == 3 + anchors


def test_events_are_made_before_they_are_needed() -> None:
    """After a first look the thread that trains finds an event for each step, and makes none."""
    bench = Bench()
    bench.step(0.01)
    bench.settle_after(0.1)
    made = len(bench.device.events)
    for _ in range(60):
        bench.step(0.01)
    assert len(bench.device.events) == made


def test_a_captured_step_keeps_its_host_mark() -> None:
    """While a graph is captured nothing is recorded; before and after it steps are timed."""
    bench = Bench()
    ends = []
    for is_capturing in (False, True, False):
        bench.device.is_capturing = is_capturing
        ends.append(bench.step(0.1))
    bench.settle_after(1.0)
    assert [end.error_s is None for end in ends] == [False, True, False]
    assert bench.ends.host_marks == 1


def test_anchors_behind_the_training() -> None:
    """An anchor that takes 10 ms widens the bounds to 5 ms; one that takes 0.1 s is left out."""
    bench = Bench(idle_delay_s=10e-3)
    first = bench.step(0.1)
    bench.settle_after(1.0)
    assert first.error_s == pytest.approx(5e-3, rel=0.1)
    assert max(bench.errors_s()) <= 5.5e-3

    late = Bench(idle_delay_s=0.1)
    end = late.step(0.1)
    before_s = late.clock.monotonic_s()
    late.ends.settle()
    assert late.clock.monotonic_s() - before_s < 25e-3
    assert end.end_s is None
    late.device.idle_delay_s = 8e-6
    late.settle_after(1.0)
    assert end.error_s is not None
    assert max(late.errors_s()) < 1e-3


def test_a_clock_that_jumps_gives_wide_bounds_and_no_nonsense() -> None:
    """Device time a minute off between event and anchor: the host's own bounds are left."""
    bench = Bench()
    end = bench.step(0.1)
    bench.device.jump = (bench.marked[0][1] + 0.1, -60.0)
    bench.settle_after(1.0)
    assert end.error_s == pytest.approx(0.5, rel=0.01)
    assert max(bench.errors_s()) <= end.error_s


def test_a_lost_device_leaves_host_marks() -> None:
    """After a reset of the card all steps end when they were queued, and none raises."""
    bench = Bench()
    first = bench.step(10.0)
    bench.device.is_lost = True
    bench.settle_after(1.0)
    second = bench.step(0.1)
    bench.ends.settle()
    bench.ends.close()
    assert [end.end_s for end in (first, second)] == [first.queued_s, second.queued_s]
    assert bench.ends.host_marks == 2


def test_a_device_that_is_used_later() -> None:
    """Before the training uses a device its steps keep host marks."""
    clock = FakeClock()
    device = ScriptedDevice(clock)
    answers = iter([None, device])
    ends = WorkEnds(clock, lambda: next(answers))
    first = ends.mark(clock.monotonic_s())
    ends.settle()
    second = ends.mark(clock.monotonic_s())
    clock.sleep(0.1)
    ends.settle()
    assert (first.error_s is None, second.error_s is None) == (True, False)


def test_close_frees_all_events() -> None:
    """Steps that have ended are dated, one under way keeps its host mark, no event is left."""
    bench = Bench()
    done = bench.step(0.1)
    bench.clock.sleep(0.2)
    under_way = bench.step(10.0)
    bench.ends.close()
    assert done.error_s is not None
    assert under_way.end_s == under_way.queued_s
    assert bench.device.alive == []
    assert bench.device.is_closed
    assert bench.step(0.1).error_s is None

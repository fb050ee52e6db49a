"""Tests of spans between marks."""

import numpy as np

from energy_callbacks.profiling.phases.marks import OUTSIDE, PhaseMarks
from energy_callbacks.sensing.frameworks.work_ends import WorkEnds
from energy_callbacks.testing import FakeClock
from tests.sensing.frameworks.scripted_events import ScriptedDevice


def marked(*begins):
    """Return marks at given moments, dated by the host."""
    marks = PhaseMarks(WorkEnds(FakeClock(), lambda: None))
    for name, t_s in begins:
        marks.begin(name, t_s)
    return marks


def test_a_phase_ends_where_the_next_begins():
    """A phase ends with the next mark; a repeated mark has no effect."""
    marks = marked(("forward", 1.0), ("forward", 1.5), ("backward", 2.0), (OUTSIDE, 4.0))
    spans, names = marks.spans()
    assert names == ("forward", "backward")
    np.testing.assert_allclose(spans.times_s(), [1.0, 2.0])


def test_what_is_outside_is_no_phase():
    """Time outside, such as a validation, belongs to no phase."""
    marks = marked(("forward", 0.0), (OUTSIDE, 1.0), ("forward", 6.0), (OUTSIDE, 8.0))
    spans, names = marks.spans()
    assert names == ("forward",)
    np.testing.assert_allclose(spans.times_s(), [3.0])


def test_a_tiny_phase_is_told_with_the_one_that_follows():
    """A transfer of ten microseconds is merged with the forward pass."""
    begins = []
    for step in range(50):
        begins += [("transfer", step + 0.0), ("forward", step + 1e-5), ("backward", step + 0.4)]
    spans, names = marked(*begins, (OUTSIDE, 50.0)).spans()
    assert names == ("transfer, forward", "backward")
    np.testing.assert_allclose(spans.times_s(), [20.0, 30.0], rtol=1e-6)


def test_the_last_tiny_phase_goes_to_the_first_of_the_next_step():
    """Several tiny phases are merged into one."""
    begins = []
    for step in range(50):
        begins += [("forward", step), ("optimizer", step + 0.98), ("other", step + 0.99)]
    spans, names = marked(*begins, (OUTSIDE, 50.0)).spans()
    assert names == ("optimizer, other, forward",)
    np.testing.assert_allclose(spans.times_s(), [50.0])


def test_no_marks_are_no_phases():
    """Without marks there are no phases."""
    spans, names = marked().spans()
    assert names == ()
    assert spans.times_s().size == 0


def test_events_date_what_the_host_queued_ahead():
    """The host queues ten steps at once; the device works on them one after the other."""
    clock = FakeClock()
    device = ScriptedDevice(clock)
    marks = PhaseMarks(WorkEnds(clock, lambda: device))
    begin_s = clock.monotonic_s()
    for _ in range(10):
        marks.begin("forward", clock.monotonic_s())
        device.launch(0.03)
        marks.begin("backward", clock.monotonic_s())
        device.launch(0.07)
    marks.begin(OUTSIDE, clock.monotonic_s())
    queued_s = clock.monotonic_s() - begin_s
    clock.sleep(2.0)
    marks.ends.close()
    spans, names = marks.spans()
    assert queued_s < 0.01
    assert marks.by_device
    assert names == ("forward", "backward")
    np.testing.assert_allclose(spans.times_s(), [0.3, 0.7], rtol=2e-3)

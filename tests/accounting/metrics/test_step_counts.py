"""Steps, their samples and tokens, and waiting for data."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks.accounting.metrics.step_counts import StepLog
from energy_callbacks.accounting.step_marks import DONE, FETCH, READY, STEP
from energy_callbacks.sensing.frameworks.work_ends import WorkEnds
from energy_callbacks.testing import FakeClock
from tests.accounting import step_events
from tests.sensing.frameworks.scripted_events import ScriptedDevice


@given(
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99), st.integers(0, 999))),
    looks=st.lists(st.integers(0, 300)),
)
def test_tallies_count_every_step_once(steps: list[tuple[int, int, int]], looks: list[int]) -> None:
    """For any sequence of queries, a tally is the sum of all steps up to its time."""
    log, t_s, taken = StepLog(0.0), 0.0, []
    for later_s, samples, tokens in steps:
        t_s += later_s
        taken.append((t_s, samples, tokens))
        step_events.step(log, t_s, samples, tokens)
    for until_s in sorted(looks):
        tally = log.advance(float(until_s))
        counted = [step for step in taken if step[0] <= until_s]
        assert tally.steps == len(counted)
        assert tally.samples == sum(samples for _, samples, _ in counted)
        assert tally.tokens == sum(tokens for _, _, tokens in counted)
        assert tally.t_s == (counted[-1][0] if counted else 0.0)
        assert log.tally == tally


def test_a_count_is_unknown_once_one_step_did_not_say() -> None:
    """Tokens of 10, unknown and 10 are unknown; samples are still counted."""
    log = StepLog(0.0)
    step_events.step(log, 1.0, 8, 10)
    assert log.advance(1.0).tokens == 10.0
    step_events.step(log, 2.0, 8, None)
    step_events.step(log, 3.0, 8, 10)
    tally = log.advance(3.0)
    assert tally.tokens is None
    assert tally.samples == 24.0
    assert tally.steps == 3


def test_what_was_told_later_counts_for_the_steps_before() -> None:
    """Three steps without samples and then 30 samples: unknown first, 30 at the end."""
    log = StepLog(0.0)
    for t_s in (1.0, 2.0, 3.0):
        step_events.step(log, t_s, None, None)
    assert log.advance(3.0).samples is None
    log.tell(4.0, 30, None)
    tally = log.advance(4.0)
    assert (tally.samples, tally.tokens) == (30.0, None)
    assert (tally.steps, tally.t_s) == (3, 3.0)
    step_events.step(log, 5.0, None, 1)
    assert log.advance(5.0).samples is None


def test_a_correction_changes_the_count() -> None:
    """Two steps of 4 samples are corrected by -1 afterwards."""
    log = StepLog(0.0)
    step_events.step(log, 1.0, 4, 40)
    step_events.step(log, 2.0, 4, 40)
    log.tell(2.0, -1, -10)
    tally = log.advance(2.0)
    assert (tally.samples, tally.tokens) == (7.0, 70.0)


def test_steps_in_the_future_are_left_for_later() -> None:
    """A step that ended later is not in the tally."""
    log = StepLog(0.0)
    step_events.step(log, 1.0, 1, None)
    step_events.step(log, 2.0, 1, None)
    assert log.advance(1.5).steps == 1
    assert log.advance(0.5).steps == 1
    assert log.advance(2.0).steps == 2


def test_waiting_is_from_the_end_of_a_batch_to_the_next_data() -> None:
    """Waits of 0.5 s and 0.25 s count; the first batch has no wait."""
    log = StepLog(0.0)
    assert not log.sees_waits
    step_events.ready(log, 3.0)
    step_events.done(log, 4.0)
    step_events.ready(log, 4.5)
    step_events.step(log, 5.0, 1, None)
    step_events.ready(log, 5.25)
    step_events.step(log, 6.0, 1, None)
    assert log.advance(5.0).wait_s == pytest.approx(0.5)
    assert log.sees_waits
    assert log.advance(6.0).wait_s == pytest.approx(0.75)


def test_a_pause_is_no_wait_for_data() -> None:
    """Validation between two batches does not count as waiting."""
    log = StepLog(0.0)
    step_events.ready(log, 0.0)
    step_events.step(log, 1.0, 1, None)
    log.pause()
    step_events.ready(log, 60.0)
    step_events.step(log, 61.0, 1, None)
    assert log.advance(61.0).wait_s == 0.0


def test_data_that_was_ready_before_the_batch_was_done_is_no_wait() -> None:
    """A loader that is ahead of the training does not cause negative waits."""
    log = StepLog(0.0)
    step_events.done(log, 5.0)
    step_events.ready(log, 4.0)
    step_events.step(log, 6.0, 1, None)
    assert log.advance(6.0).wait_s == 0.0


def test_nobody_who_marks_data_is_not_the_same_as_no_wait() -> None:
    """Without marks ``sees_waits`` is false."""
    log = StepLog(0.0)
    step_events.step(log, 1.0, 1, None)
    step_events.step(log, 2.0, 1, None)
    assert not log.sees_waits


def test_a_step_counts_when_the_device_has_finished_it() -> None:
    """A step queued at 1000 and done at 1005 is counted at 1006, but not at 1002."""
    clock = FakeClock()
    device = ScriptedDevice(clock)
    log = StepLog(clock.monotonic_s(), WorkEnds(clock, lambda: device))
    device.launch(5.0)
    step_events.step(log, clock.monotonic_s(), 8, None)
    clock.sleep(2.0)
    assert log.advance(clock.monotonic_s()).steps == 0
    clock.sleep(4.0)
    tally = log.advance(clock.monotonic_s())
    assert (tally.steps, tally.samples) == (1, 8.0)
    assert tally.t_s == pytest.approx(1005.0, abs=1e-3)
    assert tally.t_error_s is not None
    log.tell(clock.monotonic_s(), None, 7)
    told = log.advance(clock.monotonic_s())
    assert (told.t_s, told.t_error_s) == (tally.t_s, tally.t_error_s)


def test_ends_never_go_back() -> None:
    """An undated step after a dated one does not end before it."""
    clock = FakeClock()
    device = ScriptedDevice(clock)
    log = StepLog(clock.monotonic_s(), WorkEnds(clock, lambda: device, pool_size=1))
    device.launch(5.0)
    for _ in range(2):
        step_events.step(log, clock.monotonic_s(), 1, 1)
        clock.sleep(0.1)
    clock.sleep(6.0)
    tally = log.advance(clock.monotonic_s())
    assert tally.steps == 2
    assert tally.t_s == pytest.approx(1005.0, abs=1e-3)
    assert tally.t_error_s is None
    assert log.host_marks == (1, 2)


def test_marks_show_that_the_training_is_alive() -> None:
    """``ready`` and ``done`` count as well as steps."""
    log = StepLog(0.0)
    step_events.step(log, 1.0, None, None)
    step_events.ready(log, 2.0)
    assert log.marked_s == 2.0
    step_events.done(log, 3.0)
    assert log.marked_s == 3.0


def test_the_period_is_the_mean_of_the_last_steps() -> None:
    """After 16 steps of 100 ms it is known; a validation of 5 s does not count as a step."""
    log, t_s = StepLog(0.0), 0.0
    for number in range(40):
        t_s += 0.1
        if number == 20:
            log.pause()
            t_s += 5.0
        step_events.step(log, t_s, 8, None)
        if number in (10, 39):
            log.advance(t_s)
            assert log.period_s == (None if number == 10 else pytest.approx(0.1))


def test_the_period_follows_when_steps_become_slower() -> None:
    """After 64 steps of 200 ms, earlier steps of 100 ms no longer count."""
    log, t_s = StepLog(0.0), 0.0
    for number in range(200):
        t_s += 0.1 if number < 100 else 0.2
        step_events.step(log, t_s, None, None)
    log.advance(t_s)
    assert log.period_s == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("events", "wait_s"),
    [
        # Without an event of its own, the wait begins with the end of the step.
        ([(STEP, 1.0), (READY, 4.0)], 3.0),
        ([(STEP, 1.0), (DONE, 2.0), (READY, 4.0)], 2.0),
        ([(STEP, 1.0), (FETCH, 3.0), (READY, 4.0)], 1.0),
        # Creating an iterator is a wait, and fetches its first batch.
        ([(STEP, 1.0), (DONE, 2.0), (FETCH, 3.0), (READY, 4.0)], 2.0),
        ([(STEP, 1.0), (FETCH, 2.0), (READY, 3.0), (READY, 4.0)], 1.0),
    ],
)
def test_the_begin_of_a_wait(events: list[tuple[int, float]], wait_s: float) -> None:
    """A wait begins with ``DONE``, or else with ``FETCH``, or else with the step."""
    log = StepLog(0.0)
    for kind, t_s in (*events, (STEP, 5.0)):
        log.append((kind, t_s, 1, None, None))
    assert log.advance(math.inf).wait_s == pytest.approx(wait_s)

"""Tests of the moments of samples and the time that they represent, in virtual time."""

import itertools
import sys

import pytest

from energy_callbacks.profiling.lines.stack_sampler import SampleRequest, SamplingSchedule
from energy_callbacks.testing import FakeClock
from tests.profiling.lines import virtual


def moments_of(duration_s, *, took_s=0.0, waited_s=0.0, max_share=1.0):
    """Return the moments at 200 Hz if the sampling thread always wakes up in time."""
    moments, found = SamplingSchedule(0.0, 200.0, max_share), []
    while (due_s := moments.due_s) < duration_s:
        moment_s, _ = moments.pass_by(due_s + waited_s, waited_s=waited_s, sleeps=1, took_s=took_s)
        found.append(moment_s)
    return found


def test_moments_scatter_around_their_rate():
    """Intervals scatter from 0.5 to 1.5 periods, so that no step is synchronous with them."""
    found = moments_of(30.0)
    periods_s = [b - a for a, b in itertools.pairwise(found)]
    assert len(found) == pytest.approx(6000, rel=0.03)
    assert 0.0025 <= min(periods_s) < 0.003
    assert 0.007 < max(periods_s) <= 0.0075


@pytest.mark.parametrize("cost", ["took_s", "waited_s"])
def test_looks_that_cost_much_become_rare(cost):
    """Samples of 5 ms with a maximum share of 1 % are taken at most twice a second."""
    found = moments_of(60.0, max_share=0.01, **{cost: 0.005})
    assert 100 < len(found) < 200, "12000 at this rate"
    assert all(b - a >= 0.25 * 0.99 for a, b in itertools.pairwise(found[-50:]))


@pytest.mark.parametrize(
    ("sleeps", "late_s", "held_up_s"),
    [(1, 0.002, 0.0), (2, 0.002, 0.002), (None, 0.002, 0.002), (None, 0.0002, 0.0)],
)
def test_a_moment_that_the_interpreter_held_up_keeps_its_time(sleeps, late_s, held_up_s):
    """Without counts of context switches, the delay decides; a late timer moves the moment."""
    moments = SamplingSchedule(10.0, 200.0, 1.0)
    moment_s, found_s = moments.pass_by(10.0 + late_s, waited_s=0.0, sleeps=sleeps, took_s=0.0)
    assert found_s == pytest.approx(held_up_s)
    assert moment_s == pytest.approx(10.0 if held_up_s else 10.0 + late_s)
    assert moments.due_s > 10.0 + late_s


def test_what_looks_stand_for_is_all_the_time():
    """Samples represent all the time without gaps, and a long call is one sample."""
    looks = []
    clock = FakeClock(start_s=0.0)
    interpreter = virtual.Interpreter(clock, lambda _, look: looks.append(look))
    virtual.work_sleep_and_read(interpreter, 10)
    interpreter.wait(0.3)
    assert all(one.until_s == other.since_s for one, other in itertools.pairwise(looks))
    assert looks[0].since_s == 0.0
    assert clock.monotonic_s() - looks[-1].until_s < 0.0075
    last = looks[-1]
    assert last.until_s - last.since_s > 0.29
    assert last.cpu == 0.0


SOON_S, SWITCH_S = 0.0005, sys.getswitchinterval()


@pytest.mark.parametrize(
    ("held_up_s", "waited_s", "is_before"),
    [(0.0, 0.02, False), (0.003, 0.02, True), (SWITCH_S, SOON_S, False), (SWITCH_S, 0.02, True)],
)
def test_what_a_moment_came_upon(held_up_s, waited_s, is_before):
    """A delayed moment belongs to the code before the call, unless Python was forced to switch."""
    asked_s = 5.0 + held_up_s
    request = SampleRequest(5.0, asked_s, held_up_s, cpu_s=1.0, process_s=2.0)
    look = request.served(asked_s + waited_s, (4.9, 5.0), 1.005, 2.025)
    assert look.is_before is is_before
    assert (look.since_s, look.asked_s, look.until_s) == (4.9, 5.0, 5.0)
    if waited_s > 0.001:  # a quarter of a core, and a whole one of other threads
        assert (look.cpu, look.others) == pytest.approx((0.25, 1.0))
    else:
        assert (look.cpu, look.others) == (1.0, 0.0)

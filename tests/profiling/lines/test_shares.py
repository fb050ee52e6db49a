"""Tests of the shares of lines in virtual and real programs whose shares are known."""

import time

import numpy as np
import pytest

from energy_callbacks.profiling.lines.stack_sampler import StackSampler
from energy_callbacks.profiling.lines.tally import LineTally, LineTime
from energy_callbacks.testing import FakeClock
from tests.profiling.lines import scripts, virtual


def by_line(tally):
    """Return the time by function and line."""
    found: dict[tuple[str, int], LineTime] = {}
    for _, _, bin_ in tally.spans():
        for site, spent in bin_.items():
            if site is not None:
                line = tally.line(site)
                found.setdefault((line.function, line.line), LineTime()).merge(spent)
    return found


def looked_at(program, *arguments, change=lambda look: look):
    """Sample a virtual program; returns the time by line and the duration."""
    clock = FakeClock()
    start_s = clock.monotonic_s()
    tally = LineTally(start_s)
    program(
        virtual.Interpreter(clock, lambda frame, look: tally.take(frame, change(look))), *arguments
    )
    return by_line(tally), clock.monotonic_s() - start_s


def followed(program, *arguments, rate_hz=200.0):
    """Sample a real program; returns the time by line and the duration."""
    start_s = time.monotonic()
    tally = LineTally(start_s)
    sampler = StackSampler(tally.take, rate_hz)
    sampler.start()
    program(*arguments)
    passed_s = time.monotonic() - start_s
    sampler.stop()
    return by_line(tally), passed_s


def test_thirty_and_seventy():
    """Two alternating lines of 3 and 7 ms have 30 % and 70 %."""
    found, passed_s = looked_at(virtual.two_lines, 3000)
    for comment, share in (("SHORT", 0.3), ("LONG", 0.7)):
        one = found["two_lines", scripts.line_with(virtual.two_lines, comment)]
        assert one.wall_s / passed_s == pytest.approx(share, abs=0.04)


@pytest.mark.parametrize(("work_s", "sleep_s"), [(0.003, 0.003), (0.002, 0.004), (0.008, 0.003)])
def test_python_before_a_call_that_lets_go_is_not_the_calls(work_s, sleep_s):
    """Python before a sleep keeps its share, even if shorter than CPython's switch interval."""
    found, passed_s = looked_at(virtual.work_and_sleep, 4000, work_s, sleep_s)
    work, sleep = (
        found["work_and_sleep", scripts.line_with(virtual.work_and_sleep, comment)]
        for comment in ("WORK", "SLEEP")
    )
    share = sleep_s / (work_s + sleep_s)
    assert sleep.wall_s / passed_s == pytest.approx(share, abs=0.04)
    assert work.wall_s / passed_s == pytest.approx(1.0 - share, abs=0.04)
    assert sleep.wait_s > 0.75 * sleep.wall_s  # what lasts less than 1 ms is taken for work
    assert work.cpu_s > 0.95 * work.wall_s


def test_without_the_rule_the_call_has_it_all():
    """The test above can fail: without ``is_before``, the sleep gets everything."""
    found, passed_s = looked_at(
        virtual.work_and_sleep,
        1000,
        0.003,
        0.003,
        change=lambda look: look._replace(is_before=False),
    )
    line = scripts.line_with(virtual.work_and_sleep, "SLEEP")
    assert found["work_and_sleep", line].wall_s > 0.9 * passed_s


def test_a_matrix_product_is_heard_of_at_the_next_call_and_is_still_its_own_line():
    """A matrix product is sampled at the next call, and keeps its time."""
    a = np.random.default_rng(0).normal(size=(700, 700))

    def program():
        end_s = time.monotonic() + 1.0
        while time.monotonic() < end_s:
            b = a @ a  # PRODUCT
            b.sum()

    line = program.__qualname__, scripts.line_with(program, "PRODUCT")
    shares = []
    for _ in range(3):  # a pause of this process may be in another line
        found, passed_s = followed(program)
        shares.append(found[line].wall_s / passed_s)
        if shares[-1] > 0.7:
            return
    pytest.fail(f"shares of the product: {shares}")


@pytest.mark.slow(reason="4 s of real loops; test_thirty_and_seventy has them in virtual time")
def test_thirty_and_seventy_in_real_time():
    """Two alternating lines of some ms; the tolerance is wide because the machine may be busy."""
    found, passed_s = followed(scripts.seventy_thirty, 400)
    program = scripts.seventy_thirty
    for comment, share in (("SHORT", 0.3), ("LONG", 0.7)):
        one = found["seventy_thirty", scripts.line_with(program, comment)]
        assert one.wall_s / passed_s == pytest.approx(share, abs=0.12)

"""Shares of lines whose truth is known, of real programs in real time."""

import time

import numpy as np
import pytest

from energy_callbacks.profiling.lines.asking import Asker
from energy_callbacks.profiling.lines.tally import Spent, Tally
from tests.profiling.lines import scripts


def followed(program, *arguments, rate_hz=200.0):
    """What was spent, by line, the seconds that the program ran, and what it returned."""
    start_s = time.monotonic()
    tally = Tally(start_s)
    asker = Asker(tally.take, rate_hz)
    asker.start()
    truth = program(*arguments)
    passed_s = time.monotonic() - start_s
    asker.stop()
    found: dict[tuple[str, int], Spent] = {}
    for _, _, bin_ in tally.spans():
        for site, spent in bin_.items():
            if site is not None:
                line = tally.line(site)
                found.setdefault((line.function, line.line), Spent()).merge(spent)
    return found, passed_s, truth


def test_thirty_and_seventy():
    """Two lines that take turns of some ms; wide, for the machine may be busy."""
    found, passed_s, _ = followed(scripts.seventy_thirty, 400)
    program = scripts.seventy_thirty
    for comment, share in (("SHORT", 0.3), ("LONG", 0.7)):
        one = found["seventy_thirty", scripts.line_with(program, comment)]
        assert one.wall_s / passed_s == pytest.approx(share, abs=0.12)


def test_python_before_a_call_that_lets_go_is_not_the_calls():
    """Python of 3 ms, less than CPython's switch interval, keeps its part beside a sleep.

    Wide, for on a busy machine threads wake late; without the rule the sleep has all of it.
    """
    found, passed_s, (_, slept_s) = followed(scripts.work_and_sleep, 500)
    program = scripts.work_and_sleep
    sleep = found["work_and_sleep", scripts.line_with(program, "SLEEP")]
    assert sleep.wall_s / passed_s == pytest.approx(slept_s / passed_s, abs=0.12)
    assert sleep.wait_s > 0.6 * sleep.wall_s


def test_a_matrix_product_is_heard_of_at_the_next_call_and_is_still_its_own_line():
    """The interpreter does not look after an operator; the product keeps its time."""
    a = np.random.default_rng(0).normal(size=(700, 700))

    def program():
        end_s = time.monotonic() + 2.0
        while time.monotonic() < end_s:
            b = a @ a  # PRODUCT
            b.sum()

    found, passed_s, _ = followed(program)
    name = program.__qualname__
    product = found[name, scripts.line_with(program, "PRODUCT")]
    assert product.wall_s > 0.7 * passed_s

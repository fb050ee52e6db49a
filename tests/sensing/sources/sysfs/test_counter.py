"""A counter adds up its increases, whatever happens at the ends of its range."""

import pytest

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.sensing.sources.sysfs.counter import Counter, CounterUnchanged


def _started(raw, **properties):
    """A counter with its first value, at 0 s."""
    counter = Counter(**properties)
    assert counter.advance(raw, 0.0) == 0.0
    return counter


def test_increases_add_up():
    """Joules are the increase since the first value, in the unit of the counter."""
    counter = _started(7_000_000, unit=1e-6)
    assert counter.advance(7_500_000, 1.0) == pytest.approx(0.5)
    assert counter.advance(7_500_000, 2.0) == pytest.approx(0.5)
    assert counter.advance(9_000_000, 3.0) == pytest.approx(2.0)


def test_wrap_continues_at_0():
    """From the largest value to 0 is one step of the counter."""
    counter = _started(2**32 - 1, unit=1.0, wrap=2**32 - 1)
    assert counter.advance(0, 1.0) == 1.0
    assert counter.advance(99, 1.1) == 100.0
    assert counter.wraps == 1


@pytest.mark.parametrize(("passed_s", "is_wrap"), [(1.0, True), (0.9, False)])
def test_a_wrap_needs_a_possible_power(passed_s, is_wrap):
    """10 kJ across the end of the range in 2 s (1 s of tolerance) are 5 kW; more is a reset."""
    counter = _started(95_000, unit=1.0, wrap=99_999)
    assert counter.advance(5_000, passed_s) == (10_000.0 if is_wrap else -1.0)
    assert counter.wraps == is_wrap


def test_decrease_without_range_is_a_reset():
    """A counter that cannot wrap was reset: the energy decreases by 1 J, and later increases."""
    counter = _started(1000, unit=0.5)
    assert counter.advance(1020, 1.0) == 10.0
    assert counter.advance(10, 2.0) == 9.0
    assert counter.advance(15, 3.0) == 11.5


def test_stopped():
    """A value that stays is no reading; after a while the counter has stopped."""
    counter = _started(1000, unit=1.0, stale_s=5.0)
    assert counter.advance(1100, 1.0) == 100.0
    with pytest.raises(CounterUnchanged):
        counter.advance(1100, 6.0)
    assert counter.advance(1200, 6.1) == 200.0
    with pytest.raises(ReadingMissed, match="stopped: no change for 6 s"):
        counter.advance(1200, 12.1)
    assert counter.advance(1300, 13.0) == 199.0  # what it counted meanwhile is not known
    assert counter.advance(1400, 14.0) == 299.0


def test_wrap_after_a_stop():
    """If the first value after a stop is across the end of the range, it is not known either."""
    counter = _started(90, unit=1.0, wrap=99, stale_s=5.0)
    with pytest.raises(ReadingMissed, match="stopped"):
        counter.advance(90, 6.0)
    assert counter.advance(5, 7.0) == -1.0
    assert counter.wraps == 0


def test_long_time_between_two_readings_is_no_stop():
    """A counter that was not read for long has not stopped."""
    counter = _started(1000, unit=1.0, stale_s=5.0)
    assert counter.advance(2000, 100.0) == 1000.0

"""Setting the wall clock is reported, slewing is not."""

import pytest

from energy_callbacks.accounting.journal.wall_clock import WallClock
from energy_callbacks.testing import FakeClock


@pytest.mark.parametrize(("jump_s", "words"), [(2.0, "forward by 2.0 s"), (-0.5, "back by 0.5 s")])
def test_a_jump_is_told_once_with_its_moment(jump_s: float, words: str) -> None:
    """The message has the time after the start, and is not repeated."""
    clock = FakeClock()
    watch = WallClock(clock, clock.monotonic_s())
    clock.advance(30.0)
    clock.set_wall_clock(jump_s)
    [message] = watch.news()
    assert words in message
    assert "30 s after the start" in message
    assert list(watch.news()) == []


def test_slewing_is_no_jump() -> None:
    """A time server corrects half a second within an hour."""
    clock = FakeClock()
    watch = WallClock(clock, clock.monotonic_s())
    for _ in range(3600):
        clock.advance(1.0)
        clock.set_wall_clock(-0.5 / 3600)
        assert list(watch.news()) == []


def test_a_clock_that_jumps_all_night_is_told_thrice() -> None:
    """Further jumps are not reported."""
    clock = FakeClock()
    watch = WallClock(clock, clock.monotonic_s())
    told = 0
    for _ in range(10):
        clock.set_wall_clock(1.0)
        told += len(list(watch.news()))
    assert told == 3

import random

import pytest

from energy_callbacks.sensing.sources.nvidia.tick_clock import TickClock


def seen(period_s: float, *, ticks: int, seed: int) -> TickClock:
    """A clock that saw every 13th tick, each between two moments a few milliseconds apart."""
    numbers = random.Random(seed)
    clock = TickClock()
    for number in (0, 1, 3, 6, *range(13, ticks, 13)):
        tick_s = 50.0 + number * period_s
        before_s, after_s = numbers.uniform(0.0, 0.004), numbers.uniform(0.0, 0.004)
        assert clock.see(number, tick_s - before_s, tick_s + after_s)
    return clock


@pytest.mark.parametrize("period_s", [0.02, 0.1, 0.104])
@pytest.mark.parametrize("seed", range(3))
def test_every_tick_lies_in_its_span(period_s: float, seed: int) -> None:
    """A tick that was not seen is where the clock says, far ahead too."""
    clock = seen(period_s, ticks=100, seed=seed)

    for number in (2, 50, 99, 500, 5000):
        first_s, last_s = clock.span(number)
        assert first_s <= 50.0 + number * period_s <= last_s
    low_s, high_s = clock.period_s
    assert low_s <= period_s <= high_s


def test_what_is_seen_sharpens_it() -> None:
    """Ticks known to 8 ms each place the next one within less than 4 ms."""
    first_s, last_s = seen(0.1, ticks=400, seed=1).span(401)

    assert last_s - first_s < 0.004


def test_number_of_the_nearest_tick() -> None:
    """Any moment belongs to the tick it is closest to."""
    clock = seen(0.1, ticks=400, seed=1)

    assert clock.number_at(50.0 + 77 * 0.1 + 0.03) == 77
    assert clock.number_at(50.0 + 77 * 0.1 + 0.07) == 78


def test_another_clock_is_noticed() -> None:
    """A tick half a period beside its place agrees with no regular clock."""
    clock = seen(0.1, ticks=400, seed=1)

    assert not clock.see(401, 50.0 + 40.15, 50.0 + 40.155)


def test_one_tick_leaves_the_period_open() -> None:
    """After the first tick the second may come 15 to 300 ms later."""
    clock = TickClock()
    clock.see(0, 7.0, 7.004)

    assert clock.span(1) == pytest.approx((7.015, 7.304))

import random
from itertools import pairwise

import pytest

from energy_callbacks.sensing.sources.nvidia.driver_stamps import DriverStamps
from energy_callbacks.testing import FakeClock

SPACING_S = 0.02
DEPTH = 120


class Driver:
    """Stamps a sample each 20 ms with the wall clock; the value is the true monotonic time."""

    def __init__(self, clock: FakeClock, seed: int = 1) -> None:
        self.clock = clock
        self.samples: list[tuple[int, float]] = []
        self.taken_s: list[float] = []
        self._jitter = random.Random(seed)

    def pass_time(self, duration_s: float) -> None:
        end_s = self.clock.monotonic_s() + duration_s
        while self.clock.monotonic_s() + SPACING_S <= end_s:
            self.clock.advance(SPACING_S + self._jitter.uniform(-0.003, 0.003))
            stamp_us = round(self.clock.unix_s() * 1e6)
            self.samples.append((stamp_us, self.clock.monotonic_s()))
            self.samples = self.samples[-DEPTH:]
            self.taken_s.append(self.clock.monotonic_s())
        self.clock.advance(max(end_s - self.clock.monotonic_s(), 0.004))


@pytest.fixture
def clock() -> FakeClock:
    """A clock of its own for each test."""
    return FakeClock()


def drained(driver: Driver, stamps: DriverStamps, turns: int) -> list[tuple[float, float]]:
    """Everything that so many drains, half a second apart, hand over."""
    found = []
    for _ in range(turns):
        driver.pass_time(0.5)
        found += stamps.new(driver.samples)
    return found


def assert_in_place(found: list[tuple[float, float]]) -> None:
    """Times rise, and each is where the sample was taken, but for slow drift of the clocks."""
    times = [t_s for t_s, _ in found]
    assert times == sorted(set(times))
    for t_s, true_s in found:
        assert t_s == pytest.approx(true_s, abs=0.011)


def test_each_sample_once_and_in_order(clock: FakeClock) -> None:
    """Over many drains that overlap, every sample comes exactly once, at its time."""
    driver, stamps = Driver(clock), DriverStamps(clock)

    found = drained(driver, stamps, turns=50)

    assert_in_place(found)
    assert [true_s for _, true_s in found] == driver.taken_s


@pytest.mark.parametrize("jump_s", [2.0, -2.0, 0.3, -0.3, 3600.0, -3600.0, 0.05])
def test_wall_clock_set_shifts_no_sample(clock: FakeClock, jump_s: float) -> None:
    """Setting the wall clock between two drains shifts no sample and loses at most 1 s of them."""
    driver, stamps = Driver(clock), DriverStamps(clock)
    before = drained(driver, stamps, turns=10)

    driver.pass_time(0.2)
    clock.set_wall_clock(jump_s)
    driver.pass_time(0.2)
    after = stamps.new(driver.samples) + drained(driver, stamps, turns=10)

    assert_in_place(before + after)
    times = [t_s for t_s, _ in before + after]
    assert max(b - a for a, b in pairwise(times)) < 1.0


@pytest.mark.parametrize("jump_s", [2.0, -2.0])
def test_large_jump_loses_nothing(clock: FakeClock, jump_s: float) -> None:
    """After a jump that is longer than a drain, the samples on both sides of it are all placed."""
    driver, stamps = Driver(clock), DriverStamps(clock)
    before = drained(driver, stamps, turns=10)

    driver.pass_time(0.2)
    clock.set_wall_clock(jump_s)
    driver.pass_time(0.2)
    across = stamps.new(driver.samples)

    assert_in_place(before + across)
    assert [true_s for _, true_s in before + across] == driver.taken_s


@pytest.mark.parametrize("jump_s", [2.0, -2.0])
def test_driver_that_stamps_anew(clock: FakeClock, jump_s: float) -> None:
    """A driver that shifts all its stamps with the wall clock makes a gap, no wrong time."""
    driver, stamps = Driver(clock), DriverStamps(clock)
    before = drained(driver, stamps, turns=10)

    clock.set_wall_clock(jump_s)
    driver.samples = [(stamp + round(jump_s * 1e6), value) for stamp, value in driver.samples]
    after = drained(driver, stamps, turns=10)

    assert_in_place(before + after)
    assert after[-1][0] - after[0][0] > 4.0


def test_duplicates_disorder_and_stale_samples(clock: FakeClock) -> None:
    """Samples given twice or in disorder come once and in order; a late old one is dropped."""
    driver, stamps = Driver(clock), DriverStamps(clock)
    driver.pass_time(1.0)
    late = driver.samples.pop(10)
    first = stamps.new([*reversed(driver.samples), *driver.samples[::5]])
    driver.pass_time(0.5)

    second = stamps.new([late, *driver.samples])

    assert_in_place(first + second)
    assert late[1] not in [true_s for _, true_s in first + second]


def test_stamp_in_the_future_is_dropped(clock: FakeClock) -> None:
    """A sample that claims to be from the future is no sample."""
    driver, stamps = Driver(clock), DriverStamps(clock)
    driver.pass_time(1.0)
    future_us = round((clock.unix_s() + 5.0) * 1e6)

    found = stamps.new([*driver.samples, (future_us, 1.0)])

    assert_in_place(found)


def test_slewed_wall_clock(clock: FakeClock) -> None:
    """A wall clock that is slewed by 500 ppm for minutes costs no sample."""
    driver, stamps = Driver(clock), DriverStamps(clock)
    found = []
    for _ in range(240):
        driver.pass_time(0.5)
        clock.set_wall_clock(500e-6 * 0.5)
        found += stamps.new(driver.samples)

    assert_in_place(found)
    assert [true_s for _, true_s in found] == driver.taken_s

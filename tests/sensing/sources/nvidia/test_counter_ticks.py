import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from energy_callbacks.sensing.sources.nvidia.counter_ticks import CounterTicks, Tick
from energy_callbacks.testing import FakeClock

POWER_W = 300.0


class SlowCounter:
    """A counter that moves each ``period_s``; a call costs time and reads in its middle."""

    def __init__(
        self, clock: FakeClock, period_s: float, call_s: Callable[[], float] = lambda: 0.003
    ) -> None:
        self._clock = clock
        self._period_s = period_s
        self._call_s = call_s
        self.calls = 0

    def read(self) -> float | None:
        self.calls += 1
        call_s = self._call_s()
        self._clock.sleep(call_s / 2.0)
        value = self.value(self._clock.monotonic_s())
        self._clock.sleep(call_s / 2.0)
        return value

    def value(self, t_s: float) -> float | None:
        return POWER_W * math.floor(t_s / self._period_s) * self._period_s


class Frozen(SlowCounter):
    def value(self, t_s: float) -> float | None:
        return 5e5


class Absent(SlowCounter):
    def value(self, t_s: float) -> float | None:
        return None


def run(
    clock: FakeClock,
    ticks: CounterTicks,
    duration_s: float,
    late_s: Callable[[], float] = lambda: 50e-6,
) -> list[Tick]:
    """All ticks of so many seconds; called when a call is due, or a little later."""
    found = []
    end_s = clock.monotonic_s() + duration_s
    while clock.monotonic_s() < end_s:
        tick = ticks.next_tick()
        if tick is not None:
            found.append(tick)
        clock.sleep(max(ticks.due_s - clock.monotonic_s(), 0.0) + late_s())
    return found


def true_error_s(tick: Tick) -> float:
    """How far a tick's time is from the truth."""
    return abs(tick.t_s - tick.value / POWER_W)


def h200_call_s(seed: int) -> Callable[[], float]:
    """2.6 ms at the median, 20 ms at the 99th percentile (measured on an H200)."""
    numbers = random.Random(seed)
    sigma = math.log(20.0 / 2.6) / 2.326
    return lambda: 0.0026 * math.exp(numbers.gauss(0.0, sigma))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("period_s", [0.1, 0.101, 0.02, 0.104, 0.025])
def test_tick_lies_within_its_error(period_s: float, seed: int) -> None:
    """Each tick really happened within its stated error, with calls as slow as an H200's."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, period_s, h200_call_s(seed))

    found = run(clock, CounterTicks(clock, counter.read), 120.0)

    assert len(found) > 30
    for tick in found:
        assert true_error_s(tick) <= tick.t_error_s + 1e-9


def test_calls_take_little_of_a_core() -> None:
    """Once the clock is known, calls of 3 ms come each 4 s, and a few more each minute."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, 0.1)
    ticks = CounterTicks(clock, counter.read)
    run(clock, ticks, 60.0)
    counter.calls = 0

    found = run(clock, ticks, 600.0)

    assert counter.calls * 0.003 / 600.0 < 0.0015
    assert len(found) >= 150
    assert max(tick.t_error_s for tick in found) < 0.005


@pytest.mark.parametrize("latest_s", [0.005, 0.010, 0.020])
def test_a_thread_that_wakes_late_keeps_the_clock(latest_s: float) -> None:
    """A training that holds the interpreter for up to 20 ms costs ticks, but not ten times more."""
    clock, numbers = FakeClock(start_s=7.7), random.Random(4)
    counter = SlowCounter(clock, 0.1)
    ticks = CounterTicks(clock, counter.read)

    def late_s() -> float:
        return numbers.uniform(0.0, latest_s)

    run(clock, ticks, 60.0, late_s)
    counter.calls = 0
    found = run(clock, ticks, 600.0, late_s)

    assert counter.calls * 0.003 / 600.0 < 0.0025
    assert len(found) >= 140
    for tick in found:
        assert true_error_s(tick) <= tick.t_error_s + 1e-9


@pytest.mark.parametrize("period_s", [0.02, 0.1])
def test_a_cheap_counter_is_read_at_each_tick(period_s: float) -> None:
    """Calls of 20 us read every tick, each within 0.15 ms, for 0.5 % of a core at most."""
    clock, numbers = FakeClock(start_s=7.7), random.Random(3)
    counter = SlowCounter(clock, period_s, lambda: 20e-6)
    ticks = CounterTicks(clock, counter.read)

    def late_s() -> float:
        return numbers.expovariate(1e4)

    run(clock, ticks, 30.0, late_s)
    counter.calls = 0
    found = run(clock, ticks, 60.0, late_s)

    assert ticks.is_at_every_tick
    gaps = [after.value - before.value for before, after in pairwise(found)]
    assert max(gaps) < 1.5 * POWER_W * period_s
    assert len(found) == pytest.approx(60.0 / period_s, abs=2)
    assert max(tick.t_error_s for tick in found) < 0.00025
    assert max(true_error_s(tick) for tick in found) < 0.00015
    assert counter.calls * 20e-6 / 60.0 < 0.005


def test_a_call_of_half_a_millisecond_is_not_made_at_each_tick() -> None:
    """Cheap calls that would take 2.5 % of a core are made every 0.25 s instead."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, 0.02, lambda: 0.0005)
    ticks = CounterTicks(clock, counter.read)
    run(clock, ticks, 30.0)
    counter.calls = 0

    found = run(clock, ticks, 60.0)

    assert not ticks.is_at_every_tick
    assert len(found) == pytest.approx(60.0 / 0.25, rel=0.1)
    assert counter.calls * 0.0005 / 60.0 < 0.0045


def test_an_expensive_counter_is_read_as_rarely_as_before() -> None:
    """Calls of 3 ms are never made at every tick."""
    clock = FakeClock(start_s=7.7)
    ticks = CounterTicks(clock, SlowCounter(clock, 0.1).read)

    run(clock, ticks, 60.0)

    assert not ticks.is_at_every_tick


def test_a_run_of_calls_without_time_ends() -> None:
    """If calls take no time at all, a search still ends, and finds its tick."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, 0.02, lambda: 0.0)
    ticks = CounterTicks(clock, counter.read)

    found = run(clock, ticks, 20.0)

    assert counter.calls < 60_000
    assert len(found) > 900


class Shifted(SlowCounter):
    """After 60 s the ticks come half a period later."""

    def value(self, t_s: float) -> float | None:
        shift_s = 0.05 if t_s > 60.0 else 0.0
        return POWER_W * (math.floor((t_s - shift_s) / self._period_s) * self._period_s + shift_s)


def test_counter_that_changes_its_phase() -> None:
    """Ticks that move by half a period are noticed within 65 s and right from then on."""
    clock = FakeClock(start_s=0.0)
    counter = Shifted(clock, 0.1)

    found = run(clock, CounterTicks(clock, counter.read), 160.0)

    for tick in found:
        if not 60.0 <= tick.t_s < 125.0:
            assert true_error_s(tick) <= tick.t_error_s + 1e-9
    assert len([tick for tick in found if tick.t_s > 125.0]) > 8


def test_first_tick_comes_within_a_quarter_of_a_second() -> None:
    """Without knowing the clock, the next tick is caught."""
    clock = FakeClock(start_s=7.73)
    counter = SlowCounter(clock, 0.1)

    found = run(clock, CounterTicks(clock, counter.read), 0.25)

    assert found
    assert found[0].t_s < 7.73 + 0.12


def test_a_call_never_waits() -> None:
    """Asked before a call is due, it makes none."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, 0.1)
    ticks = CounterTicks(clock, counter.read)
    run(clock, ticks, 30.0)
    ticks.next_tick()
    clock.sleep(ticks.due_s - clock.monotonic_s() - 0.001)
    calls, before_s = counter.calls, clock.monotonic_s()

    assert ticks.next_tick() is None

    assert counter.calls == calls
    assert clock.monotonic_s() == before_s


def test_frozen_counter_gives_no_tick() -> None:
    """A counter that stands still gives no tick, is counted, and is asked ever less."""
    clock = FakeClock()
    counter = Frozen(clock, 0.1)
    ticks = CounterTicks(clock, counter.read)

    assert run(clock, ticks, 120.0) == []
    assert 5 <= ticks._misses_in_a_row <= 9
    assert counter.calls <= 40 * ticks._misses_in_a_row


def test_a_slow_search_ends() -> None:
    """Where each call takes 0.1 s, a search ends after a quarter of a second and one call."""
    clock = FakeClock()
    counter = Frozen(clock, 0.1, lambda: 0.1)

    run(clock, CounterTicks(clock, counter.read), 0.9)

    assert counter.calls <= 4


def test_counter_without_value_gives_no_tick() -> None:
    """Where the counter has no value, one call is enough to know."""
    clock = FakeClock()
    counter = Absent(clock, 0.1)
    ticks = CounterTicks(clock, counter.read)

    assert run(clock, ticks, 0.9) == []
    assert counter.calls == 1
    assert ticks._misses_in_a_row == 1


class Broken(SlowCounter):
    def value(self, t_s: float) -> float | None:
        raise OSError("unknown error")


def test_a_counter_that_fails_is_asked_less_and_less() -> None:
    """Each error reaches the caller, and the next call comes a second later, two, four."""
    clock = FakeClock()
    counter = Broken(clock, 0.1)
    ticks = CounterTicks(clock, counter.read)

    for _ in range(4):
        with pytest.raises(OSError, match="unknown error"):
            run(clock, ticks, 60.0)

    assert counter.calls == 4
    assert ticks.due_s - clock.monotonic_s() == pytest.approx(8.0, abs=0.01)


class FrozenForAWhile(SlowCounter):
    def value(self, t_s: float) -> float | None:
        return super().value(40.0 if 40.0 <= t_s < 50.0 else t_s)


def test_counter_recovers() -> None:
    """A counter that freezes for ten seconds gives right ticks again afterwards."""
    clock = FakeClock(start_s=0.0)
    counter = FrozenForAWhile(clock, 0.1)

    found = run(clock, CounterTicks(clock, counter.read), 120.0)

    assert [tick for tick in found if tick.t_s > 66.0]
    wrong = [tick for tick in found if true_error_s(tick) > tick.t_error_s + 1e-9]
    assert len(wrong) <= 1  # one value may be read before it is seen to stand still
    assert all(40.0 < tick.t_s < 50.3 for tick in wrong)


@pytest.mark.parametrize("period_s", [0.02, 0.1])
def test_a_counter_that_is_read_at_each_tick_and_freezes(period_s: float) -> None:
    """Of the ten seconds in which it stands still, at most one tick has its old value."""
    clock = FakeClock(start_s=0.0)
    counter = FrozenForAWhile(clock, period_s, lambda: 20e-6)

    found = run(clock, CounterTicks(clock, counter.read), 80.0)

    assert [tick for tick in found if tick.t_s > 66.0]
    wrong = [tick for tick in found if true_error_s(tick) > tick.t_error_s + 1e-9]
    assert len(wrong) <= 1


@pytest.mark.parametrize("period_s", [0.02, 0.1])
@pytest.mark.parametrize("call_s", [20e-6, 0.003])
@pytest.mark.parametrize("stall_s", [20.0, 100.0, 5e4])
def test_a_thread_that_stalls_locates_a_tick_again(
    period_s: float, call_s: float, stall_s: float
) -> None:
    """The program is suspended: the clock can no longer tell which tick is the last."""
    clock = FakeClock(start_s=0.0)
    counter = SlowCounter(clock, period_s, lambda: call_s)
    ticks = CounterTicks(clock, counter.read, 0.6 * period_s)
    run(clock, ticks, 2.0)
    clock.sleep(stall_s)

    found = run(clock, ticks, 10.0)

    assert len(found) >= 3
    for tick in found:
        assert true_error_s(tick) <= tick.t_error_s + 1e-9


@pytest.mark.parametrize(("period_s", "call_s"), [(0.02, 0.005), (0.1, 0.03), (0.1, 0.1)])
def test_calls_that_cannot_locate_a_tick_have_pauses(period_s: float, call_s: float) -> None:
    """Two calls take longer than the shortest possible period; they take 5 % of the time."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, period_s, lambda: call_s)

    found = run(clock, CounterTicks(clock, counter.read, 0.6 * period_s), 120.0)

    assert counter.calls * call_s / 120.0 < 0.05
    assert len(found) >= 20
    for tick in found:
        assert true_error_s(tick) <= tick.t_error_s + 1e-9


@pytest.mark.parametrize("period_s", [0.02, 0.1])
def test_the_newest_tick_of_a_cheap_counter_comes_once(period_s: float) -> None:
    """Asked every 5 ms, each tick is returned once, at most 6 ms after it, except the first."""
    clock = FakeClock(start_s=7.7)
    ticks = CounterTicks(clock, SlowCounter(clock, period_s, lambda: 20e-6).read)
    run(clock, ticks, 30.0)
    found: list[Tick] = []
    for _ in range(400):
        if tick := ticks.newest_tick():
            assert not found or clock.monotonic_s() - tick.t_s < 0.006
            found.append(tick)
        clock.sleep(0.005)
    steps = [(after.value - before.value) / POWER_W for before, after in pairwise(found)]
    assert steps == pytest.approx([period_s] * len(steps))
    assert len(found) == pytest.approx(2.0 / period_s, abs=2)


def test_an_expensive_counter_is_not_asked_before_it_is_due() -> None:
    """On an H200, asking for the newest tick makes no more calls than its plan has."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, 0.1, h200_call_s(1))
    ticks = CounterTicks(clock, counter.read)
    run(clock, ticks, 30.0)
    clock.sleep(max(ticks.due_s - 1.0 - clock.monotonic_s(), 0.0))
    counter.calls = 0
    while clock.monotonic_s() < ticks.due_s - 0.01:
        assert ticks.newest_tick() is None
        clock.sleep(0.005)
    assert counter.calls == 0

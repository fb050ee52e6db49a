import math
import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from energy_callbacks.sensing.sources.counter_ticks import CounterTicks, Tick
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


def run(clock: FakeClock, ticks: CounterTicks, turns: int, pause_s: float = 0.5) -> list[Tick]:
    """All ticks of so many turns."""
    found = []
    for _ in range(turns):
        tick = ticks.next_tick()
        if tick is not None:
            found.append(tick)
        clock.advance(pause_s)
    return found


def h200_call_s(seed: int) -> Callable[[], float]:
    """2.6 ms at the median, 20 ms at the 99th percentile (measured on an H200)."""
    numbers = random.Random(seed)
    sigma = math.log(20.0 / 2.6) / 2.326
    return lambda: 0.0026 * math.exp(numbers.gauss(0.0, sigma))


@pytest.mark.parametrize("known_period_s", [0.1, 0.104, 0.02])
@pytest.mark.parametrize("period_s", [0.1, 0.101, 0.02, 0.104])
def test_tick_lies_within_its_error(period_s: float, known_period_s: float) -> None:
    """Each tick really happened within its stated error, whatever period was expected."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, period_s, h200_call_s(1))

    found = run(clock, CounterTicks(clock, counter.read, known_period_s), turns=120)

    assert len(found) > 40
    for tick in found:
        true_s = tick.value / POWER_W
        assert abs(tick.t_s - true_s) <= tick.t_error_s + 1e-9


def test_prediction_saves_calls_and_sharpens() -> None:
    """Once the phase is known, a tick costs few calls, and its error is about one call."""
    clock = FakeClock(start_s=7.7)
    counter = SlowCounter(clock, 0.1)
    ticks = CounterTicks(clock, counter.read, 0.1)
    run(clock, ticks, turns=20)
    counter.calls = 0

    found = run(clock, ticks, turns=100)

    assert len(found) >= 45
    assert counter.calls / len(found) < 5.0
    assert max(tick.t_error_s for tick in found) < 0.0035


def test_counter_that_changes_its_phase() -> None:
    """When the ticks move by half a period, they are found again, each within its error."""
    clock = FakeClock(start_s=0.0)
    counter = SlowCounter(clock, 0.1)

    def shifted(t_s: float) -> float | None:
        shift_s = 0.05 if t_s > 30.0 else 0.0
        return POWER_W * (math.floor((t_s - shift_s) / 0.1) * 0.1 + shift_s)

    counter.value = shifted  # type: ignore[method-assign]
    found = run(clock, CounterTicks(clock, counter.read, 0.1), turns=160)

    late = [tick for tick in found if tick.t_s > 35.0]
    assert len(late) > 30
    assert max(tick.t_error_s for tick in late) < 0.0035
    for tick in found:
        assert abs(tick.t_s - tick.value / POWER_W) <= tick.t_error_s + 1e-9


def test_first_call_finds_a_tick() -> None:
    """The first call already brackets a tick, without knowing the phase."""
    clock = FakeClock(start_s=7.73)
    counter = SlowCounter(clock, 0.1)

    tick = CounterTicks(clock, counter.read, 0.1).next_tick()

    assert tick is not None
    assert counter.calls <= 12


def test_at_most_one_search_a_second() -> None:
    """Between two searches lies a second, however often it is asked."""
    clock = FakeClock()
    counter = SlowCounter(clock, 0.1)

    found = run(clock, CounterTicks(clock, counter.read, 0.1), turns=100, pause_s=0.1)

    assert min(b.t_s - a.t_s for a, b in pairwise(found)) > 0.85


def test_frozen_counter_gives_no_tick() -> None:
    """A counter that stands still gives no tick, is counted, and is asked ever less."""
    clock = FakeClock()
    counter = Frozen(clock, 0.1)
    ticks = CounterTicks(clock, counter.read, 0.1)

    assert run(clock, ticks, turns=240) == []
    assert ticks.misses >= 5
    assert counter.calls <= 12 * ticks.misses
    assert ticks.misses < 12


def test_search_is_bounded() -> None:
    """A search ends after a quarter of a second and one call, even if each call takes 0.1 s."""
    clock = FakeClock()
    start_s = clock.monotonic_s()
    counter = Frozen(clock, 0.1, lambda: 0.1)

    CounterTicks(clock, counter.read, 0.1).next_tick()

    assert clock.monotonic_s() - start_s <= 0.35 + 1e-9


def test_counter_without_value_gives_no_tick() -> None:
    """Where the counter has no value, one call is enough to know."""
    clock = FakeClock()
    counter = Absent(clock, 0.1)

    assert CounterTicks(clock, counter.read, 0.1).next_tick() is None
    assert counter.calls == 1


def test_counter_recovers() -> None:
    """A counter that freezes for ten seconds gives right ticks again afterwards."""
    clock = FakeClock(start_s=0.0)
    counter = SlowCounter(clock, 0.1)

    def frozen_for_a_while(t_s: float) -> float | None:
        return SlowCounter.value(counter, 20.0 if 20.0 <= t_s < 30.0 else t_s)

    counter.value = frozen_for_a_while  # type: ignore[method-assign]
    found = run(clock, CounterTicks(clock, counter.read, 0.1), turns=200)

    assert not [tick for tick in found if 20.3 < tick.t_s < 29.5]
    assert [tick for tick in found if tick.t_s > 40.0]
    for tick in found:
        if not 29.9 < tick.t_s < 30.1:
            assert abs(tick.t_s - tick.value / POWER_W) <= tick.t_error_s + 1e-9

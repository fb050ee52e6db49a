"""When a counter that moves in ticks last moved, found with few calls.

An energy counter whose call is slow (3 to 24 ms on an H200) and whose value moves every 100 ms
cannot be read *at* a moment. What can be known is between which two moments it moved::

    call with the old value          call with the new value
    |<------- 3 ms ------->|         |<------- 3 ms ------->|
    ^ not earlier                                not later  ^
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from energy_callbacks.sensing.clock import Clock

INTERVAL_S: Final = 1.0
_CALLS: Final = 12
_SEARCH_S: Final = 0.25
# Where nothing is known, twelve calls must span the longest period seen (104 ms, RTX 3090 and
# A100: Yang et al., SC'24); where six quick ones have missed the tick, the other six must.
_SPACING_S: Final = 0.009
_LATE_SPACING_S: Final = 0.017
_QUICK_CALLS: Final = 6
_FIRST_DOUBT_S: Final = 0.010
_LEAST_DOUBT_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 32.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A counter took ``value`` at ``t_s``, give or take ``t_error_s`` (a bound, no deviation)."""

    t_s: float
    value: float
    t_error_s: float


class CounterTicks:
    """Brackets one tick of a counter about once a second, calling just before it is expected.

    A counter that does not move within twelve calls or 0.25 s gives no tick, and is asked less
    and less often, at last every 32 s.

    Args:
        clock: time.
        read: the slow call; ``None`` where the counter has no value.
        period_s: of the ticks, as far as known; refined with each tick.
    """

    def __init__(self, clock: Clock, read: Callable[[], float | None], period_s: float) -> None:
        self._clock = clock
        self._read = read
        self._period_s = period_s
        self._ticks: deque[tuple[int, Tick]] = deque(maxlen=10)
        self._doubt_s = _FIRST_DOUBT_S
        self._phase_s = 0.0
        self._call_s = 0.0
        self._due_s = clock.monotonic_s()
        self._misses_in_a_row = 0
        self.misses = 0

    def next_tick(self) -> Tick | None:
        """A new tick where one is due and could be found."""
        start_s = self._clock.monotonic_s()
        if start_s < self._due_s:
            return None
        self._due_s = start_s + INTERVAL_S
        expected_s = self._expected_s(start_s)
        if expected_s is not None:
            self._clock.sleep(max(expected_s - self._margin_s() - start_s, 0.0))
        tick = self._search(self._doubt_s / 2.0 if expected_s is not None else _SPACING_S)
        if tick is None:
            self._note_miss(start_s)
        else:
            self._learn(tick, expected_s)
        return tick

    def _expected_s(self, now_s: float) -> float | None:
        """The first tick that can still be waited for; ``None`` where nothing is known."""
        if not self._ticks:
            return None
        phase_s = self._phase_s + self._ticks[-1][0] * self._period_s
        periods = -(-(now_s + self._margin_s() - phase_s) // self._period_s)
        expected_s = phase_s + periods * self._period_s
        return expected_s if expected_s - now_s < _SEARCH_S / 2 else None

    def _margin_s(self) -> float:
        return self._doubt_s + self._call_s

    def _search(self, spacing_s: float) -> Tick | None:
        """Call until the value changes: six calls with this spacing, then slower ones."""
        old_start_s = self._clock.monotonic_s()
        end_s = old_start_s + _SEARCH_S
        old = self._read()
        self._note_call(self._clock.monotonic_s() - old_start_s)
        for call in range(1, _CALLS):
            if call == _QUICK_CALLS:
                spacing_s = max(spacing_s, _LATE_SPACING_S)
            self._clock.sleep(max(old_start_s + spacing_s - self._clock.monotonic_s(), 0.0))
            start_s = self._clock.monotonic_s()
            if old is None or start_s >= end_s:
                return None
            new = self._read()
            stop_s = self._clock.monotonic_s()
            if new != old:
                return _between(old_start_s, stop_s, new)
            old_start_s = start_s
            self._note_call(stop_s - start_s)
        return None

    def _note_call(self, call_s: float) -> None:
        """Remember the slowest of the last calls: the first one must still see the old value."""
        self._call_s = max(call_s, 0.9 * self._call_s)

    def _note_miss(self, start_s: float) -> None:
        self._ticks.clear()
        self._doubt_s = _FIRST_DOUBT_S
        self._misses_in_a_row += 1
        self.misses += 1
        pause_s = INTERVAL_S * 2.0 ** (self._misses_in_a_row - 1)
        self._due_s = start_s + min(pause_s, _LONGEST_PAUSE_S)

    def _learn(self, tick: Tick, expected_s: float | None) -> None:
        """Refine phase and period, and how far to trust them."""
        self._misses_in_a_row = 0
        if expected_s is not None:
            late_s = tick.t_s - expected_s
            late_s -= round(late_s / self._period_s) * self._period_s
            surprise_s = max(abs(late_s) - tick.t_error_s, _LEAST_DOUBT_S)
            self._doubt_s = min(max(surprise_s, 0.7 * self._doubt_s), _FIRST_DOUBT_S)
            if surprise_s > _FIRST_DOUBT_S:
                self._ticks.clear()  # another phase or period than before
        count, last = self._ticks[-1] if self._ticks else (0, tick)
        count += round((tick.t_s - last.t_s) / self._period_s)
        self._ticks.append((count, tick))
        self._phase_s, self._period_s = _line(self._ticks, self._period_s)


def _line(ticks: Sequence[tuple[int, Tick]], period_s: float) -> tuple[float, float]:
    """Time of tick 0 and period: the line through the ticks, the sharp ones weighing most."""
    origin_s = ticks[0][1].t_s
    weights = [max(tick.t_error_s, _LEAST_DOUBT_S) ** -2 for _, tick in ticks]
    total = sum(weights)
    mean_count = sum(w * count for w, (count, _) in zip(weights, ticks, strict=True)) / total
    mean_s = sum(w * (t.t_s - origin_s) for w, (_, t) in zip(weights, ticks, strict=True)) / total
    spread = moment = 0.0
    for weight, (count, tick) in zip(weights, ticks, strict=True):
        spread += weight * (count - mean_count) ** 2
        moment += weight * (count - mean_count) * (tick.t_s - origin_s - mean_s)
    slope_s = moment / spread if spread > 0.0 else period_s
    return origin_s + mean_s - mean_count * slope_s, slope_s


def _between(start_s: float, stop_s: float, value: float | None) -> Tick | None:
    if value is None:
        return None
    return Tick(t_s=(start_s + stop_s) / 2.0, value=value, t_error_s=(stop_s - start_s) / 2.0)

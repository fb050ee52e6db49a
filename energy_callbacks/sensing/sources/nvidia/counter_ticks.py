"""Reads a counter at its ticks, the moments when its value changes, with few calls.

A call that reads the energy counter takes 2.3 to 24 ms of processor time on an H200. The counter
changes only every 100 ms, so its value is not the energy *at* the moment of the call. However, the
ticks are periodic. The clock of the ticks (``tick_clock``) predicts their times from those of
earlier ticks. From time to time, two consecutive calls locate a tick to check this clock::

    call with the old value          call with the new value
    |<------- 3 ms ------->|         |<------- 3 ms ------->|
    ^ earliest time of the tick              latest time    ^

Once the period and the time of one tick are known, one call between two ticks is enough: it returns
the value that the counter has had since the earlier of the two ticks.

If calls are cheap (see ``call_cost``), there is a single call after every tick. If they are
expensive, there are so few calls that they take a fixed share of the time of a core.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from energy_callbacks.sensing.clock import PUNCTUAL_S, Clock
from energy_callbacks.sensing.sources.nvidia.call_cost import CallCost
from energy_callbacks.sensing.sources.nvidia.tick_clock import SHORTEST_S, TickClock

# Fractions of the time of one core that single calls between two ticks may take, for expensive and
# for cheap calls. Calls that check the clock of the ticks add less than half of that. The limit for
# all readings of a card together is 0.5 % of a core. Cheap calls may use more of it, because they
# do not delay the other readings of the card. The share of 0.002 allows calls of 40 us at ticks of
# 20 ms (V100), and calls of 200 us at ticks of 100 ms.
_CORE_SHARE: Final = 0.0008
_CHEAP_CORE_SHARE: Final = 0.002
# Bounds of the interval between two single calls, s.
_SHORTEST_INTERVAL_S: Final = 0.04
_LONGEST_INTERVAL_S: Final = 4.0
# If the interval in which a tick is predicted is longer than this number of seconds, a tick is
# located by calls again. On an H200, calls locate a tick within an interval of 6 to 12 ms.
_SHARP_S: Final = 0.012
# The same for cheap calls, as a fraction of the period. An error of 10 % of the period is less than
# the error of interpolation between two ticks.
_CHEAP_SHARP_SHARE: Final = 0.1
# A clock of the ticks counts as precise if it predicts ticks within an interval of this many mean
# call durations. Two consecutive calls locate a tick within an interval of two call durations.
_BEST_CALLS: Final = 2.5
# Intervals at which calls check the clock of the ticks, s. A precise clock (see _BEST_CALLS) is
# checked every _CHECK_S. A less precise clock is checked every _CHECK_AGAIN_S at first, and later
# whenever its age has grown by the fraction _CHECK_SHARE, because ticks that are further apart
# restrict the period more.
_CHECK_S: Final = 60.0
_CHECK_AGAIN_S: Final = 1.0
_CHECK_SHARE: Final = 0.25
# Cheap calls check the clock at least this often, s, because they rely on it for every tick.
_CHEAP_CHECK_S: Final = 5.0
# A single call is made after this fraction of the time between two ticks. On a busy H200 a call
# takes 2.3 ms if it begins 28 to 40 ms after a tick, and 15 to 24 ms if it begins 4 to 16 ms after
# a tick (measured by 9 s of calls without a pause, under seven loads).
_CALL_SHARE: Final = 0.34
# Largest deviation of a tick from exactly periodic times, s.
_JITTER_S: Final = 0.0001
# The search for tick n starts before the earliest predicted time of the tick. The time in between
# is the delay of calls plus (0.5 + frac(n x this number)) mean call durations; frac is the
# fractional part. Thus different searches observe different intervals, which together restrict the
# clock more than equal intervals.
_GOLDEN_SHARE: Final = 0.618
# Cheap calls around a predicted tick follow each other without a pause, because a pause of a thread
# is at least 0.1 ms longer than asked for. These are the limits for one run of calls: a time, s,
# and a number for clocks whose time does not pass during a call.
_RUN_S: Final = 0.002
_RUN_CALLS: Final = 100
# Such a run allows for this delay of its first call, s. If the call is later, the tick may be over,
# and the next tick is searched.
_CHEAP_LATE_S: Final = 0.0005
# A search for a tick whose time is not predicted is given up after this duration, s. The duration
# is more than twice the longest known period of a counter (104 ms).
_SEARCH_S: Final = 0.25
# Minimum time between the starts of two calls of such a search, s.
_SPACING_S: Final = 0.009
# Maximum number of calls of a search, whether the time of the tick is predicted or not. A search
# by cheap calls is limited by its duration alone.
_MOST_CALLS: Final = 40
# If a tick is not found by its latest predicted time plus the longest duration of a call plus this
# number of seconds, the clock of the ticks is discarded.
_SLACK_S: Final = 0.02
# Maximum pause after failures (see ``CounterTicks``), s.
_LONGEST_PAUSE_S: Final = 32.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A change of the counter to ``value`` at the time ``t_s`` +- ``t_error_s``, in seconds."""

    t_s: float
    value: float
    t_error_s: float


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that returned ``value``, with the monotonic times of its start and its end."""

    start_s: float
    stop_s: float
    value: float


@dataclass(slots=True, kw_only=True)
class _Search:
    """A search for a tick by consecutive calls until the value changes.

    Attributes:
        number: number of the tick to find; ``None`` in a search for any tick, because the tick
            that is found becomes number 0.
        end_s: monotonic time at which the search is given up.
        is_next: whether the search begins directly after tick ``number - 1`` was located, so that
            the next change is known to be tick ``number``.
        last: the last call of this search; ``None`` before the first call.
        calls: number of calls so far.
    """

    number: int | None
    end_s: float
    is_next: bool = False
    last: _Call | None = None
    calls: int = 0

    @property
    def is_expected(self) -> bool:
        """Whether the clock of the ticks predicts the time of the tick to find."""
        return self.number is not None and not self.is_next

    def next_call_s(self, call: _Call) -> float:
        """Return the time of the next call: directly after ``call`` if the tick is predicted."""
        return call.stop_s if self.is_expected else max(call.start_s + _SPACING_S, call.stop_s)


class CounterTicks:
    """Locates the ticks of a counter by a few calls; never sleeps.

    If a search for any tick finds none in a quarter of a second, or if a call fails or returns no
    value, there is a pause without calls. It lasts 1 s, and doubles with every further failure in
    a row, up to 32 s. If two calls take longer than the shortest possible period, they cannot
    locate a tick. The next search then begins after the interval between two single calls.

    Attributes:
        due_s: monotonic time of the next call.
        is_at_every_tick: whether the next call is planned to be at the next tick, because calls
            are cheap.

    Args:
        clock: clock that gives the monotonic time.
        read: reads the counter; returns ``None`` if it has no value.
        shortest_s: lower bound of the period, s; the closer it is to the period, the sooner the
            period is found.
    """

    def __init__(
        self, clock: Clock, read: Callable[[], float | None], shortest_s: float = SHORTEST_S
    ) -> None:
        self._clock = clock
        self._read = read
        self._shortest_possible_s = shortest_s
        self._cost = CallCost()
        self.is_at_every_tick = False
        self._longest_call_s = self._mean_call_s = self._late_s = 0.0
        self._begun_s = self._checked_s = clock.monotonic_s()
        self._search: _Search | None = None
        self._begin_anew(self._begun_s)
        self._misses_in_a_row = 0

    def next_tick(self) -> Tick | None:
        """Make the calls that are due, and return the tick that they have located.

        There is one call, or a short run of cheap calls around a predicted tick. ``None`` if no
        tick was located. Exceptions of ``read`` are raised again.
        """
        start_s = self._clock.monotonic_s()
        if start_s < self.due_s - PUNCTUAL_S:
            return None
        tick, calls = self._after_call(), 1
        while tick is None and self._goes_on(start_s, calls):
            tick, calls = self._after_call(), calls + 1
        return tick

    def _goes_on(self, start_s: float, calls: int) -> bool:
        """Return whether another call follows without a pause, in a run that began at ``start_s``.

        Args:
            start_s: monotonic time of the first call of the run.
            calls: number of calls so far.
        """
        search = self._search
        if search is None or search.last is None or not search.is_expected:
            return False
        return self._cost.is_cheap and calls < _RUN_CALLS and self.due_s < start_s + _RUN_S

    def _after_call(self) -> Tick | None:
        """Make a call, and return the tick that it has located; ``None`` if none."""
        call = self._called()
        if call is None:
            self._miss(self._clock.monotonic_s())
            return None
        tick = self._placed(call) if self._search is None else self._searched(self._search, call)
        if tick is not None:
            self._misses_in_a_row = 0
        return tick

    def last_tick(self) -> Tick | None:
        """Make a last call, and return the last tick before the call.

        ``None`` if this tick cannot be determined. If a search is in progress, no call is made and
        ``None`` is returned.
        """
        call = self._called() if self._search is None else None
        return self._placed(call) if call is not None else None

    def newest_tick(self) -> Tick | None:
        """Return the last tick before now, unless an earlier call has returned it.

        A call is made even if none is due, but only if calls are cheap and no search is in
        progress; otherwise, this is ``next_tick``.
        """
        if not self.is_at_every_tick or self._search is not None:
            return self.next_tick()
        before = self._newest
        tick = self.last_tick()
        is_known = before is not None and self._newest is not None and self._newest[0] <= before[0]
        return None if is_known else tick

    def _called(self) -> _Call | None:
        start_s = self._clock.monotonic_s()
        # A slowly decaying maximum of the delay of calls. Calls are late if this thread must wait
        # for the interpreter's lock.
        self._late_s = max(start_s - self.due_s, 0.9 * self._late_s)
        try:
            value = self._read()
        except Exception:
            self._miss(self._clock.monotonic_s())
            raise
        stop_s = self._clock.monotonic_s()
        call_s = stop_s - start_s
        # A slowly decaying maximum of the duration of calls.
        self._longest_call_s = max(call_s, 0.9 * self._longest_call_s)
        self._cost.add(call_s)
        self._mean_call_s += (call_s - self._mean_call_s) * (0.05 if self._mean_call_s else 1.0)
        return None if value is None else _Call(start_s, stop_s, value)

    # --- planning

    def _plan(self, number: int, call: _Call) -> None:
        """Plan a single call or a search, after ``call`` has shown the value of tick ``number``."""
        shortest_s, longest_s = self._ticks.period_s
        ahead = max(round(self._interval_s() / longest_s), 1)
        self.is_at_every_tick = self._cost.is_cheap and ahead == 1
        width_s = _width(self._ticks.span(number + ahead))
        sharp_s = _CHEAP_SHARP_SHARE * shortest_s if self.is_at_every_tick else _SHARP_S
        if width_s <= sharp_s and call.stop_s - self._checked_s <= self._check_s(width_s):
            self._call_after(number + ahead)
            return
        while ahead > 0 and _width(self._ticks.span(number + ahead)) > shortest_s / 2.0:
            ahead //= 2
        if ahead:
            self._search_for(number + ahead, call.stop_s)
        else:
            end_s = call.stop_s + _SEARCH_S
            self._search = _Search(number=number + 1, end_s=end_s, is_next=True, last=call)
            self.due_s = self._search.next_call_s(call)

    def _interval_s(self) -> float:
        """Return the interval between two single calls, which depends on the cost of a call."""
        if self._cost.is_cheap:
            return min((self._cost.cost_s or 0.0) / _CHEAP_CORE_SHARE, _LONGEST_INTERVAL_S)
        wanted_s = self._mean_call_s / _CORE_SHARE
        return min(max(wanted_s, _SHORTEST_INTERVAL_S), _LONGEST_INTERVAL_S)

    def _check_s(self, width_s: float) -> float:
        """Return the interval at which calls check the clock of the ticks.

        Args:
            width_s: width of the interval in which the next tick is predicted.
        """
        is_good = width_s <= _BEST_CALLS * (self._mean_call_s + 2.0 * _JITTER_S)
        age_s = self._checked_s - self._begun_s
        check_s = _CHECK_S if is_good else max(_CHECK_AGAIN_S, _CHECK_SHARE * age_s)
        return min(check_s, _CHEAP_CHECK_S) if self._cost.is_cheap else check_s

    def _call_after(self, number: int) -> None:
        """Plan a single call between tick ``number`` and the next tick."""
        self._search = None
        start_s, end_s = self._ticks.span(number)[1], self._ticks.span(number + 1)[0]
        self.due_s = start_s + _CALL_SHARE * max(end_s - start_s, 0.0)

    def _search_for(self, number: int, now_s: float) -> None:
        """Plan consecutive calls around the predicted time of tick ``number``."""
        first_s, last_s = self._ticks.span(number)
        early = 0.5 + (number * _GOLDEN_SHARE) % 1.0
        late_s = min(self._late_s, _CHEAP_LATE_S) if self._cost.is_cheap else self._late_s
        self.due_s = max(first_s - early * self._mean_call_s - late_s, now_s)
        end_s = max(last_s, self.due_s) + self._longest_call_s + _SLACK_S
        self._search = _Search(number=number, end_s=end_s)

    def _begin_anew(self, start_s: float) -> None:
        """Discard the clock of the ticks, and plan a search for any tick from ``start_s`` on."""
        self._ticks = TickClock(self._shortest_possible_s)
        self.is_at_every_tick = False
        self._newest: tuple[int, float] | None = None
        self.due_s = start_s
        self._search = _Search(number=None, end_s=start_s + _SEARCH_S)

    def _miss(self, now_s: float) -> None:
        self._misses_in_a_row += 1
        self._begin_anew(now_s + min(2.0 ** (self._misses_in_a_row - 1), _LONGEST_PAUSE_S))

    # --- one call between two ticks

    def _placed(self, call: _Call) -> Tick | None:
        """Return the last tick before a single call, and plan the next call.

        ``None`` if the number of the tick is not certain, or if the counter has stopped.
        """
        number = self._ticks.number_at(call.start_s)
        number -= self._ticks.span(number)[1] > call.start_s
        next_span = self._ticks.span(number + 1)
        if _width(next_span) >= self._ticks.period_s[0]:
            self._begin_anew(call.stop_s)  # after a long pause, the number of a tick is not known
            return None
        if call.stop_s > next_span[0]:
            self._call_after(number + 1)
            return None
        newest = self._newest
        if newest is not None and number > newest[0] + 1 and call.value == newest[1]:
            self._begin_anew(call.stop_s)  # the counter has stopped
            return None
        return self._known(number, call)

    def _known(self, number: int, call: _Call) -> Tick:
        first_s, last_s = self._ticks.span(number)
        if self._newest is None or call.value != self._newest[1]:
            self._newest = (number, call.value)  # otherwise, the counter may have stopped
        self._plan(number, call)
        return _between(first_s, last_s, call.value)

    # --- a tick between two calls

    def _searched(self, search: _Search, call: _Call) -> Tick | None:
        before, search.last = search.last, call
        search.calls += 1
        is_first = before is None and search.is_expected
        if is_first and call.start_s > self._ticks.span(search.number or 0)[0]:
            return self._placed(call)  # the call may be after the tick
        if before is not None and before.value != call.value:
            return self._caught(search, before.start_s, call)
        is_too_many = search.calls >= _MOST_CALLS and not self._cost.is_cheap
        is_over = call.stop_s >= search.end_s or is_too_many
        if not is_over:
            self.due_s = search.next_call_s(call)
        elif search.number is None:
            self._miss(call.stop_s)
        else:
            self._begin_anew(call.stop_s)
        return None

    def _caught(self, search: _Search, earliest_s: float, call: _Call) -> Tick | None:
        """Return the tick between ``earliest_s`` and the end of ``call``, and plan the next call.

        ``None`` if it may be a tick other than the expected one, or if it contradicts the clock of
        the ticks.
        """
        if call.stop_s - earliest_s >= self._ticks.period_s[0]:  # perhaps two ticks
            self._begin_anew(call.stop_s + self._interval_s())  # the next calls may be as slow
            return _between(earliest_s, call.stop_s, call.value)
        number = search.number or 0
        if search.is_expected and call.stop_s >= self._ticks.span(number + 1)[0]:
            self._call_after(number + 1)  # perhaps the next tick
            return None
        if search.number is None:
            self._begun_s = call.stop_s
        if not self._ticks.see(number, earliest_s - _JITTER_S, call.stop_s + _JITTER_S):
            self._begin_anew(call.stop_s)
            return None
        self._checked_s = call.stop_s
        return self._known(number, call)


def _between(first_s: float, last_s: float, value: float) -> Tick:
    middle_s = (first_s + last_s) / 2.0
    return Tick(t_s=middle_s, value=value, t_error_s=(last_s - first_s) / 2.0)


def _width(span: tuple[float, float]) -> float:
    return span[1] - span[0]

"""Runs rounds with and without something in turn, and estimates the change from their pairs.

The order is ABBA (with, without, without, with, ...), so that a drift affects both equally. A pair
is half a second of each, cut into shorter rounds if the machine disturbs a loop: the shorter they
are, the more alike are the two of a pair. The change of the mean step time is the mean of the
rounds' log-ratios without the tenth at either end (other load of the machine), with a bootstrap
interval of 95 %.

Threads that wake rarely make a few short rounds much longer than the others, and a trimmed mean of
all would omit exactly these. Rounds in which a thread woke are therefore averaged separately, and
each kind counts by its share of the steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.common.loops import Loop

HALF_S: Final = 0.5
_TRIMMED: Final = 0.1
_RESAMPLES: Final = 2000
_SETTLED_S: Final = 20.0
_LONGEST: Final = 4  # checks per round, while a thread's turn has not ended


class Held(Protocol):
    """Threads that belong to what is added to a loop, and that can be paused."""

    @property
    def turns(self) -> int:
        """Number of turns that have begun."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running now."""
        ...

    def is_due(self) -> bool:
        """Whether a paused thread has work to do."""
        ...

    def switch(self, is_on: bool) -> None:
        """Called before each round; not timed."""
        ...


class _None:
    turns, is_busy = 0, False

    def is_due(self) -> bool:
        """Never."""
        return False

    def switch(self, is_on: bool) -> None:
        """Do nothing, as there are no threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round with, and the one without next to it.

    Attributes:
        with_s: seconds per step of the round with.
        without_s: seconds per step of the round without.
        steps: number of steps of the round with.
        has_turn: whether a thread woke in it.
    """

    with_s: float
    without_s: float
    steps: int
    has_turn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The relative change of the step time: 0.01 is 1 % slower.

    Attributes:
        change: estimate.
        low: lower end of its interval.
        high: upper end.
        awake: what rounds in which a thread woke add to the estimate.
        step_s: median seconds per step of the loop alone.
        pairs: number of pairs, half a second of each.
    """

    change: float
    low: float
    high: float
    awake: float
    step_s: float
    pairs: int


def interleaved(
    loop: Loop,
    pairs: int,
    step: Callable[[], None],
    held: Held | None = None,
    *,
    half_s: float = HALF_S,
    round_s: float | None = None,
    settle: Callable[[], None] = lambda: None,
) -> Change:
    """Run rounds of ``loop`` with its own step and with another one that does more, in turn.

    Args:
        loop: the loop to time.
        pairs: number of times ``half_s`` of each.
        step: the step of a round "with".
        held: threads that run in rounds "with" only.
        half_s: approximate duration of all rounds "without" of a pair, s.
        round_s: approximate duration of one round, s; by default the whole ``half_s``. A round
            "with" has as many steps, and more until no thread's turn is running: none is cut off.
        settle: called between some rounds; not timed.
    """
    held = held or _None()
    round_s = round_s or half_s
    steps = max(round(round_s / loop.step_s), 1)
    block = max(round(_SETTLED_S / round_s), 1)
    rounds = []
    for number in range(round(pairs * half_s / round_s)):
        if number % block == 0:
            held.switch(False)
            settle()
        for is_on in (True, False) if number % 2 == 0 else (False, True):
            if is_on:
                held.switch(True)
                with_s, done, has_turn = _with(loop, steps, step, held)
            else:
                without_s = _without(loop, steps, held)
        rounds.append(Round(with_s=with_s, without_s=without_s, steps=done, has_turn=has_turn))
    return change(rounds, pairs)


def _without(loop: Loop, steps: int, held: Held) -> float:
    """Return seconds per step. A thread with work to do gets its turn at once, which is not timed.

    A longer pause would give it more to read, and its predictions would be too late.
    """
    seconds, done = 0.0, 0
    while done < steps:
        held.switch(False)
        some_s, some = loop.timed(steps - done, is_over=held.is_due)
        seconds, done = seconds + some_s, done + some
    return seconds / steps


def _with(loop: Loop, steps: int, step: Callable[[], None], held: Held) -> tuple[float, int, bool]:
    """Return seconds per step, the number of steps, and whether a thread woke."""
    before, is_busy = held.turns, held.is_busy
    seconds, done = steps * loop.seconds(steps, step), steps
    more = max(steps // 8, 1)
    while held.is_busy and done < _LONGEST * steps:
        seconds += more * loop.seconds(more, step)
        done += more
    return seconds / done, done, is_busy or held.turns > before


def change(rounds: Sequence[Round], pairs: int, seed: int = 1) -> Change:
    """Return the change that rounds show."""
    kinds = [[one for one in rounds if one.has_turn is has_turn] for has_turn in (False, True)]
    steps = sum(one.steps for one in rounds)
    dice = np.random.default_rng(seed)
    found, drawn = np.zeros(2), np.zeros((2, _RESAMPLES))
    for index, kind in enumerate(kinds):
        if kind:
            share = sum(one.steps for one in kind) / steps
            ratios = np.log([one.with_s / one.without_s for one in kind])
            found[index] = share * np.expm1(_middle(ratios[None])[0])
            resampled = dice.choice(ratios, size=(_RESAMPLES, len(ratios)))
            drawn[index] = share * np.expm1(_middle(resampled))
    low, high = np.quantile(drawn.sum(axis=0), [0.025, 0.975])
    return Change(
        change=float(found.sum()),
        low=float(low),
        high=float(high),
        awake=float(found[1]),
        step_s=float(np.median([one.without_s for one in rounds])),
        pairs=pairs,
    )


def _middle(ratios: NDArray[Any]) -> NDArray[Any]:
    """Return the mean of each row without the tenth at either end."""
    ordered = np.sort(ratios, axis=1)
    cut = int(_TRIMMED * ordered.shape[1])
    kept: NDArray[Any] = ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)
    return kept

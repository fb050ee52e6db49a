"""Rounds with and without something, in turn, and what their pairs say.

The order is ABBA (with, without, without, with, ...), so that a drift hits both alike. A pair is
half a second of each, cut into shorter rounds where the machine disturbs a loop: the shorter they
are, the more alike are the two of a pair. The change of the mean step time is the mean of the
rounds' log-ratios without the tenth at either end (what neighbours on the machine do), with a
bootstrap interval of 95 %.

Threads that wake now and then make a few short rounds much longer than the others, and a trimmed
mean of all would leave just these out. So rounds in which one woke are taken for themselves, and
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
_LONGEST: Final = 4  # times a round, while a thread's turn does not end


class Held(Protocol):
    """Threads that belong to what is added to a loop, and can be held up."""

    @property
    def turns(self) -> int:
        """How many times they have begun to do something."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether one does something now."""
        ...

    def is_due(self) -> bool:
        """Whether one is held up that has something to do."""
        ...

    def switch(self, is_on: bool) -> None:
        """Before each round; not timed."""
        ...


class _None:
    turns, is_busy = 0, False

    def is_due(self) -> bool:
        """Never."""
        return False

    def switch(self, is_on: bool) -> None:
        """There is nothing to hold up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A round with and the one without beside it.

    Attributes:
        with_s: seconds a step.
        without_s: likewise.
        steps: of the round with.
        has_turn: whether a thread woke in it.
    """

    with_s: float
    without_s: float
    steps: int
    has_turn: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How much slower the steps with something are, as a share: 0.01 is 1 %.

    Attributes:
        change: estimate.
        low: lower end of its interval.
        high: upper end.
        awake: what rounds in which a thread woke add to the estimate.
        step_s: seconds a step without it, at the median.
        pairs: how many times half a second of each.
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
    """Rounds of ``loop`` with its own step and with another that does more, in turn.

    Args:
        loop: what to time.
        pairs: how many times ``half_s`` of each.
        step: the step of a round "with".
        held: threads that go on in rounds "with" alone.
        half_s: about how long all rounds "without" of a pair take, s.
        round_s: about how long one takes, s; the whole ``half_s`` unless told. A round "with" has
            as many steps, and more until no thread's turn is under way: none is cut off.
        settle: called now and then between rounds; not timed.
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
    """Seconds a step. A thread that has something to do gets its turn at once, and is not timed.

    Held up for longer it would have more to read, and find that its guesses come true too late.
    """
    seconds, done = 0.0, 0
    while done < steps:
        held.switch(False)
        some_s, some = loop.timed(steps - done, is_over=held.is_due)
        seconds, done = seconds + some_s, done + some
    return seconds / steps


def _with(loop: Loop, steps: int, step: Callable[[], None], held: Held) -> tuple[float, int, bool]:
    """Seconds a step, how many, and whether a thread woke."""
    before, is_busy = held.turns, held.is_busy
    seconds, done = steps * loop.seconds(steps, step), steps
    more = max(steps // 8, 1)
    while held.is_busy and done < _LONGEST * steps:
        seconds += more * loop.seconds(more, step)
        done += more
    return seconds / done, done, is_busy or held.turns > before


def change(rounds: Sequence[Round], pairs: int, seed: int = 1) -> Change:
    """What rounds say."""
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
    """Mean of each row without the tenth at either end."""
    ordered = np.sort(ratios, axis=1)
    cut = int(_TRIMMED * ordered.shape[1])
    kept: NDArray[Any] = ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)
    return kept

"""Half-second rounds with and without something, in turn, and what their pairs say.

The order is ABBA (with, without, without, with, ...), so that a drift hits both alike. The change
of the mean step time is the mean of the pairs' log-ratios without the tenth at either end (the
machine's own hiccups), with a bootstrap interval of 95 %.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.loops import Loop

HALF_S: Final = 0.5
_TRIMMED: Final = 0.1
_RESAMPLES: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How much slower the steps with something are, as a share: 0.01 is 1 %.

    Attributes:
        change: estimate.
        low: lower end of its interval.
        high: upper end.
        median: of the pairs.
        step_s: seconds a step without it, at the median.
        pairs: how many.
    """

    change: float
    low: float
    high: float
    median: float
    step_s: float
    pairs: int


def interleaved(
    loop: Loop,
    pairs: int,
    step: Callable[[], None],
    switch: Callable[[bool], None] = lambda is_on: None,
    *,
    half_s: float = HALF_S,
) -> Change:
    """Rounds of ``loop`` with its own step and with another that does more, in turn.

    Args:
        loop: what to time.
        pairs: how many pairs of rounds.
        step: the step of a round "with".
        switch: told before a round whether it is one "with", where that changes; not timed.
        half_s: about how long a round "without" takes, s; one "with" has as many steps.
    """
    steps = max(round(half_s / loop.step_s), 1)
    with_s, without_s = np.empty(pairs), np.empty(pairs)
    was_on = None
    for pair in range(pairs):
        for is_on in (True, False) if pair % 2 == 0 else (False, True):
            if is_on != was_on:
                switch(is_on)
                was_on = is_on
            seconds = loop.seconds(steps, step if is_on else None)
            (with_s if is_on else without_s)[pair] = seconds
    return change(with_s, without_s)


def change(with_s: NDArray[Any], without_s: NDArray[Any], seed: int = 1) -> Change:
    """What pairs of step times say, (n,) each."""
    ratios = np.log(with_s / without_s)
    dice = np.random.default_rng(seed)
    drawn = dice.choice(ratios, size=(_RESAMPLES, len(ratios)))
    low, high = np.quantile(_middle(drawn), [0.025, 0.975])
    return Change(
        change=math.expm1(float(_middle(ratios[None])[0])),
        low=math.expm1(float(low)),
        high=math.expm1(float(high)),
        median=math.expm1(float(np.median(ratios))),
        step_s=float(np.median(without_s)),
        pairs=len(ratios),
    )


def _middle(ratios: NDArray[Any]) -> NDArray[Any]:
    """Mean of each row without the tenth at either end."""
    ordered = np.sort(ratios, axis=1)
    cut = int(_TRIMMED * ordered.shape[1])
    kept: NDArray[Any] = ordered[:, cut : ordered.shape[1] - cut].mean(axis=1)
    return kept

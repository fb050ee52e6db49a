"""Chooses combinations of factors such that every pair of levels occurs."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, Final

Choice = dict[str, Any]
_Pair = tuple[str, Any, str, Any]
# Weight of the number of times that the levels of a combination have occurred already.
_EVENNESS: Final = 0.02


def pairwise(
    factors: Mapping[str, Sequence[Any]], cost: Callable[[Choice], float] = lambda _: 1.0
) -> list[Choice]:
    """Return combinations in which every pair of levels of two factors occurs.

    Each combination is the one with the highest score: the number of pairs that have not occurred
    yet, minus its cost, minus a little for levels that have occurred often. The result is always
    the same (greedy algorithm, as in AETG: Cohen et al., IEEE TSE 23(7), 1997).

    Args:
        factors: levels of each factor.
        cost: returns the cost of a combination; the cost 1 is worth one new pair.

    >>> len(pairwise({"a": [1, 2], "b": [1, 2], "c": [1, 2]}))
    4
    """
    names = list(factors)
    todo = [dict(zip(names, levels, strict=True)) for levels in product(*factors.values())]
    pairs_of = [frozenset(pairs(choice)) for choice in todo]
    costs = [cost(choice) for choice in todo]
    missing = set().union(*pairs_of)
    used: Counter[tuple[str, Any]] = Counter()
    chosen: list[Choice] = []

    def score(index: int) -> float:
        new = len(pairs_of[index] & missing)
        uses = sum(used[name, level] * len(factors[name]) for name, level in todo[index].items())
        return new - costs[index] - _EVENNESS * uses if new else -math.inf

    while missing:
        best = max(range(len(todo)), key=score)
        chosen.append(todo[best])
        missing -= pairs_of[best]
        used.update(todo[best].items())
    return chosen


def pairs(choice: Choice) -> Iterator[_Pair]:
    """Yield the pairs of levels of a combination."""
    for (first, level), (second, other) in combinations(sorted(choice.items()), 2):
        yield first, level, second, other

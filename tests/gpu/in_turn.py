"""Compares rounds with and without the callback, which run in turn, by their medians."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def compared(ms_a_step: Mapping[bool, Sequence[float]]) -> dict[str, Any]:
    """Return medians, the change between them, and all rounds.

    Args:
        ms_a_step: milliseconds a step of each round, without (``False``) and with the callback.
    """
    without, with_ours = (statistics.median(ms_a_step[key]) for key in (False, True))
    return {
        "without_ms": without,
        "with_ms": with_ours,
        "change": with_ours / without - 1.0,
        "rounds_without_ms": ms_a_step[False],
        "rounds_with_ms": ms_a_step[True],
    }

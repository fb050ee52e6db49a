"""Finds how many steps to pool, so that figures per step have a small random error.

The random error of an energy comes mostly from the two ends of its span, so the relative random
error decreases as the span grows. The relative systematic error does not depend on the span.

Here, the random share of an energy is the half-width of its 95 % interval without the systematic
error (``Energy.resolution_j``), divided by the energy. A tally is a ``StepCounts``.
"""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

from energy_callbacks.accounting.metrics.step_counts import StepCounts
from energy_callbacks.core.records import Energy

# Earlier steps are added to a pooled span until its random share is at most this.
TARGET: Final = 0.05
# Maximum age of pooled steps, s. Older steps are not pooled, because the training may have changed.
REACH_S: Final = 60.0
# Maximum number of tallies that are kept: enough for a minute with ten tallies per second.
_KEPT: Final = 600


class RecentStepCounts:
    """Keeps the newest ``_KEPT`` tallies; a pooled span may begin at each of them."""

    def __init__(self) -> None:
        self._kept: deque[StepCounts] = deque(maxlen=_KEPT)

    def add(self, tally: StepCounts) -> None:
        """Keep a tally if a step has ended since the last kept tally."""
        if tally.steps and (not self._kept or tally.steps > self._kept[-1].steps):
            self._kept.append(tally)

    def between(self, start_s: float, before: StepCounts) -> list[StepCounts]:
        """Return the tallies from ``start_s`` on and earlier than ``before``, oldest first.

        If ``before`` has a number of samples, only tallies with a number of samples are returned.
        The same applies to tokens.
        """
        return [
            tally
            for tally in tuple(self._kept)  # a copy, because another thread may add tallies
            if start_s <= tally.t_s < before.t_s
            and (tally.samples is not None or before.samples is None)
            and (tally.tokens is not None or before.tokens is None)
        ]


def widened(
    before: StepCounts,
    now: StepCounts,
    earlier: Sequence[StepCounts],
    share: Callable[[StepCounts], float],
) -> tuple[StepCounts, float]:
    """Find the start of a span up to ``now`` whose random share is at most ``TARGET``.

    Each iteration multiplies the length of the span by its random share / ``TARGET``, but at least
    by 2. One or two iterations usually suffice.

    Args:
        before: start of the newest span.
        now: end of the span.
        earlier: tallies before the newest span, oldest first.
        share: function from a tally to the random share of the energy between it and ``now``.

    Returns:
        The start of the span, and the span's random share. If no span has a small enough share, the
        start is the oldest tally in ``earlier``, or ``before`` if ``earlier`` is empty.
    """
    start, random = before, share(before)
    while random > TARGET and earlier:
        wanted_s = (now.t_s - start.t_s) * max(2.0, random / TARGET)
        index = max(bisect_right(earlier, now.t_s - wanted_s, key=attrgetter("t_s")) - 1, 0)
        start, earlier = earlier[index], earlier[:index]
        random = share(start)
    return start, random


def random_share(energies: Iterable[Energy]) -> float:
    """Return the largest random share of the energies; unknown and zero energies count as 0."""
    return max((one.resolution_j / one.energy_j for one in energies if one.energy_j), default=0.0)


def with_ends(energy: Energy, train_s: float, ends: Iterable[StepCounts]) -> Energy:
    """Return the energy between the ends of two steps, with the errors of these ends added.

    For each step, mean power times ``t_error_s`` is added in quadrature to the standard error, as
    if ``t_error_s`` were a standard error and not a bound. If ``t_error_s`` is unknown, nothing is
    added for this step.

    Args:
        energy: energy between the ends of the two steps.
        train_s: time of training between the ends of the two steps, s.
        ends: step counts at the ends of the two steps.
    """
    if energy.energy_j is None:
        return energy
    power_w = energy.energy_j / (train_s * energy.coverage)
    errors_j = (power_w * (end.t_error_s or 0.0) for end in ends)
    return replace(energy, stderr_j=math.hypot(energy.stderr_j, *errors_j))


def short_span(rows: Iterable[tuple[float, float]]) -> tuple[str, str] | None:
    """Return a warning and advice for the report if the pooled spans were too short.

    Args:
        rows: for each time that figures were logged, the random share of the pooled span and the
            length of this span in s.

    Returns:
        Warning and advice; ``None`` if the median share is at most ``TARGET`` or ``rows`` is empty.
    """
    by_share = sorted(rows)
    if not by_share:
        return None
    share, span_s = by_share[len(by_share) // 2]
    if share <= TARGET:
        return None
    message = (
        f"The logged energies per step, sample and token have a random error of {_percent(share)} "
        f"(median of {len(by_share)} rows, each over {span_s:.1f} s of steps); the target is "
        f"{_percent(TARGET)}."
    )
    return message, (
        f"log less often or train longer: about {span_s * share / TARGET:.0f} s of steps per row "
        "are needed"
    )


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %"

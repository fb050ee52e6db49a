"""Splits phases into pieces if power changes inside a phase.

A convolutional network draws more at its end than at its beginning, and its backward pass the
other way round. One power for each phase then makes a lag and a response that no sensor has, and
with them a wrong split. So a phase is cut into pieces as long as the readings ask for it.
"""

import math
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Numbers, Spans
from energy_callbacks.profiling.phases.fit import Readings, fit_at

# Shorter pieces would be distinguished by noise alone: half of the quickest response.
_SHORTEST_S: Final = 0.008
_MOST: Final = 16
# Another piece must lower twice the negative log-likelihood by this much: beyond chance if
# residuals of a few neighbouring readings go together.
_WORTH: Final = 25.0


def cut(spans: Spans, counts: tuple[int, ...]) -> tuple[Spans, Numbers]:
    """Every occurrence of phase ``p`` in ``counts[p]`` pieces of the same length.

    Returns:
        Spans whose labels are pieces, and the phase of each piece.
    """
    first = np.concatenate(([0], np.cumsum(counts)))
    repeats = np.where(spans.labels >= 0, np.array(counts)[spans.labels], 1)
    starts = np.repeat(np.concatenate(([0], np.cumsum(repeats)))[:-1], repeats)
    number = np.arange(int(repeats.sum())) - starts
    widths_s = np.repeat(np.diff(spans.edges_s) / repeats, repeats)
    edges_s = np.repeat(spans.edges_s[:-1], repeats) + number * widths_s
    labels = np.repeat(np.where(spans.labels >= 0, first[spans.labels], -1), repeats)
    labels = np.where(labels >= 0, labels + number, -1)
    fine = Spans(edges_s=np.append(edges_s, spans.edges_s[-1]), labels=labels, count=int(first[-1]))
    return fine, np.repeat(np.arange(spans.count), counts)


def counts_of(spans: Spans, readings: Readings, steps: int) -> tuple[int, ...]:
    """Into how many pieces each phase is to be cut; all ones if one power each is enough.

    Only if lag and response are known beforehand: else pieces and response explain each other.
    """
    counts = (1,) * spans.count
    if readings.lag_s is None or readings.response_s is None:
        return counts
    lengths_s = spans.times_s() / steps

    def squares(counts: tuple[int, ...]) -> float:
        fine, _ = cut(spans, counts)
        return fit_at(fine, readings, readings.lag_s or 0.0, readings.response_s or 0.0).squares

    least = squares(counts)
    while sum(counts) < _MOST:
        longer = [
            tuple(count + (phase == number) for number, count in enumerate(counts))
            for phase in range(spans.count)
            if lengths_s[phase] / (counts[phase] + 1) >= _SHORTEST_S
        ]
        tried = {candidate: squares(candidate) for candidate in longer}
        if not tried:
            return counts
        best = min(tried, key=lambda candidate: tried[candidate])
        if len(readings.t_s) * math.log(least / max(tried[best], 1e-12)) < _WORTH:
            return counts
        counts, least = best, tried[best]
    return counts

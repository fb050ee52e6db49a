"""Errors of fitted powers for the steps that were measured.

Two things make readings differ from the fit: noise of the sensor, new in each reading, and phases
that do not draw the same in each step. The second is no error if the sensor has seen it: the
energy asked for is that of these steps. Both are distinguished by how much neighbouring readings
resemble each other, and of the second only that part counts which weighs a step's phase otherwise
than by its time.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import SHORTEST_RESPONSE_S, Numbers, Spans
from energy_callbacks.sensing.estimation.series import Array

# What is longer ago than this many time constants is forgotten: e^-6 is 0.2 %.
_MEMORY: Final = 6.0
_MOST_BACK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pieces:
    """Share of single occurrences of phases in readings, (m, back); ``at`` says of which."""

    shares: Array
    at: Numbers


def variances(
    spans: Spans,
    of: Numbers,
    seen_s: Array,
    response_s: float,
    *,
    power_w: Array,
    weights: Array,
    rest_w: Array,
) -> Array:
    """Variance of each phase's power, W^2, as an estimate of the mean of these steps.

    Args:
        spans: of the pieces of phases.
        of: the phase of each piece.
        seen_s: the moments that the readings are of, (m,).
        response_s: for how long a reading remembers; of a mean, half its window.
        power_w: fitted, of each piece.
        weights: with which each reading enters the power of each phase, (phases, m).
        rest_w: what the fit leaves of the readings, (m,).
    """
    pieces = _pieces(spans, seen_s, response_s)
    labels = spans.labels[pieces.at]
    scaled = pieces.shares * np.where(labels >= 0, power_w[labels], 0.0)
    noise, uneven = _components(scaled, pieces.at, rest_w)
    is_known = spans.labels >= 0
    phase_of = np.where(is_known, of[spans.labels], -1)
    drawn = np.where(is_known, power_w[spans.labels], 0.0)
    inside = slice(pieces.at.min(), pieces.at.max() + 1)
    found: Array = noise * (weights**2).sum(axis=1)
    for phase in range(len(weights)):
        given = np.zeros(len(spans.labels))
        np.add.at(given, pieces.at, weights[phase][:, None] * pieces.shares)
        widths_s = np.where(phase_of == phase, np.diff(spans.edges_s), 0.0)
        given -= widths_s / widths_s.sum()
        found[phase] += uneven * float(((given * drawn)[inside] ** 2).sum())
    return found


def _pieces(spans: Spans, seen_s: Array, response_s: float) -> _Pieces:
    """How much of a reading is of each of the last occurrences."""
    edges_s, response_s = spans.edges_s, max(response_s, SHORTEST_RESPONSE_S)
    newest = np.clip(np.searchsorted(edges_s, seen_s, "right") - 1, 0, len(spans.labels) - 1)
    oldest = np.searchsorted(edges_s, seen_s - _MEMORY * response_s, "right") - 1
    back = int(min(np.max(newest - oldest, initial=0) + 1, _MOST_BACK))
    at = newest[:, None] - np.arange(back)
    is_there = at >= 0
    at = np.maximum(at, 0)
    since_s = np.maximum(seen_s[:, None] - edges_s[at + 1], 0.0)
    before_s = np.maximum(seen_s[:, None] - edges_s[at], 0.0)
    shares = np.exp(-since_s / response_s) - np.exp(-before_s / response_s)
    return _Pieces(shares=np.where(is_there, shares, 0.0), at=at)


def _components(scaled: Array, at: Numbers, rest_w: Array) -> tuple[float, float]:
    """Variance of the noise, W^2, and squared relative unevenness of a phase from step to step."""
    own = float((scaled**2).sum(axis=1).mean())
    shift = at[1:, 0] - at[:-1, 0]
    back = scaled.shape[1]
    # Column j of a reading is column j - shift of the one before.
    columns = np.arange(back) - shift[:, None]
    matched = (columns >= 0) & (columns < back)
    before = np.take_along_axis(scaled[:-1], np.clip(columns, 0, back - 1), axis=1)
    shared = float((scaled[1:] * np.where(matched, before, 0.0)).sum(axis=1).mean())
    square = float((rest_w**2).mean())
    product = float((rest_w[1:] * rest_w[:-1]).mean())
    if shared <= 0.0 or own <= 0.0:
        return square, 0.0
    uneven = min(max(product / shared, 0.0), square / own)
    return max(square - uneven * own, 0.0), uneven

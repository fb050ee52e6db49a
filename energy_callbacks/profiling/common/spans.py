"""Calculates with time spans, which are arrays (n, 2) of starts and ends in any unit of time."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.float64]
EMPTY: Final[Spans] = np.empty((0, 2))


def spans(pairs: Iterable[tuple[float, float]]) -> Spans:
    """Return pairs of start and end as an array, (n, 2).

    >>> spans([]).shape
    (0, 2)
    """
    return np.array(list(pairs), dtype=np.float64).reshape(-1, 2)


def union(items: Spans, bridge: float = 0.0) -> Spans:
    """Merge spans that overlap or are at most ``bridge`` apart; return them sorted by start.

    >>> union(np.array([[5.0, 6.0], [0.0, 2.0], [1.0, 3.0]])).tolist()
    [[0.0, 3.0], [5.0, 6.0]]
    """
    if not len(items):
        return EMPTY
    ordered = items[np.argsort(items[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ordered[:, 1])
    is_first = np.concatenate([[True], ordered[1:, 0] > ends[:-1] + bridge])
    is_last = np.concatenate([is_first[1:], [True]])
    return np.column_stack([ordered[is_first, 0], ends[is_last]])


def gaps(cover: Spans, start: float, end: float) -> Spans:
    """Return the parts of the time from ``start`` to ``end`` that are not covered, (n, 2).

    Args:
        cover: covered spans, as returned by ``union``.
        start: start of the time to search.
        end: end of the time to search.
    """
    inside = np.clip(cover, start, end)
    inside = inside[inside[:, 1] > inside[:, 0]]
    edges = np.concatenate([[start], inside.ravel(), [end]]).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def length(items: Spans) -> float:
    """Return the sum of the lengths of all spans; time in several spans counts several times."""
    return float((items[:, 1] - items[:, 0]).sum())


def overlaps(items: Spans, cover: Spans) -> NDArray[np.float64]:
    """Return how much of the length of each span is covered, (n,).

    Args:
        items: spans, which may overlap each other.
        cover: covered spans, as returned by ``union``.

    >>> overlaps(np.array([[0.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 9.0]])).tolist()
    [2.0]
    """
    if not len(cover):
        return np.zeros(len(items))
    widths = np.column_stack([np.zeros(len(cover)), cover[:, 1] - cover[:, 0]])
    covered = np.interp(items, cover.ravel(), np.cumsum(widths.ravel()))
    return np.asarray(covered[:, 1] - covered[:, 0])


def holds(cover: Spans, moments: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each moment whether a span contains it (start included, end excluded), (n,).

    Args:
        cover: the spans, as returned by ``union``.
        moments: times to test, (n,).
    """
    if not len(cover):
        return np.zeros(len(moments), dtype=bool)
    place = np.searchsorted(cover[:, 0], moments, side="right") - 1
    return np.asarray((place >= 0) & (moments < cover[np.maximum(place, 0), 1]))


def shared_out(items: Spans) -> NDArray[np.float64]:
    """Return the length of each span; time in several spans is divided equally among them, (n,).

    The results add up to the length of the ``union`` of the spans.

    >>> shared_out(np.array([[0.0, 4.0], [2.0, 4.0]])).tolist()
    [3.0, 1.0]
    """
    if not len(items):
        return np.zeros(0)
    edges = items.ravel()
    order = np.argsort(edges, kind="stable")
    moments = edges[order]
    running = np.cumsum(np.where(order % 2 == 0, 1, -1))[:-1]
    parts = np.where(running > 0, np.diff(moments) / np.maximum(running, 1), 0.0)
    shared_until = np.concatenate([[0.0], np.cumsum(parts)])
    at = np.interp(items, moments, shared_until)
    return np.asarray(at[:, 1] - at[:, 0])

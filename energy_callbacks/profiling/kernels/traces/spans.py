"""Arithmetic of time spans: arrays (n, 2) of starts and ends, in any one unit."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Spans = NDArray[np.float64]
EMPTY: Final[Spans] = np.empty((0, 2))


def spans(pairs: Iterable[tuple[float, float]]) -> Spans:
    """Pairs as an array.

    >>> spans([]).shape
    (0, 2)
    """
    return np.array(list(pairs), dtype=np.float64).reshape(-1, 2)


def union(found: Spans, bridge: float = 0.0) -> Spans:
    """Spans in order that do not touch; those at most ``bridge`` apart become one.

    >>> union(np.array([[5.0, 6.0], [0.0, 2.0], [1.0, 3.0]])).tolist()
    [[0.0, 3.0], [5.0, 6.0]]
    """
    if not len(found):
        return EMPTY
    ordered = found[np.argsort(found[:, 0], kind="stable")]
    ends = np.maximum.accumulate(ordered[:, 1])
    is_first = np.concatenate([[True], ordered[1:, 0] > ends[:-1] + bridge])
    is_last = np.concatenate([is_first[1:], [True]])
    return np.column_stack([ordered[is_first, 0], ends[is_last]])


def clipped(found: Spans, start: float, end: float) -> Spans:
    """The parts of spans between two moments; empty ones are left out."""
    inside = np.clip(found, start, end)
    return inside[inside[:, 1] > inside[:, 0]]


def gaps(cover: Spans, start: float, end: float) -> Spans:
    """The gaps between two moments.

    Args:
        cover: a ``union``.
        start: first moment.
        end: last one.
    """
    edges = np.concatenate([[start], clipped(cover, start, end).ravel(), [end]]).reshape(-1, 2)
    return edges[edges[:, 1] > edges[:, 0]]


def length(found: Spans) -> float:
    """Of all spans together."""
    return float((found[:, 1] - found[:, 0]).sum())


def overlaps(found: Spans, cover: Spans) -> NDArray[np.float64]:
    """How much of each span is covered: (n,).

    Args:
        found: any spans.
        cover: a ``union``.

    >>> overlaps(np.array([[0.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 9.0]])).tolist()
    [2.0]
    """
    if not len(cover):
        return np.zeros(len(found))
    widths = np.column_stack([np.zeros(len(cover)), cover[:, 1] - cover[:, 0]])
    covered = np.interp(found, cover.ravel(), np.cumsum(widths.ravel()))
    return np.asarray(covered[:, 1] - covered[:, 0])


def holds(cover: Spans, moments: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each moment lies in a span.

    Args:
        cover: a ``union``.
        moments: (n,).
    """
    if not len(cover):
        return np.zeros(len(moments), dtype=bool)
    place = np.searchsorted(cover[:, 0], moments, side="right") - 1
    return np.asarray((place >= 0) & (moments < cover[np.maximum(place, 0), 1]))


def shared_out(found: Spans) -> NDArray[np.float64]:
    """Each span's part of the time that they cover: what runs at once shares it equally.

    The parts add up to the length of the ``union``.

    >>> shared_out(np.array([[0.0, 4.0], [2.0, 4.0]])).tolist()
    [3.0, 1.0]
    """
    if not len(found):
        return np.zeros(0)
    edges = found.ravel()
    order = np.argsort(edges, kind="stable")
    moments = edges[order]
    running = np.cumsum(np.where(order % 2 == 0, 1, -1))[:-1]
    parts = np.where(running > 0, np.diff(moments) / np.maximum(running, 1), 0.0)
    so_far = np.concatenate([[0.0], np.cumsum(parts)])
    at = np.interp(found, moments, so_far)
    return np.asarray(at[:, 1] - at[:, 0])

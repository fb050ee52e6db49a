"""Curves for the charts: rows of journals in bins that keep the mean power and the exact energy."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.report import phases
from energy_callbacks.report.merge import Identity, MergedAttempt, Owned
from energy_callbacks.report.parts import (
    Series,
    Span,
)
from energy_callbacks.report.rows import Array, Columns

# Points of one curve: more than a screen has pixels for, few enough for a small file.
MAX_POINTS = 2000
# All curves together, so that the report of sixteen devices stays as small as that of two.
MAX_POINTS_IN_ALL = 2800
# Phases of a day that alternates each minute, one to a pixel.
MAX_SPANS = 1000
# Rows without a new value that are longer than this are a gap; shorter ones are a sensor that
# is slower than the rows (CodeCarbon's model and the slowest drivers speak once a second).
GAP_S = 3.0
# Decimals that are kept: 1 ms and 0.1 mW, below what any sensor resolves.
_T_DECIMALS, _POWER_DECIMALS = 3, 4


@dataclass(frozen=True, slots=True)
class _Bins:
    """Time, energy, memory and its peak in the allocator between moments, each (n,)."""

    end_s: Array
    seen_s: Array
    energy_j: Array
    memory_bytes: Array
    peak_bytes: Array

    def __len__(self) -> int:
        return len(self.end_s)


def series(attempts: Sequence[MergedAttempt]) -> tuple[Series, ...]:
    """One curve for each device with energy or memory, over all attempts."""
    chosen: dict[Identity, list[tuple[MergedAttempt, Owned]]] = {}
    for attempt in attempts:
        for device in attempt.owned:
            if device.key in device.owner.columns:
                chosen.setdefault(device.identity, []).append((attempt, device))
    limit = min(MAX_POINTS, MAX_POINTS_IN_ALL // max(len(chosen), 1))
    curves = (_curve(parts, limit) for parts in chosen.values())
    return tuple(curve for curve in curves if curve.t_s)


def _curve(parts: Sequence[tuple[MergedAttempt, Owned]], limit: int) -> Series:
    found = [
        _bins(device.owner.columns[device.key], attempt.start_of(device.owner))
        for attempt, device in parts
    ]
    last = parts[-1][1]
    bins = _decimated(_chained(found), limit)
    seen_s = bins.seen_s.round(_T_DECIMALS)
    power_w = (bins.energy_j / np.where(seen_s > 0.0, seen_s, np.nan)).round(_POWER_DECIMALS)
    return Series(
        key=last.key,
        host=last.identity.host,
        t_s=tuple(bins.end_s.round(_T_DECIMALS).tolist()),
        seen_s=tuple(seen_s.tolist()),
        power_w=_with_none(power_w),
        memory_bytes=_with_none(bins.memory_bytes),
        peak_allocated_bytes=() if np.isnan(bins.peak_bytes).all() else _with_none(bins.peak_bytes),
    )


def _with_none(values: Array) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else value for value in values.tolist())


def _bins(columns: Columns, start_s: float) -> _Bins:
    """One bin for each row that brings news, and one for each gap.

    The cumulative energy of the rows, not their mean power, gives the joules of a bin: so the
    curve's area is the energy that the journal states. A sensor lags behind its rows: its energy
    speaks of the time up to ``seen_s``.
    """
    t_s, at_s, energy_j, power_w = (
        columns["t_s"],
        columns.seen_s,
        columns["energy_j"],
        columns["power_w"],
    )
    memory, peak = columns.memory_bytes, columns["peak_allocated_bytes"]
    is_news = ~np.isnan(power_w) & ~np.isnan(energy_j)
    # Before the first joule a row with memory is a bin of its own.
    is_early = np.cumsum(is_news & (energy_j > 0.0)) == 0
    [rows] = np.nonzero(is_news | (is_early & np.isnan(power_w) & ~np.isnan(memory)))
    if not len(rows):
        return _Bins(*np.empty((5, 0)))
    is_news, at_s, energy_j = is_news[rows], at_s[rows], energy_j[rows]
    known_s, known_j = (
        _before(np.where(is_news, at_s, 0.0)),
        _before(np.where(is_news, energy_j, 0.0)),
    )
    row_before_s = np.where(rows > 0, t_s[rows - 1], 0.0)
    gap_end_s = np.minimum(row_before_s, at_s)
    [gaps] = np.nonzero(is_news & (row_before_s - known_s > GAP_S))
    known_s[gaps] = gap_end_s[gaps]
    bins = _Bins(
        end_s=start_s + np.where(is_news, at_s, t_s[rows]),
        seen_s=np.where(is_news, at_s - known_s, 0.0),
        energy_j=np.where(is_news, np.maximum(energy_j - known_j, 0.0), 0.0),
        memory_bytes=_highest(memory, rows),
        peak_bytes=_highest(peak, rows),
    )
    return _Bins(
        end_s=np.insert(bins.end_s, gaps, start_s + gap_end_s[gaps]),
        seen_s=np.insert(bins.seen_s, gaps, 0.0),
        energy_j=np.insert(bins.energy_j, gaps, 0.0),
        memory_bytes=np.insert(bins.memory_bytes, gaps, np.nan),
        peak_bytes=np.insert(bins.peak_bytes, gaps, np.nan),
    )


def _highest(values: Array, rows: NDArray[np.int_]) -> Array:
    """Since the chosen row before, at each of the chosen rows."""
    found: Array = np.fmax.reduceat(values[: rows[-1] + 1], np.append(0, rows[:-1] + 1))
    return found


def _before(values: Array) -> Array:
    """What was known before each row: both time and energy only rise."""
    return np.append(0.0, np.maximum.accumulate(values)[:-1])


def _chained(parts: Sequence[_Bins]) -> _Bins:
    return _Bins(*(np.concatenate([getattr(one, f.name) for one in parts]) for f in fields(_Bins)))


def seen_s(columns: Columns) -> float:
    """Seconds in which the rows of a device saw its power."""
    return float(_bins(columns, 0.0).seen_s.sum())


def _decimated(bins: _Bins, limit: int) -> _Bins:
    """At most ``limit`` bins: equal numbers of neighbours in one."""
    if len(bins) <= limit:
        return bins
    size = math.ceil(len(bins) / limit)
    first = np.arange(0, len(bins), size)
    return _Bins(
        end_s=bins.end_s[np.minimum(first + size, len(bins)) - 1],
        seen_s=np.add.reduceat(bins.seen_s, first),
        energy_j=np.add.reduceat(bins.energy_j, first),
        memory_bytes=np.fmax.reduceat(bins.memory_bytes, first),
        peak_bytes=np.fmax.reduceat(bins.peak_bytes, first),
    )


def timeline(attempts: Iterable[MergedAttempt]) -> tuple[Span, ...]:
    """The phases of the lead processes in time; too many of them lose the shortest."""
    spans: list[Span] = []
    for attempt in attempts:
        offset_s = attempt.start_of(attempt.lead)
        for name, start_s, end_s in phases.stretches(attempt.lead):
            _append(spans, Span(phase=name, start_s=offset_s + start_s, end_s=offset_s + end_s))
    if len(spans) > MAX_SPANS:
        shortest_s = sorted((s.end_s - s.start_s for s in spans), reverse=True)[MAX_SPANS - 1]
        spans = [s for s in spans if s.end_s - s.start_s >= shortest_s][:MAX_SPANS]
    return tuple(sorted((_rounded(span) for span in spans), key=lambda span: span.start_s))


def _append(spans: list[Span], span: Span) -> None:
    """Add a span, or make the last one longer where it goes on in the same phase."""
    if spans and spans[-1].phase == span.phase and spans[-1].end_s == span.start_s:
        spans[-1] = replace(spans[-1], end_s=span.end_s)
    elif span.end_s > span.start_s:
        spans.append(span)


def _rounded(span: Span) -> Span:
    return Span(
        phase=span.phase,
        start_s=round(span.start_s, _T_DECIMALS),
        end_s=round(span.end_s, _T_DECIMALS),
    )

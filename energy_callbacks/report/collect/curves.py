"""Curves for the charts: rows of journals in bins that keep the mean power and the exact energy."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.report.collect import phases
from energy_callbacks.report.collect.merge import Identity, MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.rows import Array, DeviceColumns
from energy_callbacks.report.model.models import (
    Series,
    Span,
)

Places = NDArray[np.intp]

# Points of one curve: more than a screen has pixels for, few enough for a small file.
MAX_POINTS = 2000
# All curves together, so that the report of sixteen devices stays as small as that of two.
MAX_POINTS_IN_ALL = 2800
# Phases of a day that alternates each minute, one to a pixel.
MAX_SPANS = 1000
# Rows without a new value that are longer than this are a gap; shorter ones are a sensor that
# is slower than the rows (CodeCarbon's model and the slowest drivers report once a second).
GAP_S = 3.0
# Decimals that are kept: 1 ms and 0.1 mW, below what any sensor resolves.
_T_DECIMALS, _POWER_DECIMALS = 3, 4
# Gauges of drivers are whole percents and degrees.
_SHARE_DECIMALS, _CELSIUS_DECIMALS = 2, 0


@dataclass(frozen=True, slots=True)
class _Bins:
    """Time, energy and what gauges said between moments, each (n,)."""

    end_s: Array
    seen_s: Array
    energy_j: Array
    memory_bytes: Array
    utilisation: Array
    temperature_c: Array
    throttled_s: Array
    peak_bytes: Array

    def __len__(self) -> int:
        return len(self.end_s)


def series(attempts: Sequence[MergedAttempt]) -> tuple[Series, ...]:
    """One curve for each device with energy or memory, over all attempts."""
    chosen: dict[Identity, list[tuple[MergedAttempt, OwnedDevice]]] = {}
    for attempt in attempts:
        for device in attempt.owned:
            if device.key in device.owner.columns:
                chosen.setdefault(device.identity, []).append((attempt, device))
    limit = min(MAX_POINTS, MAX_POINTS_IN_ALL // max(len(chosen), 1))
    curves = (_curve(parts, limit) for parts in chosen.values())
    return tuple(curve for curve in curves if curve.t_s)


def _curve(parts: Sequence[tuple[MergedAttempt, OwnedDevice]], limit: int) -> Series:
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
        utilisation=_or_empty(bins.utilisation.round(_SHARE_DECIMALS)),
        temperature_c=_or_empty(bins.temperature_c.round(_CELSIUS_DECIMALS)),
        throttled_s=_or_empty(bins.throttled_s.round(_T_DECIMALS)),
        peak_allocated_bytes=_or_empty(bins.peak_bytes),
    )


def _or_empty(values: Array) -> tuple[float | None, ...]:
    return () if np.isnan(values).all() else _with_none(values)


def _with_none(values: Array) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else value for value in values.tolist())


def _bins(columns: DeviceColumns, start_s: float) -> _Bins:
    """One bin for each row that brings news, and one for each gap.

    The cumulative energy of the rows, not their mean power, gives the joules of a bin: so the
    curve's area is the energy that the journal states. A sensor lags behind its rows: its energy
    covers the time up to ``seen_s``.
    """
    t_s, at_s, energy_j, power_w = (
        columns["t_s"],
        columns.seen_s,
        columns["energy_j"],
        columns["power_w"],
    )
    memory = columns.memory_bytes
    is_news = ~np.isnan(power_w) & ~np.isnan(energy_j)
    # Before the first joule a row with memory is a bin of its own.
    is_early = np.cumsum(is_news & (energy_j > 0.0)) == 0
    [rows] = np.nonzero(is_news | (is_early & np.isnan(power_w) & ~np.isnan(memory)))
    if not len(rows):
        return _Bins(*np.empty((len(fields(_Bins)), 0)))
    is_news, at_s, energy_j = is_news[rows], at_s[rows], energy_j[rows]
    known_s, known_j = (
        _before(np.where(is_news, at_s, 0.0)),
        _before(np.where(is_news, energy_j, 0.0)),
    )
    row_before_s = np.where(rows > 0, t_s[rows - 1], 0.0)
    # A row that has looked further and saw no power.
    unseen_s = _before(np.nan_to_num(columns["seen_s"]))[rows]
    is_unseen = unseen_s > known_s
    gap_end_s = np.where(is_unseen, unseen_s, np.minimum(row_before_s, at_s))
    [gaps] = np.nonzero(is_news & (is_unseen | (row_before_s - known_s > GAP_S)))
    first, end = np.append(0, rows[:-1] + 1), rows[-1] + 1
    known_s[gaps] = gap_end_s[gaps]
    bins = _Bins(
        end_s=start_s + np.where(is_news, at_s, t_s[rows]),
        seen_s=np.where(is_news, at_s - known_s, 0.0),
        energy_j=np.where(is_news, np.maximum(energy_j - known_j, 0.0), 0.0),
        memory_bytes=np.fmax.reduceat(memory[:end], first),
        utilisation=_mean(columns["utilisation"][:end], first),
        temperature_c=np.fmax.reduceat(columns["temperature_c"][:end], first),
        throttled_s=_sum(_growth(columns["throttled_s"])[:end], first),
        peak_bytes=np.fmax.reduceat(columns["peak_allocated_bytes"][:end], first),
    )
    in_gap: dict[str, Array | float] = {
        "end_s": start_s + gap_end_s[gaps],
        "seen_s": 0.0,
        "energy_j": 0.0,
    }
    names = [field.name for field in fields(_Bins)]
    return _Bins(*(np.insert(getattr(bins, n), gaps, in_gap.get(n, np.nan)) for n in names))


def _mean(values: Array, first: Places) -> Array:
    """Mean of what is known from each of ``first`` to the next; NaN if nothing is."""
    return _sum(values, first) / np.add.reduceat(~np.isnan(values), first, dtype=float)


def _sum(values: Array, first: Places) -> Array:
    """Likewise the sum."""
    is_known = np.logical_or.reduceat(~np.isnan(values), first)
    return np.where(is_known, np.add.reduceat(np.nan_to_num(values), first), np.nan)


def _growth(counter: Array) -> Array:
    """What a counter gained since its last value; a step back is a driver's restart, (n,)."""
    [known] = np.nonzero(~np.isnan(counter))
    growth = np.full(len(counter), np.nan)
    growth[known[1:]] = np.maximum(np.diff(counter[known]), 0.0)
    return growth


def _before(values: Array) -> Array:
    """What was known before each row: both time and energy only rise."""
    return np.append(0.0, np.maximum.accumulate(values)[:-1])


def _chained(parts: Sequence[_Bins]) -> _Bins:
    return _Bins(*(np.concatenate([getattr(one, f.name) for one in parts]) for f in fields(_Bins)))


def seen_s(columns: DeviceColumns) -> float:
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
        utilisation=_mean(bins.utilisation, first),
        temperature_c=np.fmax.reduceat(bins.temperature_c, first),
        throttled_s=_sum(bins.throttled_s, first),
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
    """Add a span, or make the last one longer if it goes on in the same phase."""
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

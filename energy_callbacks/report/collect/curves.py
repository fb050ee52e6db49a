"""Computes the curves of the charts by combining rows of journals; energies are preserved."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.report.collect import phases
from energy_callbacks.report.collect.merge import Identity, MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.rows import Array, DeviceColumns
from energy_callbacks.report.model.curves import Series, Span

Places = NDArray[np.intp]

# Maximum number of points of one curve. Most screens are less wide than this, in pixels.
MAX_POINTS = 2000
# Maximum number of points of all curves together, if there are fewer devices. It keeps a report of
# 16 devices as small as a report of two devices.
MAX_POINTS_IN_ALL = 2800
# Maximum number of spans in ``timeline``: about one per pixel, or one per 1.5 minutes of a day.
MAX_SPANS = 1000
# If rows have no power for longer than this, in seconds, the time is a gap. Shorter times are
# normal, because some sensors report only once a second, while rows are written more often. If the
# journal's column ``seen_s`` advances in rows without power, the time is a gap at any length.
GAP_S = 3.0
# Decimals of times and powers: 1 ms and 0.1 mW, below the resolution of any sensor.
_T_DECIMALS, _POWER_DECIMALS = 3, 4


def _mean(values: Array, first: Places) -> Array:
    """Return the mean of the known values of each bin, or NaN; bins begin at ``first``."""
    return _sum(values, first) / np.add.reduceat(~np.isnan(values), first, dtype=float)


def _sum(values: Array, first: Places) -> Array:
    """Return the sum of the known values of each bin, or NaN; bins begin at ``first``."""
    is_known = np.logical_or.reduceat(~np.isnan(values), first)
    return np.where(is_known, np.add.reduceat(np.nan_to_num(values), first), np.nan)


def _last(values: Array, first: Places) -> Array:
    """Return the last value of each bin; bins begin at the indices ``first``."""
    last: Array = values[np.append(first[1:], len(values)) - 1]
    return last


# For each quantity of a bin, the function that combines the values of adjacent bins. It takes the
# values, (n,), and the index of the first value of each combined bin. ``seen_s`` is the time in a
# bin for which power is known.
_REDUCE: Final[Mapping[str, Callable[[Array, Places], Array]]] = {
    "end_s": _last,
    "seen_s": np.add.reduceat,
    "energy_j": np.add.reduceat,
    "memory_bytes": np.fmax.reduceat,
    "utilisation": _mean,
    "temperature_c": np.fmax.reduceat,
    "throttled_s": _sum,
    "peak_allocated_bytes": np.fmax.reduceat,
}
_Bins = Mapping[str, Array]
# Optional curves, and the number of decimals of their values. Drivers report whole percents and
# degrees.
_OPTIONAL: Final = {
    "utilisation": 2,
    "temperature_c": 0,
    "throttled_s": _T_DECIMALS,
    "peak_allocated_bytes": 0,
}


def series(attempts: Sequence[MergedAttempt]) -> tuple[Series, ...]:
    """Return the curves of each device with energy or memory, over all attempts."""
    by_device: dict[Identity, list[tuple[MergedAttempt, OwnedDevice]]] = defaultdict(list)
    for attempt in attempts:
        for device in attempt.owned:
            if device.key in device.owner.columns:
                by_device[device.identity].append((attempt, device))
    limit = min(MAX_POINTS, max(MAX_POINTS_IN_ALL // max(len(by_device), 1), 1))
    curves = (_curve(parts, limit) for parts in by_device.values())
    return tuple(curve for curve in curves if curve.t_s)


def _curve(parts: Sequence[tuple[MergedAttempt, OwnedDevice]], limit: int) -> Series:
    each = [
        _bins(device.owner.columns[device.key], attempt.start_of(device.owner))
        for attempt, device in parts
    ]
    chained = {name: np.concatenate([bins[name] for bins in each]) for name in _REDUCE}
    bins = _decimated(chained, limit)
    _, newest = parts[-1]
    seen_s = bins["seen_s"].round(_T_DECIMALS)
    power_w = bins["energy_j"] / np.where(seen_s > 0.0, seen_s, np.nan)
    return Series(
        key=newest.key,
        host=newest.identity.host,
        t_s=tuple(bins["end_s"].round(_T_DECIMALS).tolist()),
        seen_s=tuple(seen_s.tolist()),
        power_w=_with_none(power_w.round(_POWER_DECIMALS)),
        memory_bytes=_with_none(bins["memory_bytes"]),
        **{
            name: _with_none(bins[name].round(decimals))
            for name, decimals in _OPTIONAL.items()
            if not np.isnan(bins[name]).all()
        },
    )


def _with_none(values: Array) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else value for value in values.tolist())


def _bins(columns: DeviceColumns, start_s: float) -> _Bins:
    """Return one bin for each row with power, and one for each gap.

    The energy of a bin is a difference of cumulative energies, not power times time. Therefore the
    area below the curve equals the energy in the journal. Sensors report late: the energy of a row
    covers the time up to ``seen_s`` of the row, which may be earlier than the time of the row.

    Args:
        columns: rows of a device in one attempt.
        start_s: start of the journal on the time axis of the run; it is added to all times.
    """
    t_s, at_s = columns["t_s"], columns.seen_s
    energy_j, power_w = columns["energy_j"], columns["power_w"]
    memory = columns.memory_bytes
    is_news = ~np.isnan(power_w) & ~np.isnan(energy_j)
    # Before the first energy, rows with memory but without power get a bin, too.
    is_early = np.cumsum(is_news & (energy_j > 0.0)) == 0
    [rows] = np.nonzero(is_news | (is_early & np.isnan(power_w) & ~np.isnan(memory)))
    if not len(rows):
        return dict.fromkeys(_REDUCE, np.empty(0))
    is_news, at_s, energy_j = is_news[rows], at_s[rows], energy_j[rows]
    known_s = _before(np.where(is_news, at_s, 0.0))
    known_j = _before(np.where(is_news, energy_j, 0.0))
    row_before_s = np.where(rows > 0, t_s[rows - 1], 0.0)
    # Latest ``seen_s`` of all earlier rows, including those without power.
    unseen_s = _before(np.nan_to_num(columns["seen_s"]))[rows]
    is_unseen = unseen_s > known_s
    gap_end_s = np.where(is_unseen, unseen_s, np.minimum(row_before_s, at_s))
    [gaps] = np.nonzero(is_news & (is_unseen | (row_before_s - known_s > GAP_S)))
    first, end = np.append(0, rows[:-1] + 1), rows[-1] + 1
    known_s[gaps] = gap_end_s[gaps]
    gauges = {
        **{name: columns[name] for name in _OPTIONAL},
        "memory_bytes": memory,
        "throttled_s": growth(columns["throttled_s"]),
    }
    bins = {
        "end_s": start_s + np.where(is_news, at_s, t_s[rows]),
        "seen_s": np.where(is_news, at_s - known_s, 0.0),
        "energy_j": np.where(is_news, np.maximum(energy_j - known_j, 0.0), 0.0),
        **{name: _REDUCE[name](values[:end], first) for name, values in gauges.items()},
    }
    in_gap: dict[str, Array | float] = {"seen_s": 0.0, "energy_j": 0.0}
    in_gap["end_s"] = start_s + gap_end_s[gaps]
    return {name: np.insert(bins[name], gaps, in_gap.get(name, np.nan)) for name in _REDUCE}


def growth(counter: Array) -> Array:
    """Return the increase of a counter since its previous known value, (n,).

    The increase is NaN if it is not known, and 0 if the counter decreased, which happens when the
    driver is restarted.
    """
    [known] = np.nonzero(~np.isnan(counter))
    growth = np.full(len(counter), np.nan)
    growth[known[1:]] = np.maximum(np.diff(counter[known]), 0.0)
    return growth


def _before(values: Array) -> Array:
    """Return, for each row, the highest value of all earlier rows; 0 for the first row."""
    return np.append(0.0, np.maximum.accumulate(values)[:-1])


def seen_s(columns: DeviceColumns) -> float:
    """Return the total time for which the power of a device is known, in seconds."""
    return float(_bins(columns, 0.0)["seen_s"].sum())


def _decimated(bins: _Bins, limit: int) -> _Bins:
    """Combine equal numbers of adjacent bins, so that at most ``limit`` bins remain."""
    count = len(bins["end_s"])
    if count <= limit:
        return bins
    first = np.arange(0, count, math.ceil(count / limit))
    return {name: reduce(bins[name], first) for name, reduce in _REDUCE.items()}


def timeline(attempts: Iterable[MergedAttempt]) -> tuple[Span, ...]:
    """Return the phases of the lead processes over time, as spans in order of their start.

    If there are more than ``MAX_SPANS`` spans, the longest ones are returned. The lead process of
    an attempt is ``MergedAttempt.lead``.
    """
    spans: list[Span] = []
    for attempt in attempts:
        offset_s = attempt.start_of(attempt.lead)
        for name, start_s, end_s in phases.stretches(attempt.lead):
            _append(spans, Span(phase=name, start_s=offset_s + start_s, end_s=offset_s + end_s))
    if len(spans) > MAX_SPANS:
        spans = sorted(spans, key=lambda s: s.start_s - s.end_s)[:MAX_SPANS]
    rounded = (
        replace(s, start_s=round(s.start_s, _T_DECIMALS), end_s=round(s.end_s, _T_DECIMALS))
        for s in spans
    )
    return tuple(sorted(rounded, key=attrgetter("start_s")))


def _append(spans: list[Span], span: Span) -> None:
    """Add a span, or extend the last one if both have the same phase and no gap between them."""
    if spans and spans[-1].phase == span.phase and spans[-1].end_s == span.start_s:
        spans[-1] = replace(spans[-1], end_s=span.end_s)
    elif span.end_s > span.start_s:
        spans.append(span)

"""Curves for the charts: rows of journals in bins that keep the mean power and the exact energy."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from energy_callbacks.report import phases
from energy_callbacks.report.merge import Identity, MergedAttempt, Owned
from energy_callbacks.report.parts import (
    Series,
    Span,
)
from energy_callbacks.report.process import Columns

# Points of one curve: more than a screen has pixels for, few enough for a small file.
MAX_POINTS = 2000
# All curves together, so that the report of sixteen devices stays as small as that of two.
MAX_POINTS_IN_ALL = 6000
# Rows without a new value that are longer than this are a gap; shorter ones are a sensor that
# is slower than the rows (CodeCarbon's model and the slowest drivers speak once a second).
GAP_S = 3.0
# Decimals that are kept: 1 ms and 0.1 mW, below what any sensor resolves.
_T_DECIMALS, _POWER_DECIMALS = 3, 4


@dataclass(frozen=True, slots=True)
class _Bin:
    """Time, energy and memory between two moments."""

    end_s: float
    seen_s: float
    energy_j: float
    memory_bytes: float


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


def _curve(parts: Iterable[tuple[MergedAttempt, Owned]], limit: int) -> Series:
    bins: list[_Bin] = []
    last: Owned | None = None
    for attempt, device in parts:
        last = device
        bins += _bins(device.owner.columns[device.key], attempt.start_of(device.owner))
    assert last is not None, "a curve has at least one part"
    bins = _decimated(bins, limit)
    return Series(
        key=last.key,
        host=last.identity.host,
        t_s=tuple(round(one.end_s, _T_DECIMALS) for one in bins),
        seen_s=tuple(round(one.seen_s, _T_DECIMALS) for one in bins),
        power_w=tuple(_power_w(one) for one in bins),
        memory_bytes=tuple(
            None if math.isnan(one.memory_bytes) else one.memory_bytes for one in bins
        ),
    )


def _power_w(one: _Bin) -> float | None:
    seen_s = round(one.seen_s, _T_DECIMALS)
    return round(one.energy_j / seen_s, _POWER_DECIMALS) if seen_s > 0.0 else None


def _bins(columns: Columns, start_s: float) -> Iterator[_Bin]:
    """One bin for each row that brings news, and one for each gap.

    The cumulative energy of the rows, not their mean power, gives the joules of a bin: so the
    curve's area is the energy that the journal states. A sensor lags behind its rows: its energy
    speaks of the time up to ``seen_s``.
    """
    known_s, known_j, row_s, memory = 0.0, 0.0, 0.0, math.nan
    for t_s, at_s, energy_j, power_w, row_memory in zip(
        columns.t_s,
        columns.seen_s,
        columns.energy_j,
        columns.power_w,
        columns.memory_bytes,
        strict=True,
    ):
        memory = _highest(memory, row_memory)
        if not math.isnan(power_w) and not math.isnan(energy_j):
            if row_s - known_s > GAP_S:
                gap_end_s = min(row_s, at_s)
                yield _Bin(start_s + gap_end_s, 0.0, 0.0, math.nan)
                known_s = gap_end_s
            yield _Bin(start_s + at_s, at_s - known_s, max(energy_j - known_j, 0.0), memory)
            known_s, known_j, memory = at_s, energy_j, math.nan
        elif math.isnan(power_w) and not math.isnan(row_memory) and known_j == 0.0:
            yield _Bin(start_s + t_s, 0.0, 0.0, memory)
            memory = math.nan
        row_s = t_s


def seen_s(columns: Columns) -> float:
    """Seconds in which the rows of a device saw its power."""
    return math.fsum(one.seen_s for one in _bins(columns, 0.0))


def _highest(first: float, second: float) -> float:
    return second if math.isnan(first) or second > first else first


def _decimated(bins: list[_Bin], limit: int) -> list[_Bin]:
    """At most ``limit`` bins: equal numbers of neighbours in one."""
    if len(bins) <= limit:
        return bins
    size = math.ceil(len(bins) / limit)
    return [_joined(bins[first : first + size]) for first in range(0, len(bins), size)]


def _joined(bins: Sequence[_Bin]) -> _Bin:
    memory = math.nan
    for one in bins:
        memory = _highest(memory, one.memory_bytes)
    return _Bin(
        end_s=bins[-1].end_s,
        seen_s=math.fsum(one.seen_s for one in bins),
        energy_j=math.fsum(one.energy_j for one in bins),
        memory_bytes=memory,
    )


def timeline(attempts: Iterable[MergedAttempt]) -> tuple[Span, ...]:
    """The phases of the lead processes in time; too many of them lose the shortest."""
    spans: list[Span] = []
    for attempt in attempts:
        offset_s = attempt.start_of(attempt.lead)
        for name, start_s, end_s in phases.stretches(attempt.lead):
            _append(spans, Span(phase=name, start_s=offset_s + start_s, end_s=offset_s + end_s))
    if len(spans) > MAX_POINTS:
        shortest_s = sorted((s.end_s - s.start_s for s in spans), reverse=True)[MAX_POINTS - 1]
        spans = [s for s in spans if s.end_s - s.start_s >= shortest_s][:MAX_POINTS]
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

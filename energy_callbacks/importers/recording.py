"""Samples of a log as a journal: rows, one phase and the energy of each device."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core import formatting
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Channel, Device, Energy, Quantity, Scope, Sensor
from energy_callbacks.importers import journal_lines as lines
from energy_callbacks.importers.files import Damage
from energy_callbacks.importers.journal_lines import About
from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import DeviceSamples, Samples
from energy_callbacks.importers.trapezoid import GAP_STEPS, Array, Curve, integrate

RELATIVE_ERROR: Final = 0.1
"""Of power that another program has read: which of the driver's averages it took is unknown."""
# One row of our own journals is about as long.
_ROW_S: Final = 0.8
Places = NDArray[np.intp]
_SCOPES: Final[dict[str, Scope]] = {"gpu": "gpu", "cpu": "host"}
_QUANTITIES: Final[dict[Quantity, str]] = {
    "utilisation": "utilisation",
    "memory_used": "memory_used_bytes",
    "temperature": "temperature_c",
    "clock": "clock_hz",
}


@dataclass(frozen=True, slots=True)
class _Measured:
    """A device, its curve and its energy over the whole log."""

    samples: DeviceSamples
    known: Places
    curve: Curve
    energy: Energy

    @property
    def seen_s(self) -> float:
        return float(self.curve.seen_s[-1]) if len(self.curve.seen_s) else 0.0


def recorded(
    log: Log, about: About, samples: Samples, clock: LogClock, damage: Damage
) -> Iterator[Record]:
    """The journal of a log of samples.

    Raises:
        JournalError: if no two samples of it are at different times.
    """
    end_s = samples.end_s
    if end_s <= 0.0:
        raise JournalError(
            f"{log.path} is a log of {about.program} without two samples at different times: "
            "there is no energy in it"
        )
    measured = [_measured(one, end_s) for one in samples.devices.values()]
    energy = {one.samples.key: one.energy for one in measured}
    yield lines.header(log, replace(about, unix_s=clock.unix_s))
    for one in measured:
        yield _device_line(one, about.program)
    yield from lines.of_damage(log, damage)
    for problem in clock.problems():
        yield lines.warning("log_clock", problem)
    for one in measured:
        yield from _warnings(one, end_s)
    yield from _remarks(about.program, measured, clock)
    rows = heapq.merge(*(_rows(one) for one in measured), key=itemgetter("t_s"))
    yield from rows
    yield lines.span(lines.RECORDED, 0.0, end_s, energy)
    yield lines.totals(end_s, energy)


def _measured(samples: DeviceSamples, end_s: float) -> _Measured:
    t_s, power_w = np.asarray(samples.t_s), np.asarray(samples.power_w)
    steps_s = np.diff(t_s)
    steps_s = steps_s[steps_s > 0.0]
    step_s = float(np.median(steps_s)) if len(steps_s) else None
    [known] = np.nonzero(~np.isnan(power_w))
    curve = integrate(t_s[known], power_w[known], step_s)
    seen_s = float(curve.seen_s[-1]) if len(known) else 0.0
    energy = Energy(energy_j=None)
    if seen_s > 0.0:
        energy_j = float(curve.energy_j[-1])
        energy = Energy(
            energy_j=energy_j,
            stderr_j=curve.stderr_j,
            systematic_j=RELATIVE_ERROR * energy_j,
            method="power",
            coverage=min(seen_s / end_s, 1.0),
        )
    return _Measured(samples, known, curve, energy)


def _device_line(one: _Measured, program: str) -> Record:
    samples = one.samples
    device = Device(
        key=samples.key,
        kind=samples.kind,
        scope=_SCOPES[samples.kind],
        name=samples.name,
        index=samples.index,
        uuid=samples.uuid,
        limit_w=samples.limit_w,
        memory_bytes=samples.memory_bytes,
    )
    period_s = one.curve.step_s
    sensor = Sensor(name=f"samples in a log of {program}", period_s=period_s)
    power = replace(sensor, relative_error=RELATIVE_ERROR)
    channels = [Channel(device=device, quantity="power", kind="gauge", sensor=power)]
    channels += [
        Channel(device=device, quantity=quantity, kind="gauge", sensor=sensor)
        for quantity, column in _QUANTITIES.items()
        if not np.isnan(samples.column(column)).all()
    ]
    return journal.device_record(device, channels if samples.has_power else channels[1:])


def _warnings(one: _Measured, end_s: float) -> Iterator[Record]:
    samples, curve = one.samples, one.curve
    count = len(samples.t_s)
    if not samples.has_power:
        message = (
            f"The log has no power of {samples.key} ({samples.name}): its energy is not known."
        )
        yield lines.warning("no_power", message)
    elif samples.unusable:
        yield lines.warning(
            "unusable_power",
            f"Of {count} samples of {samples.key}, {samples.unusable} have no usable power "
            "(missing, below zero, or above what a device draws) and are left out.",
        )
    step_s = curve.step_s or 0.0
    outside_s = end_s - one.seen_s - curve.gap_s
    if curve.gaps:
        gaps = "one gap" if curve.gaps == 1 else f"{curve.gaps} gaps"
        yield lines.warning(
            "gaps",
            f"Of {samples.key}, {formatting.duration(curve.gap_s)} in {gaps} are in no figure: its "
            f"samples are {formatting.duration(step_s)} apart, and no step of more than "
            f"{GAP_STEPS:g} times that is bridged.",
        )
    if samples.has_power and outside_s > GAP_STEPS * step_s:
        yield lines.warning(
            "gaps",
            f"Of {samples.key}, {formatting.duration(outside_s)} before its first power or after "
            "its "
            "last are in no figure.",
        )


def _remarks(program: str, measured: list[_Measured], clock: LogClock) -> Iterator[Record]:
    steps_s = [one.curve.step_s for one in measured if one.curve.step_s and one.seen_s]
    if steps_s:
        yield lines.remark(
            program,
            "energy is integrated over the times of power samples "
            f"{formatting.duration(max(steps_s))} "
            f"apart, of unknown averaging: {formatting.percent(RELATIVE_ERROR)} either way are "
            "taken "
            "as its systematic error",
        )
    if clock.is_local:
        yield lines.remark(
            program,
            "its times tell no zone and are taken to be of the machine that made this report; "
            "durations do not depend on that",
        )


def _rows(one: _Measured) -> Iterator[Record]:
    """Lines of ``series``: one for each 0.8 s with samples, and both sides of each gap."""
    samples, known, curve = one.samples, one.known, one.curve
    t_s = np.asarray(samples.t_s)
    [gaps] = np.nonzero(curve.is_after_gap)
    is_row = np.append(np.diff(np.floor(t_s / _ROW_S)) > 0.0, True)
    is_row[0] = True
    is_row[known[:1]] = is_row[known[-1:]] = True
    is_row[known[gaps]] = is_row[known[np.maximum(gaps - 1, 0)]] = True
    [rows] = np.nonzero(is_row)
    energy_j, seen_s = np.full((2, len(t_s)), np.nan)
    energy_j[known], seen_s[known] = curve.energy_j, curve.seen_s
    table = {
        "energy_j": energy_j[rows],
        "seen_s": np.where(np.isnan(energy_j), np.nan, t_s)[rows],
        "power_w": _power_w(energy_j[rows], seen_s[rows]),
        **_gauges(samples, rows),
    }
    names, columns = tuple(table), [column.tolist() for column in table.values()]
    for at_s, *values in zip(t_s[rows].tolist(), *columns, strict=True):
        row = journal.row_as_json(dict(zip(names, values, strict=True)))
        yield {"type": "series", "t_s": at_s, "rows": {samples.key: row}}


def _power_w(energy_j: Array, seen_s: Array) -> Array:
    """Mean since the row before that knows its energy; NaN after a gap."""
    power_w = np.full(len(energy_j), np.nan)
    [known] = np.nonzero(~np.isnan(energy_j))
    duration_s = np.diff(seen_s[known])
    is_seen = duration_s > 0.0
    power_w[known[1:][is_seen]] = np.diff(energy_j[known])[is_seen] / duration_s[is_seen]
    return power_w


def _gauges(samples: DeviceSamples, rows: Places) -> dict[str, Array]:
    """Mean load and highest of the others since the row before."""
    first = np.append(0, rows[:-1] + 1)
    load = samples.column("utilisation")
    counts = np.add.reduceat(~np.isnan(load), first, dtype=float)
    sums = np.add.reduceat(np.nan_to_num(load), first)
    found = {"utilisation": np.where(counts > 0.0, sums / np.maximum(counts, 1.0), np.nan)}
    for name in ("memory_used_bytes", "temperature_c", "clock_hz"):
        found[name] = np.fmax.reduceat(samples.column(name), first)
    return found

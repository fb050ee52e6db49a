"""Integrates the power samples of a log; yields a journal with one phase and values over time.

Power is integrated over time with the trapezoidal rule. Gaps between samples are left out.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN
from energy_callbacks.core import formatting
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Energy, Quantity, Sensor
from energy_callbacks.importers import journal_lines as lines
from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Array, DeviceSamples, Samples

RELATIVE_ERROR: Final = 0.1
"""Relative systematic error of power that another program recorded. It is large because the driver
offers several averages of power, and it is not known which of them the program read."""
GAP_STEPS: Final = 5.0
"""There is a gap between two consecutive samples with power if they are further apart than this
multiple of the median time between samples."""
# Length of an interval in seconds; the last sample of each interval becomes a journal line of type
# ``series``. The interval in the journals of the meter is about the same.
_ROW_S: Final = 0.8
_QUANTITIES: Final[dict[str, Quantity]] = {
    "utilisation": "utilisation",
    "memory_used_bytes": "memory_used",
    "temperature_c": "temperature",
    "clock_hz": "clock",
}


class Curve:
    """Computes the cumulative energy of a device at each sample.

    A step is the time between two consecutive samples; the usual step is the median of the steps
    above zero. Between two consecutive samples with power, the power is interpolated linearly; if
    they are more than five usual steps apart, the time between them is a gap. If power changes from
    ``a`` to ``b`` watts at an unknown moment within ``dt`` seconds, the error of the energy is
    uniform within ``±|b - a| dt / 2``; its standard deviation is ``|b - a| dt / sqrt(12)``.

    Args:
        t_s: times of the samples, ascending, (n,).
        power_w: power in W at these times, NaN if unknown, (n,).

    Attributes:
        energy_j: energy since the first known power, without the gaps, (n,); NaN at samples without
            power.
        seen_s: time since the first known power, without the gaps, (n,); NaN at samples without
            power.
        is_edge: whether the sample is the first or last with power, or next to a gap, (n,).
        step_s: the usual step in seconds; ``None`` if all samples have the same time.
        total_j: energy at the last sample with power; 0.0 if no sample has power.
        stderr_j: standard error of ``total_j``, from the change of power between samples.
        covered_s: time from the first to the last sample with power, without the gaps.
        gap_s: total time of the gaps in seconds.
        gaps: number of gaps.

    >>> curve = Curve(np.array([0.0, 1.0, 2.0, 3.0, 13.0, 14.0]), np.full(6, 100.0))
    >>> float(curve.energy_j[-1]), float(curve.seen_s[-1]), curve.gap_s, curve.gaps
    (400.0, 4.0, 10.0, 1)
    """

    def __init__(self, t_s: Array, power_w: Array) -> None:
        all_steps_s = np.diff(t_s)
        all_steps_s = all_steps_s[all_steps_s > 0.0]
        self.step_s = float(np.median(all_steps_s)) if len(all_steps_s) else None
        [known] = np.nonzero(~np.isnan(power_w))
        power_w, steps_s = power_w[known], np.diff(t_s[known])
        is_gap = steps_s > GAP_STEPS * (self.step_s or 0.0)
        self.gaps, self.gap_s = int(is_gap.sum()), float(np.where(is_gap, steps_s, 0.0).sum())
        known_s = np.where(is_gap, 0.0, steps_s)
        means_w = (power_w[1:] + power_w[:-1]) / 2.0
        self.energy_j, self.seen_s = np.full((2, len(t_s)), np.nan)
        self.energy_j[known] = np.append(0.0, np.cumsum(means_w * known_s))[: len(known)]
        self.seen_s[known] = np.append(0.0, np.cumsum(known_s))[: len(known)]
        self.stderr_j = float(np.sqrt(np.sum((np.diff(power_w) * known_s) ** 2) / 12.0))
        self.total_j = float(self.energy_j[known[-1]]) if len(known) else 0.0
        self.covered_s = float(self.seen_s[known[-1]]) if len(known) else 0.0
        self.is_edge = np.zeros(len(t_s), dtype=bool)
        for places in (known[:1], known[-1:], known[:-1][is_gap], known[1:][is_gap]):
            self.is_edge[places] = True


def recorded(
    log: Log, header: Record, samples: Samples, notes: Iterable[Record] = ()
) -> Iterator[Record]:
    """Yield the journal of a log of samples.

    Args:
        log: the file.
        header: first line; if its field ``unix_s`` is ``None``, the first time in the log is used.
        samples: all samples of the file.
        notes: journal lines with warnings and remarks about the format of the log.

    Raises:
        JournalError: if the log has no two samples at different times, or if the user has chosen a
            run.
    """
    log.check_one_run()
    end_s, clock, program = samples.end_s, samples.clock, header["imported"]["program"]
    if end_s <= 0.0:
        raise JournalError(
            f"{log.path} is a log of {program} without two samples at different times, so its "
            "energy is not known; give another log"
        )
    devices = [
        (one, Curve(one.column("t_s"), one.column("power_w"))) for one in samples.devices.values()
    ]
    energy = {one.device.key: _energy(curve, end_s) for one, curve in devices}
    unix_s = header["unix_s"]
    yield header | {"unix_s": clock.unix_s if unix_s is None else unix_s}
    yield from notes
    for one, curve in devices:
        yield _device_line(one, curve, program)
    yield from lines.damage_warnings(log, samples.damage)
    for problem in clock.problems():
        yield lines.warning("log_clock", problem)
    for one, curve in devices:
        yield from _warnings(one, curve, end_s)
    yield from _remarks(program, [curve for _, curve in devices], clock)
    yield from heapq.merge(*(_rows(*one) for one in devices), key=itemgetter("t_s"))
    yield lines.span(lines.RECORDED, 0.0, end_s, energy)
    yield lines.totals(end_s, energy)


def _energy(curve: Curve, end_s: float) -> Energy:
    if curve.covered_s <= 0.0:
        return UNKNOWN
    return Energy(
        energy_j=curve.total_j,
        stderr_j=curve.stderr_j,
        systematic_j=RELATIVE_ERROR * curve.total_j,
        method="power",
        coverage=min(curve.covered_s / end_s, 1.0),
    )


def _device_line(samples: DeviceSamples, curve: Curve, program: str) -> Record:
    sensor = Sensor(name=f"samples in a log of {program}", period_s=curve.step_s)
    sensors: dict[Quantity, Sensor] = {}
    if samples.has_power:
        sensors["power"] = replace(sensor, relative_error=RELATIVE_ERROR)
    for column, quantity in _QUANTITIES.items():
        if not np.isnan(samples.column(column)).all():
            sensors[quantity] = sensor
    return lines.device_line(samples.device, sensors)


def _warnings(samples: DeviceSamples, curve: Curve, end_s: float) -> Iterator[Record]:
    key, step_s = samples.device.key, curve.step_s or 0.0
    if not samples.has_power:
        message = (
            f"The log has no power of {key} ({samples.device.name}), so its energy is not known."
        )
        yield lines.warning("no_power", message)
    elif samples.unusable:
        yield lines.warning(
            "unusable_power",
            f"{samples.unusable} of {len(samples)} samples of {key} are not used, because their "
            "power is missing, negative, or above any possible power.",
        )
    if curve.gaps:
        gaps = "one gap" if curve.gaps == 1 else f"{curve.gaps} gaps"
        yield lines.warning(
            "gaps",
            f"{key}: {formatting.duration(curve.gap_s)} in {gaps} are not included. Its samples "
            f"are {formatting.duration(step_s)} apart; intervals longer than "
            f"{GAP_STEPS:g} times that count as gaps.",
        )
    outside_s = end_s - curve.covered_s - curve.gap_s
    if samples.has_power and outside_s > GAP_STEPS * step_s:
        yield lines.warning(
            "gaps",
            f"{key}: {formatting.duration(outside_s)} before the first or after the last value of "
            "power are not included.",
        )


def _remarks(program: str, curves: Sequence[Curve], clock: LogClock) -> Iterator[Record]:
    steps_s = [curve.step_s for curve in curves if curve.step_s and curve.covered_s]
    if steps_s:
        yield lines.remark(
            program,
            "the energy is integrated from power samples "
            f"{formatting.duration(max(steps_s))} apart. How the sensor computes averages is "
            f"not known, so a systematic error of {formatting.percent(RELATIVE_ERROR)} is "
            "assumed",
        )
    if clock.is_local:
        yield lines.remark(
            program,
            "its times have no time zone; the time zone of the machine that made this report is "
            "assumed. Durations do not depend on it",
        )


def _rows(samples: DeviceSamples, curve: Curve) -> Iterator[Record]:
    """Yield the ``series`` lines of a device.

    There is a line for the first sample, for the last sample of every 0.8 s, and for each sample
    with ``Curve.is_edge``.
    """
    t_s, energy_j = samples.column("t_s"), curve.energy_j
    is_row = np.append(np.diff(np.floor(t_s / _ROW_S)) > 0.0, True) | curve.is_edge
    is_row[0] = True
    [rows] = np.nonzero(is_row)
    table = {
        "energy_j": energy_j[rows],
        "seen_s": np.where(np.isnan(energy_j), np.nan, t_s)[rows],
        "power_w": _power_w(energy_j[rows], curve.seen_s[rows]),
        **_gauges(samples, rows),
    }
    columns = [column.tolist() for column in table.values()]
    for at_s, *values in zip(t_s[rows].tolist(), *columns, strict=True):
        row = journal.row_as_json(dict(zip(table, values, strict=True)))
        yield {"type": "series", "t_s": at_s, "rows": {samples.device.key: row}}


def _power_w(energy_j: Array, seen_s: Array) -> Array:
    """Return the mean power between each row and the previous row with known energy.

    The power is NaN if the energy of the row is unknown, if there is no such previous row, or if
    all the time between both rows is a gap.

    Args:
        energy_j: ``Curve.energy_j`` at each row, (n,).
        seen_s: ``Curve.seen_s`` at each row, (n,).
    """
    power_w = np.full(len(energy_j), np.nan)
    [known] = np.nonzero(~np.isnan(energy_j))
    duration_s = np.diff(seen_s[known])
    is_seen = duration_s > 0.0
    power_w[known[1:][is_seen]] = np.diff(energy_j[known])[is_seen] / duration_s[is_seen]
    return power_w


def _gauges(samples: DeviceSamples, rows: NDArray[np.intp]) -> dict[str, Array]:
    """Return the mean utilisation and the maximum of every other gauge since the previous row.

    Args:
        samples: the samples of a device.
        rows: index of the sample of each row, ascending.
    """
    first = np.append(0, rows[:-1] + 1)
    gauges = {name: np.fmax.reduceat(samples.column(name), first) for name in _QUANTITIES}
    load = samples.column("utilisation")
    counts = np.add.reduceat(~np.isnan(load), first, dtype=float)
    sums = np.add.reduceat(np.nan_to_num(load), first)
    gauges["utilisation"] = np.where(counts > 0.0, sums / np.maximum(counts, 1.0), np.nan)
    return gauges

"""Reads logs of Zeus' ``ZeusMonitor(log_file=...)``: the energy of each card in each window.

Columns are ``start_time`` (Unix), ``window_name``, ``elapsed_time`` (s), ``gpu0_energy`` (J), ...
Successive windows become phases. In the report, the energy of a window inside another window is
subtracted from that of the outer window. Windows that are nested more deeply, or that partly
overlap another window, are ignored with a warning. Numbers at the end of window names are removed,
so that repeated windows have the same name.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total, total_of_neighbours
from energy_callbacks.core import formatting
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import NORMAL_95, Device, Energy, Sensor
from energy_callbacks.importers import files
from energy_callbacks.importers import journal_lines as lines
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import MOST_SAMPLES
from energy_callbacks.importers.values import above_0, at_least_0, short_text

NAME: Final = "Zeus"
_NAMES: Final = ["start_time", "window_name", "elapsed_time"]
_ENERGY: Final = "_energy"
_CARD: Final = re.compile(r"gpu(\d{1,3})_energy")
_NUMBERED: Final = re.compile(r"[\s_\-/:.#]*\d+$")
# Zeus reads the energy counter of a card at both ends of a window. The relative error of the
# counter is the one that ``sensing/sources/nvidia/known_sensors.py`` uses. The counter has a new
# value every 100 ms (documentation of Zeus).
_RELATIVE_ERROR: Final = 0.05
_TICK_S: Final = 0.1
_SENSOR: Final = Sensor(
    name="windows in a log of Zeus", period_s=_TICK_S, relative_error=_RELATIVE_ERROR
)
# Tolerance for comparing starts and ends of windows, which are precise to about a microsecond.
_SLACK_S: Final = 1e-3
_MOST_S: Final = 10 * 365 * 86400.0
# Limit of plausible Unix times: the year 2096.
_LATEST_S: Final = 4e9


@dataclass(frozen=True, slots=True)
class _Window:
    name: str
    start_s: float
    end_s: float
    energy: dict[str, Energy]


def recognises(log: Log) -> bool:
    """Return whether the columns are ``_NAMES``, followed by one energy column per card."""
    names = log.columns()
    return names[:3] == _NAMES and len(names) > 3 and all(map(_CARD.fullmatch, names[3:]))


def records(log: Log) -> Iterator[Record]:
    """Yield the journal of the log; see ``Importer.records``."""
    log.check_one_run()
    keys = [name.removesuffix(_ENERGY) for name in log.columns()[3:]]
    damage = files.Damage()
    windows = _windows(log, keys, damage)
    if not windows:
        raise JournalError(
            f"{log.path} contains no complete window of Zeus, so its energy is "
            "not known; give another log"
        )
    zero_s = windows[0].start_s
    outer, inner, aside = _nested(windows)
    end_s = outer[-1].end_s - zero_s
    yield lines.header(log, NAME, zero_s)
    for key in keys:
        device = Device(key=key, kind="gpu", scope="gpu", name="GPU", index=int(key[3:]))
        yield lines.device_line(device, {"energy": _SENSOR})
    yield from lines.damage_warnings(log, damage)
    spans = list(_spans(outer, keys, zero_s))
    yield from _notes(log, aside, spans)
    yield from spans
    for one in inner:
        yield lines.window(one.name, one.start_s - zero_s, one.end_s - zero_s, one.energy)
    yield lines.totals(end_s, {key: _sum(outer, key, end_s) for key in keys})


def _notes(log: Log, aside: int, spans: Sequence[Record]) -> Iterator[Record]:
    if aside:
        yield lines.warning(
            "windows_aside",
            f"{aside} windows of {log.path.name} partly overlap other windows, or are nested more "
            "than once. They are not shown as phases.",
        )
    between_s = sum(one["end_s"] - one["start_s"] for one in spans if one["phase"] == lines.UNSEEN)
    if between_s > _SLACK_S:
        yield lines.warning(
            "gaps", f"{formatting.duration(between_s)} between windows are not included."
        )
    yield lines.remark(
        NAME,
        "the energy is that of the windows, from the cards' energy counters at both ends; the "
        "error from edges assumes a counter whose value changes every 100 ms",
    )


def _windows(log: Log, keys: Sequence[str], damage: files.Damage) -> list[_Window]:
    """Return the windows sorted by start; windows with the same start are sorted longest first."""
    windows = []
    for _, row in log.rows(damage):
        start_s, duration_s = above_0(row["start_time"]), above_0(row["elapsed_time"])
        if start_s is None or duration_s is None or start_s > _LATEST_S or duration_s > _MOST_S:
            damage.places += 1
            continue
        name = _NUMBERED.sub("", short_text(row["window_name"]) or "") or "window"
        energy = {key: _energy(at_least_0(row[key + _ENERGY]), duration_s) for key in keys}
        windows.append(_Window(name, start_s, start_s + duration_s, energy))
        if len(windows) > MOST_SAMPLES:
            raise JournalError(
                f"{log.path} contains more than {MOST_SAMPLES} windows; split it "
                "and make a report of each part"
            )
    return sorted(windows, key=lambda one: (one.start_s, -one.end_s))


def _energy(energy_j: float | None, duration_s: float) -> Energy:
    """Return the energy of a window.

    0 J counts as unknown, because it means that the counter did not change during the window.
    """
    if not energy_j:
        return UNKNOWN
    # The window may start and end at any moment between two counter values. The error of each of
    # these two times is uniform over 100 ms, and the error of the duration between them has a
    # standard deviation of 100 ms / sqrt(6). It is an error from edges: where windows are parts of
    # the training that repeat, each of them gets energy of the time before its start.
    edge_j = NORMAL_95 * energy_j / duration_s * _TICK_S / 6.0**0.5
    return Energy(
        energy_j=energy_j,
        edge_j=edge_j,
        systematic_j=_RELATIVE_ERROR * energy_j,
        method="counter",
        coverage=1.0,
    )


def _nested(windows: Sequence[_Window]) -> tuple[list[_Window], list[_Window], int]:
    """Return successive windows, the windows inside them, and the number of ignored windows."""
    outer, inner, aside = [windows[0]], list[_Window](), 0
    for one in windows[1:]:
        if one.start_s >= outer[-1].end_s - _SLACK_S:
            outer.append(one)
        elif one.end_s <= outer[-1].end_s + _SLACK_S and (
            not inner or one.start_s >= inner[-1].end_s - _SLACK_S
        ):
            inner.append(one)
        else:
            aside += 1
    return outer, inner, aside


def _spans(outer: Sequence[_Window], keys: Sequence[str], zero_s: float) -> Iterator[Record]:
    """Yield the journal line of a phase for each window, and for each time between two windows."""
    previous_s = 0.0
    for one in outer:
        start_s, end_s = max(one.start_s - zero_s, previous_s), one.end_s - zero_s
        if start_s > previous_s + _SLACK_S:
            yield lines.span(lines.UNSEEN, previous_s, start_s, dict.fromkeys(keys, UNKNOWN))
        else:
            start_s = previous_s
        yield lines.span(one.name, start_s, end_s, one.energy)
        previous_s = end_s


def _sum(windows: Sequence[_Window], key: str, end_s: float) -> Energy:
    """Return the total energy of a card; the time between windows counts as not measured."""
    groups: list[list[_Window]] = [[]]
    for one in windows:
        if groups[-1] and one.start_s > groups[-1][-1].end_s + _SLACK_S:
            groups.append([])
        groups[-1].append(one)
    durations_s = [[one.end_s - one.start_s for one in group] for group in groups]
    parts = [
        total_of_neighbours([one.energy[key] for one in group], lengths_s)
        for group, lengths_s in zip(groups, durations_s, strict=True)
    ]
    known_s = [math.fsum(lengths_s) for lengths_s in durations_s]
    between_s = max(end_s - math.fsum(known_s), 0.0)
    return total([*parts, UNKNOWN], [*known_s, between_s])

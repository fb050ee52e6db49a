"""Computes the activity of the parts of a GPU, such as its tensor cores, by run and by phase.

Each value in a row of a journal is the mean activity since the previous value. If the time that a
value covers may contain the start or the end of a phase, the value is not assigned to any phase.
Therefore the activity of a phase of only a few seconds may not be known.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from energy_callbacks.report.collect import phases
from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.collect.process import ProcessJournal, TimedEnergy
from energy_callbacks.report.collect.rows import DeviceColumns
from energy_callbacks.report.model.runs import Activity

ACTIVITIES = ("sm_active", "sm_occupancy", "tensor_active", "dram_active")


class _Spell(NamedTuple):
    """Mean activity over the time between two consecutive readings.

    Start and end of this time are not known exactly, because a journal contains the time of each
    row only: a reading in a row was taken at an unknown time between the previous row and this row.

    Attributes:
        start_s: earliest possible start, on the time axis of the journal.
        end_s: latest possible end, on the same time axis.
        seen_s: time between the two rows with the readings, in seconds; the weight of the means.
        shares: means in the order of ``ACTIVITIES``, 0 to 1; NaN if not known.
    """

    start_s: float
    end_s: float
    seen_s: float
    shares: tuple[float, ...]


def by_phase(attempts: Iterable[MergedAttempt]) -> dict[str, Activity]:
    """Return the mean activity over all GPUs and attempts, for each phase that has values."""
    by_name: dict[str, list[_Spell]] = defaultdict(list)
    for device in (device for attempt in attempts for device in attempt.owned):
        columns = device.owner.columns.get(device.key, DeviceColumns())
        layers = phases.layers(device.owner)
        for spell in _spells(columns):
            name = _phase(device.owner, layers, spell)
            if name is not None:
                by_name[name].append(spell)
    means = {name: _mean(spells) for name, spells in by_name.items()}
    return {name: mean for name, mean in means.items() if mean is not None}


def whole(parts: Iterable[DeviceColumns]) -> Activity | None:
    """Return the mean activity of a device over the run; ``None`` if not known.

    Args:
        parts: rows of the device, one part for each attempt.
    """
    return _mean([spell for columns in parts for spell in _spells(columns)])


def _spells(columns: DeviceColumns) -> Iterator[_Spell]:
    t_s = columns["t_s"]
    table = np.column_stack([columns[name] for name in ACTIVITIES])
    with_value = np.flatnonzero(~np.isnan(table).all(axis=1))
    # The first value is omitted, because the time that it covers has an unknown start.
    for before, row in pairwise(with_value):
        # The earlier reading was taken after row ``before - 1``, at an unknown time.
        start_s = float(t_s[before - 1]) if before else 0.0
        seen_s = float(t_s[row] - t_s[before])
        yield _Spell(start_s, float(t_s[row]), seen_s, tuple(table[row]))


def _phase(
    process: ProcessJournal, layers: Iterable[Sequence[TimedEnergy]], spell: _Spell
) -> str | None:
    """Return the name of the phase that contains the whole time of ``spell``, or ``None``.

    Args:
        process: the journal with ``spell``.
        layers: result of ``phases.layers``.
        spell: the activity.
    """
    for timed in layers:
        newest = _newest(timed, spell.end_s)
        if newest is not None and newest.end_s > spell.start_s:
            return newest.name if _contains(newest, spell) else None
    closed_s = process.spans[-1].end_s if process.spans else 0.0
    return process.open_phase if spell.start_s >= closed_s else None


def _newest(timed: Sequence[TimedEnergy], before_s: float) -> TimedEnergy | None:
    """Return the last element that starts at or before ``before_s``, or ``None``.

    Args:
        timed: spans or windows, sorted by start.
        before_s: time on the time axis of the journal.
    """
    place = bisect_right(timed, before_s, key=attrgetter("start_s")) - 1
    return timed[place] if place >= 0 else None


def _contains(timed: TimedEnergy, spell: _Spell) -> bool:
    return timed.start_s <= spell.start_s and spell.end_s <= timed.end_s


def _mean(spells: Sequence[_Spell]) -> Activity | None:
    spells = [spell for spell in spells if spell.seen_s > 0.0]
    if not spells:
        return None
    seen_s = np.array([spell.seen_s for spell in spells])
    table = np.array([spell.shares for spell in spells])
    means = {
        name: float(np.average(column[known], weights=seen_s[known])) if known.any() else None
        for name, column, known in zip(ACTIVITIES, table.T, ~np.isnan(table.T), strict=True)
    }
    return Activity(**means)

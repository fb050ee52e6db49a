"""Power of cards as older ``PowerMonitor`` of Zeus write it: Unix time, then W of each card.

Zeus writes no names of columns; a first line ``time,power0,...`` is taken too. It drops readings
that equal the one before: what stays the same for longer than five usual steps is a gap here.
"""

import re
from collections.abc import Iterator
from typing import Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import files, journal_lines, recording
from energy_callbacks.importers.journal_lines import About
from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Samples
from energy_callbacks.importers.values import Moment, moment, number

NAME: Final = "Zeus"
_TIMES: Final = ("time", "timestamp")
_POWER: Final = re.compile(r"(?:gpu|power)_?(\d{0,3})(?:_power)?")
# Unix times of 2001 to 2096.
_EARLIEST_S, _LATEST_S = 1e9, 4e9


def recognises(log: Log) -> bool:
    """A line of a time and powers, with names or without."""
    return _indices(log) is not None


def _indices(log: Log) -> list[int] | None:
    """Numbers of the cards, one for each column but the first."""
    names = log.columns()
    if len(names) < 2:
        return None
    if names[0] in _TIMES:
        found = [_POWER.fullmatch(name) for name in names[1:]]
        return [int(match[1] or 0) for match in found if match] if all(found) else None
    values = [number(name) for name in names]
    if None in values or not _EARLIEST_S < (values[0] or 0.0) < _LATEST_S:
        return None
    return list(range(len(names) - 1))


def records(log: Log) -> Iterator[Record]:
    """See ``Importer``."""
    indices = _indices(log) or []
    samples, clock, damage = Samples(log.path), LogClock(), files.Damage()
    for place, line in enumerate(files.lines(log.path, damage, whole=True)):
        cells = files.cells(line)
        if not line.strip() or (place == 0 and cells and cells[0].lower() in _TIMES):
            continue
        found = _moment(cells[0]) if len(cells) == 1 + len(indices) else None
        if found is None:
            damage.places += 1
            continue
        t_s = clock.t_s(found)
        for index, power in zip(indices, cells[1:], strict=True):
            samples.add(f"gpu{index}", t_s, power).index = index
    about = About(program=NAME, name=log.path.stem, unix_s=0.0)
    lines = recording.recorded(log, about, samples, clock, damage)
    yield next(lines)
    message = "it drops readings that equal the one before, so that a steady stretch may be a gap"
    yield journal_lines.remark(NAME, message)
    yield from lines


def _moment(cell: str) -> Moment | None:
    at_s = number(cell)
    return moment(cell) if at_s is None else Moment(at_s, is_local=False)

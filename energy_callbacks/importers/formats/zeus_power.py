"""Reads files of older versions of Zeus' ``PowerMonitor``: Unix time, and power of each card in W.

Zeus writes no column names; files with a first line ``time,power0,...`` are accepted too. Zeus
drops readings that equal the previous one, so the file has no samples while the power stays the
same. A time without samples is reported as a gap if it is longer than five times the median time
between two samples.
"""

import re
from collections.abc import Iterator
from typing import Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import journal_lines, recording
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Layout, Samples
from energy_callbacks.importers.values import Moment, moment, number

NAME: Final = "Zeus"
_LAYOUT: Final = Layout(power=("power",))
_TIMES: Final = ("time", "timestamp")
_POWER: Final = re.compile(r"(?:gpu|power)_?(\d{0,3})(?:_power)?")
# Limits of plausible Unix times in the first column: the years 2001 to 2096.
_EARLIEST_S, _LATEST_S = 1e9, 4e9


def recognises(log: Log) -> bool:
    """Return whether the first line has a Unix time and powers, or names of such columns."""
    return _keys(log) is not None


def _keys(log: Log) -> list[str] | None:
    """Return a device key for each column after the first; ``None`` for another format."""
    names = log.columns()
    if len(names) < 2:
        return None
    if names[0] in _TIMES:
        matches = [_POWER.fullmatch(name) for name in names[1:]]
        keys = [f"gpu{int(match[1] or 0)}" for match in matches if match]
        return keys if all(matches) else None
    values = [number(name) for name in names]
    if None in values or not _EARLIEST_S < (values[0] or 0.0) < _LATEST_S:
        return None
    return [f"gpu{index}" for index in range(len(names) - 1)]


def records(log: Log) -> Iterator[Record]:
    """Yield the journal of the log; see ``Importer.records``."""
    samples, keys = Samples(log, _LAYOUT), _keys(log) or []
    for number_of_line, row in log.rows(samples.damage, ["time", *keys], complete_only=True):
        if number_of_line == 0 and row["time"].lower() in _TIMES:
            continue
        t_s = samples.t_s(_moment(row["time"]))
        if t_s is not None:
            for key in keys:
                samples.add(key, t_s, {"power": row[key]})
    message = (
        "Zeus leaves out readings that equal the one before, so a time of constant power "
        "may look like a gap"
    )
    header, remark = journal_lines.header(log, NAME), journal_lines.remark(NAME, message)
    yield from recording.recorded(log, header, samples, [remark])


def _moment(cell: str) -> Moment | None:
    at_s = number(cell)
    if at_s is None:
        return moment(cell)
    return Moment(at_s, is_local=False) if abs(at_s) < _LATEST_S else None

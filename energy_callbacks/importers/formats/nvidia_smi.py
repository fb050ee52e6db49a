"""Reads output of ``nvidia-smi --query-gpu=timestamp,power.draw,... --format=csv -lms 100``.

The first line has the names of the columns. Column names and cells may contain units. Files without
column names (nvidia-smi's option ``noheader``) are refused.
"""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.errors import JournalError
from energy_callbacks.importers import journal_lines, recording
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Layout, Samples
from energy_callbacks.importers.values import moment

NAME: Final = "nvidia-smi"
# Column names, as listed by ``nvidia-smi --help-query-gpu``.
_LAYOUT: Final = Layout(
    # ``power.draw`` equals the average or the instantaneous power, depending on the card's model.
    power=("power.draw", "power.draw.average", "power.draw.instant"),
    utilisation=("utilization.gpu",),
    memory_used=("memory.used",),
    temperature=("temperature.gpu",),
    clock=("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics"),
    index=("index",),
    name=("name", "gpu_name"),
    uuid=("uuid", "gpu_uuid"),
    limit=("power.limit",),
    memory_total=("memory.total",),
)
# Columns that identify a card, in order of preference.
_CARDS: Final = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id")
# Matches the timestamp at the start of a row. If the first line of a file matches, the file has no
# column names.
_NAMELESS: Final = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d")
# For each sample, nvidia-smi writes one row per card. Two consecutive rows belong to different
# samples if the time between them is more than this multiple of the time between rows of a sample.
_APART: Final = 20.0


def recognises(log: Log) -> bool:
    """Return whether the first line has nvidia-smi's column names, or starts with a timestamp."""
    columns = log.columns()
    has_names = "timestamp" in columns and not {*_LAYOUT.power, "memory.used"}.isdisjoint(columns)
    return has_names or bool(_NAMELESS.match(log.first_line))


def records(log: Log) -> Iterator[Record]:
    """Yield the journal of the log; see ``Importer.records``."""
    if _NAMELESS.match(log.first_line):
        raise JournalError(
            f"{log.path} has no line with the names of its columns; run nvidia-smi without "
            "noheader, or add the names that were queried as the first line"
        )
    samples, columns = Samples(log, _LAYOUT), log.columns()
    card_column = next((name for name in _CARDS if name in columns), None)
    keys: dict[str, str] = {}
    for _, row in log.rows(samples.damage, complete_only=True):
        if "timestamp" in map(str.lower, row.values()):
            continue  # the column names again, because outputs were concatenated
        t_s = samples.t_s(moment(row["timestamp"]))
        if t_s is not None:
            card = "" if card_column is None else row[card_column]
            samples.add(keys.setdefault(card, f"gpu{len(keys)}"), t_s, row)
    if card_column is None:
        _refuse_several(log, samples)
    yield from recording.recorded(log, journal_lines.header(log, NAME), samples)


def _refuse_several(log: Log, samples: Samples) -> None:
    """Raise ``JournalError`` if the rows seem to come from several cards.

    This function is called if no column identifies the card. nvidia-smi writes the rows of all
    cards at nearly the same time, so the rows of each sample form a group, and all groups have the
    same size.
    """
    for one in samples.devices.values():
        steps_s = np.diff(one.column("t_s"))
        if len(steps_s) and _comes_in_groups(steps_s):
            raise JournalError(
                f"{log.path} seems to contain several cards, but no column that distinguishes "
                "them; add index or uuid to the query of nvidia-smi"
            )


def _comes_in_groups(steps_s: NDArray[np.float64]) -> bool:
    short_s = float(np.quantile(steps_s, 0.25))
    is_long = steps_s > _APART * short_s
    sizes = np.diff(np.flatnonzero(is_long))
    if len(sizes) < 3 or sizes.min() < 2:
        return False
    size = np.median(sizes)
    is_short = size * short_s < np.median(steps_s[is_long]) / 2.0
    return bool(is_short and np.mean(sizes == size) > 0.9)

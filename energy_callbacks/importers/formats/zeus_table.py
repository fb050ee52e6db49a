"""Reads Zeus' tables of trainings: time per epoch and mean power by batch size and power limit.

The files ``summary_power_*.csv`` in the trace data of Zeus have the columns ``dataset``,
``network``, ``batch_size``, ``optimizer``, ``power_limit`` (W), ``time_per_epoch`` (s) and
``average_power`` (W). Each row is read as a run of one epoch. ``FILE.csv#12`` selects row 12; the
first row after the column names is row 1.
"""

from collections.abc import Iterator
from typing import Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.records import Device, Energy, Sensor
from energy_callbacks.importers import files
from energy_callbacks.importers import journal_lines as lines
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.recording import RELATIVE_ERROR
from energy_callbacks.importers.values import above_0, short_text
from energy_callbacks.sensing.estimation.power_intervals import MOST_POWER_W

NAME: Final = "Zeus"
_NEEDED: Final = ("time_per_epoch", "average_power")
_SETTINGS: Final = ("dataset", "network", "batch_size", "optimizer", "power_limit")
_MOST_EPOCH_S: Final = 365 * 86400.0

Row = dict[str, str]


def recognises(log: Log) -> bool:
    """Return whether the file has the columns ``time_per_epoch`` and ``average_power``."""
    return set(log.columns()) >= set(_NEEDED)


def records(log: Log) -> Iterator[Record]:
    """Yield the journal of the log; see ``Importer.records``."""
    damage = files.Damage()
    rows = _rows(log, damage)
    row = log.chosen(rows, _label)
    duration_s, power_w = (above_0(row[name]) or 0.0 for name in _NEEDED)
    energy_j = duration_s * power_w
    energy = Energy(
        energy_j=energy_j, systematic_j=RELATIVE_ERROR * energy_j, method="power", coverage=1.0
    )
    device = Device(
        key="gpu0", kind="gpu", scope="gpu", name="GPU", limit_w=above_0(row.get("power_limit"))
    )
    sensor = Sensor(name="mean power in a table of Zeus", relative_error=RELATIVE_ERROR)
    tags = {name: row[name][:200] for name in _SETTINGS if row.get(name)}
    yield lines.header(log, NAME, log.path.stat().st_mtime, name=_label(row), tags=tags)
    yield lines.device_line(device, {"power": sensor})
    yield from lines.damage_warnings(log, damage)
    yield lines.remark(NAME, "energy is time_per_epoch times average_power, of one epoch")
    yield lines.span("train", 0.0, duration_s, {"gpu0": energy})
    yield lines.totals(duration_s, {"gpu0": energy})


def _rows(log: Log, damage: files.Damage) -> dict[str, Row]:
    """Return the rows with plausible time and power, by row number as text."""
    rows = {}
    for number, row in log.rows(damage):
        duration_s, power_w = (above_0(row[name]) or 0.0 for name in _NEEDED)
        if 0.0 < duration_s < _MOST_EPOCH_S and 0.0 < power_w <= MOST_POWER_W:
            rows[str(number)] = row
        else:
            damage.places += 1
    return rows


def _label(row: Row) -> str:
    texts = (short_text(row.get(name)) for name in _SETTINGS)
    return " ".join(filter(None, texts)) or "epoch"

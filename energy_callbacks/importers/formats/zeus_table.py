"""Zeus' table of trainings: time of an epoch and mean power over batch size and power limit.

Columns of ``summary_power_*.csv`` in Zeus' traces: ``dataset``, ``network``, ``batch_size``,
``optimizer``, ``power_limit`` (W), ``time_per_epoch`` (s), ``average_power`` (W). Each row is a run
of one epoch, chosen by its number from 1: ``summary.csv#12``.
"""

from collections.abc import Iterator
from typing import Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.records import Channel, Device, Energy, Sensor
from energy_callbacks.importers import files
from energy_callbacks.importers import journal_lines as lines
from energy_callbacks.importers.detection import chosen
from energy_callbacks.importers.journal_lines import About
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.recording import RELATIVE_ERROR
from energy_callbacks.importers.values import above_0, words
from energy_callbacks.sensing.estimation.power_intervals import MOST_POWER_W

NAME: Final = "Zeus"
_NEEDED: Final = ("time_per_epoch", "average_power")
_SETTINGS: Final = ("dataset", "network", "batch_size", "optimizer", "power_limit")
_MOST_EPOCH_S: Final = 365 * 86400.0

Row = dict[str, str]


def recognises(log: Log) -> bool:
    """The columns of time and power."""
    return set(log.columns()) >= set(_NEEDED)


def records(log: Log) -> Iterator[Record]:
    """See ``Importer``."""
    damage = files.Damage()
    rows = _rows(log, damage)
    row = chosen(log, rows, {number: _named(row) for number, row in rows.items()})
    duration_s, power_w = (above_0(row[name]) or 0.0 for name in _NEEDED)
    energy_j = duration_s * power_w
    device = Device(
        key="gpu0", kind="gpu", scope="gpu", name="GPU", limit_w=above_0(row.get("power_limit"))
    )
    sensor = Sensor(name="mean power in a table of Zeus", relative_error=RELATIVE_ERROR)
    energy = {
        "gpu0": Energy(
            energy_j=energy_j,
            systematic_j=RELATIVE_ERROR * energy_j,
            method="power",
            coverage=1.0,
        )
    }
    tags = {name: row[name][:200] for name in _SETTINGS if row.get(name)}
    unix_s = log.path.stat().st_mtime
    yield lines.header(log, About(program=NAME, name=_named(row), unix_s=unix_s, tags=tags))
    yield journal.device_record(
        device, [Channel(device=device, quantity="power", kind="mean", sensor=sensor)]
    )
    yield from lines.of_damage(log, damage)
    yield lines.remark(NAME, "energy is time_per_epoch times average_power, of one epoch")
    yield lines.span("train", 0.0, duration_s, energy)
    yield lines.totals(duration_s, energy)


def _rows(log: Log, damage: files.Damage) -> dict[str, Row]:
    names, found = log.columns(), dict[str, Row]()
    for number, line in enumerate(files.lines(log.path, damage)):
        cells = files.cells(line)
        if number == 0 or not line.strip():
            continue
        row = dict(zip(names, cells, strict=False))
        duration_s, power_w = (above_0(row.get(name)) for name in _NEEDED)
        is_whole = len(cells) == len(names) and duration_s and power_w
        if is_whole and (duration_s or 0.0) < _MOST_EPOCH_S and (power_w or 0.0) <= MOST_POWER_W:
            found[str(number)] = row
        else:
            damage.places += 1
    return found


def _named(row: Row) -> str:
    told = (words(row.get(name)) for name in _SETTINGS)
    return " ".join(text for text in told if text) or "epoch"

"""CSV of ``nvidia-smi --query-gpu=timestamp,power.draw,... --format=csv[,nounits] -lms 100``.

The first line names the columns, with their units unless ``nounits`` was asked for; a cell may
have its unit too. Without that line (``noheader``) nobody can tell what a column is.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from energy_callbacks.accounting.journal import Record
from energy_callbacks.errors import JournalError
from energy_callbacks.report.importers import files, recording
from energy_callbacks.report.importers.journal_lines import About
from energy_callbacks.report.importers.log_clock import LogClock
from energy_callbacks.report.importers.protocol import Log
from energy_callbacks.report.importers.samples import DeviceSamples, Samples
from energy_callbacks.report.importers.values import (
    above_0,
    at_least_0,
    celsius,
    moment,
    share,
    words,
)
from energy_callbacks.units import bytes_from_mebibytes, hertz_from_megahertz

NAME: Final = "nvidia-smi"
# What tells cards apart, the first that is there; all are names of `nvidia-smi --help-query-gpu`.
_CARDS: Final = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id")
# The closest to what a card takes over time first: the plain one is one of the others, by model.
_POWERS: Final = ("power.draw", "power.draw.average", "power.draw.instant")
_CLOCKS: Final = ("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics")
_NAMELESS: Final = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d")
# Looks at all cards are so much further apart than the rows of one look.
_APART: Final = 20.0


def recognises(log: Log) -> bool:
    """Columns of a time and of a power, as nvidia-smi calls them."""
    names = _columns(log)
    has_names = "timestamp" in names and any(name in names for name in (*_POWERS, "memory.used"))
    return has_names or bool(_NAMELESS.match(log.first_line))


def records(log: Log) -> Iterator[Record]:
    """See ``Importer``."""
    if _NAMELESS.match(log.first_line):
        raise JournalError(
            f"{log.path} has no line that names its columns; let nvidia-smi write it without "
            "noheader, or put the names that it was asked for into a first line"
        )
    places = _columns(log)
    samples, clock, damage = Samples(log.path), LogClock(), files.Damage()
    card_at = next((places[name] for name in _CARDS if name in places), None)
    keys: dict[str, str] = {}
    for number, line in enumerate(files.lines(log.path, damage, whole=True)):
        cells = files.cells(line)
        if number == 0 or not line.strip() or _is_head(cells):
            continue
        found = moment(cells[places["timestamp"]]) if len(cells) == len(places) else None
        if found is None:
            damage.places += 1
            continue
        card = "" if card_at is None else cells[card_at]
        key = keys.setdefault(card, f"gpu{len(keys)}")
        row = {name: cells[place] for name, place in places.items()}
        _add(samples, key, clock.t_s(found), row)
    if card_at is None:
        _refuse_several(log, samples)
    about = About(program=NAME, name=log.path.stem, unix_s=0.0)
    yield from recording.recorded(log, about, samples, clock, damage)


def _columns(log: Log) -> dict[str, int]:
    """Places of the columns, by their names without units."""
    return {name.split(" [")[0]: place for place, name in enumerate(log.columns())}


def _is_head(cells: list[str]) -> bool:
    """Names again, where two files were put together."""
    return "timestamp" in (cell.lower() for cell in cells)


def _add(samples: Samples, key: str, t_s: float, row: Mapping[str, str]) -> None:
    device = samples.add(
        key,
        t_s,
        _first(row, _POWERS),
        utilisation=share(row.get("utilization.gpu")),
        memory_used_bytes=_mebibytes(at_least_0(row.get("memory.used"))),
        temperature_c=celsius(row.get("temperature.gpu")),
        clock_hz=_megahertz(above_0(_first(row, _CLOCKS))),
    )
    if device.index is None:
        _describe(device, row)


def _describe(device: DeviceSamples, row: Mapping[str, str]) -> None:
    index = at_least_0(row.get("index"))
    device.index = int(device.key[3:]) if index is None else int(index)
    device.name = words(row.get("name") or row.get("gpu_name")) or device.name
    device.uuid = words(row.get("uuid") or row.get("gpu_uuid"))
    device.limit_w = above_0(row.get("power.limit"))
    total = _mebibytes(above_0(row.get("memory.total")))
    device.memory_bytes = None if total is None else round(total)


def _first(row: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((row[name] for name in names if name in row), None)


def _mebibytes(value: float | None) -> float | None:
    return None if value is None else bytes_from_mebibytes(value)


def _megahertz(value: float | None) -> float | None:
    return None if value is None else hertz_from_megahertz(value)


def _refuse_several(log: Log, samples: Samples) -> None:
    """Rows of several cards that nothing tells apart come in groups, all of one size."""
    for device in samples.devices.values():
        steps_s = np.diff(device.t_s)
        if not len(steps_s):
            continue
        short_s = float(np.quantile(steps_s, 0.25))
        groups = np.diff(np.flatnonzero(steps_s > _APART * short_s))
        if len(groups) < 3 or groups.min() < 2:
            continue
        if np.mean(groups == np.median(groups)) > 0.9:
            raise JournalError(
                f"{log.path} seems to hold several cards, and no column that tells them apart; "
                "ask nvidia-smi for index or uuid too"
            )

"""CSV of ``nvidia-smi --query-gpu=timestamp,power.draw,... --format=csv[,nounits] -lms 100``.

The first line names the columns, with their units unless ``nounits`` was asked for; a cell may
have its unit too. Without that line (``noheader``) the columns cannot be identified.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.errors import JournalError
from energy_callbacks.importers import files, recording
from energy_callbacks.importers.journal_lines import About
from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import DeviceSamples, Samples
from energy_callbacks.importers.values import (
    above_0,
    celsius,
    clock_from_megahertz,
    index,
    moment,
    share,
    size_from_mebibytes,
    whole,
    words,
)

NAME: Final = "nvidia-smi"
# What identifies a card, the first that is there; all are names of `nvidia-smi --help-query-gpu`.
_CARDS: Final = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id")
# The closest to what a card takes over time first: the plain one is one of the others, by model.
_POWERS: Final = ("power.draw", "power.draw.average", "power.draw.instant")
_CLOCKS: Final = ("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics")
_NAMELESS: Final = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d")
# Samples of all cards are this much further apart than the rows of one sample.
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
    """Names again, if two files were put together."""
    return "timestamp" in (cell.lower() for cell in cells)


def _add(samples: Samples, key: str, t_s: float, row: Mapping[str, str]) -> None:
    device = samples.add(
        key,
        t_s,
        _first(row, _POWERS),
        utilisation=share(row.get("utilization.gpu")),
        memory_used_bytes=size_from_mebibytes(row.get("memory.used")),
        temperature_c=celsius(row.get("temperature.gpu")),
        clock_hz=clock_from_megahertz(_first(row, _CLOCKS)),
    )
    if device.index is None:
        _describe(device, row)


def _describe(device: DeviceSamples, row: Mapping[str, str]) -> None:
    told = index(row.get("index"))
    device.index = int(device.key[3:]) if told is None else told
    device.name = words(row.get("name") or row.get("gpu_name")) or device.name
    device.uuid = words(row.get("uuid") or row.get("gpu_uuid"))
    device.limit_w = above_0(row.get("power.limit"))
    device.memory_bytes = whole(size_from_mebibytes(row.get("memory.total")))


def _first(row: Mapping[str, str], names: Sequence[str]) -> str | None:
    return next((row[name] for name in names if name in row), None)


def _refuse_several(log: Log, samples: Samples) -> None:
    """Rows of several cards without an identifier come in short groups of one size."""
    for device in samples.devices.values():
        steps_s = np.diff(device.t_s)
        if len(steps_s) and _comes_in_groups(steps_s):
            raise JournalError(
                f"{log.path} seems to hold several cards, and no column that tells them apart; "
                "ask nvidia-smi for index or uuid too"
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

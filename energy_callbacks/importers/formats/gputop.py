"""gputop's JSON, and that of scripts with its field names: one card, several, ours.

* native (``gputop.py --stats F``): records of the card that is looked at, by ``gpu_index``;
* several cards (``F_multi_gpu.json`` beside it): ``multi_gpu_data`` in each record; it is read
  instead of the native file if it is there, because that one holds one card at a time;
* simple (``gpu_stats_*.json`` of AdamWPrune and of ``energy-callbacks run``): temperature as a
  number, ``training_metadata`` in the first record or in all.

MiB, per cent, degrees Celsius, W; 0 W is how all of them say that power is not known.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import files, journal_lines, recording
from energy_callbacks.importers.journal_lines import About
from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Samples
from energy_callbacks.importers.values import (
    above_0,
    celsius,
    clock_from_megahertz,
    index,
    moment,
    number,
    share,
    size_from_mebibytes,
    whole,
    words,
)

NAME: Final = "gputop"
_SEVERAL: Final = "_multi_gpu"
_START: Final = re.compile(r"\s*\[\s*(\{|\]?\s*$)")
_OF_A_CARD: Final = ("utilization", "memory_used", "power")
_CONFIGURED: Final = re.compile(r"(?:gpu_)?stats[_-](.+?)[_-]\d{8}[_-]\d{6}")
_VENDORS: Final = frozenset(("amd", "nvidia_desktop", "nvidia_jetson"))
# Of the training, what changes from record to record or has a place of its own.
_NO_TAGS: Final = frozenset(("training_command", "timestamp", "phase", "epoch", "batch"))
# The sensor of the chip itself, by its name on NVIDIA and AMD.
_CHIP: Final = ("GPU", "Edge", "edge", "Junction", "junction")


def recognises(log: Log) -> bool:
    """An array of records with a time and what a card says."""
    has_card = sum(f'"{name}"' in log.head for name in _OF_A_CARD) >= 2
    return bool(_START.match(log.head)) and '"timestamp"' in log.head and has_card


def records(log: Log) -> Iterator[Record]:
    """See ``Importer``."""
    path = log.path.with_name(f"{log.path.stem}{_SEVERAL}{log.path.suffix}")
    is_companion = not log.path.stem.endswith(_SEVERAL) and path.is_file()
    samples, clock, damage = Samples(log.path), LogClock(), files.Damage()
    metadata: dict[str, Any] = {}
    for record in files.objects(path if is_companion else log.path, damage):
        found = moment(record.get("timestamp"))
        if found is None:
            damage.places += 1
            continue
        told = record.get("training_metadata")
        if isinstance(told, dict) and not metadata:
            metadata = told
        t_s = clock.t_s(found)
        for card in _cards(record):
            _add(samples, t_s, card)
    lines = recording.recorded(log, _about(log.path, metadata), samples, clock, damage)
    yield next(lines)
    if is_companion:
        message = f"{path.name} was read instead of {log.path.name}: it holds all cards"
        yield journal_lines.remark(NAME, message)
    yield from lines


def _cards(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    several = record.get("multi_gpu_data")
    cards = several if isinstance(several, list) else [record]
    return (card for card in cards if isinstance(card, dict))


def _add(samples: Samples, t_s: float, card: Mapping[str, Any]) -> None:
    card_number, clocks = index(card.get("gpu_index")) or 0, card.get("clocks")
    device = samples.add(
        f"gpu{card_number}",
        t_s,
        card.get("power"),
        zero_is_known=False,
        utilisation=share(card.get("utilization")),
        memory_used_bytes=size_from_mebibytes(card.get("memory_used")),
        temperature_c=_celsius(card),
        clock_hz=clock_from_megahertz(
            clocks.get("gpu", clocks.get("sclk")) if isinstance(clocks, dict) else None
        ),
    )
    if device.index is None:
        device.index = card_number
        device.name = words(card.get("gpu_name")) or device.name
        device.limit_w = above_0(card.get("power_limit"))
        device.memory_bytes = whole(size_from_mebibytes(card.get("memory_total")))


def _celsius(card: Mapping[str, Any]) -> float | None:
    several = card.get("temperatures")
    if isinstance(several, dict):
        return next((found for name in _CHIP if (found := celsius(several.get(name)))), None)
    return celsius(card.get("temperature"))


def _about(path: Path, metadata: Mapping[str, Any]) -> About:
    tags = {
        str(key)[:60]: str(value)[:200]
        for key, value in metadata.items()
        if key not in _NO_TAGS and (isinstance(value, str | bool) or number(value) is not None)
    }
    match = _CONFIGURED.match(path.stem)
    is_named = match is not None and match[1] not in _VENDORS
    return About(
        program=NAME,
        name=match[1] if match and is_named else path.stem,
        unix_s=0.0,
        command=words(metadata.get("training_command")),
        tags=tags,
    )

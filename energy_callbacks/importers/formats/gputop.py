"""Reads JSON of gputop, and of scripts that use the same field names.

The format has three variants:

* native (``gputop.py --stats F``): each record has ``gpu_index`` and the values of one card, the
  one that gputop showed at the time of the record;
* several cards (``F_multi_gpu.json`` in the same folder): each record has ``multi_gpu_data``. If
  this file exists, it is read instead of the native file, because it has the values of all cards;
* simple (``gpu_stats_*.json`` of AdamWPrune and of ``energy-callbacks run``): the temperature is a
  number, and the first record or every record has ``training_metadata``.

Units are MiB, per cent, degrees Celsius and W. All variants write 0 W for unknown power.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import files, journal_lines, recording
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Layout, Samples
from energy_callbacks.importers.values import celsius, index, moment, number, short_text

NAME: Final = "gputop"
_LAYOUT: Final = Layout(
    power=("power",),
    utilisation=("utilization",),
    memory_used=("memory_used",),
    temperature=("temperature",),
    clock=("clock",),
    name=("gpu_name",),
    limit=("power_limit",),
    memory_total=("memory_total",),
    zero_is_known=False,
)
# End of the file name (without suffix) of the variant for several cards.
_SEVERAL: Final = "_multi_gpu"
# Start of a JSON array of objects, or an empty array.
_START: Final = re.compile(r"\s*\[\s*(\{|\]?\s*$)")
# Fields of a card, by which the format is recognised.
_OF_A_CARD: Final = ("utilization", "memory_used", "power")
# Pattern of a file name. Its group is the name of a configuration, or one of ``_VENDORS``.
_CONFIGURED: Final = re.compile(r"(?:gpu_)?stats[_-](.+?)[_-]\d{8}[_-]\d{6}")
_VENDORS: Final = frozenset(("amd", "nvidia_desktop", "nvidia_jetson"))
# Metadata that does not become tags, because it differs between records or has its own field in
# the journal.
_NO_TAGS: Final = frozenset(("training_command", "timestamp", "phase", "epoch", "batch"))
# Names of the temperature sensor of the chip on NVIDIA and AMD cards, in order of preference.
_CHIP: Final = ("GPU", "Edge", "edge", "Junction", "junction")


def recognises(log: Log) -> bool:
    """Return whether the file begins with records that have a time and two fields of a card."""
    has_card = sum(f'"{name}"' in log.head for name in _OF_A_CARD) >= 2
    return bool(_START.match(log.head)) and '"timestamp"' in log.head and has_card


def records(log: Log) -> Iterator[Record]:
    """Yield the journal of the log; see ``Importer.records``."""
    path = log.path.with_name(f"{log.path.stem}{_SEVERAL}{log.path.suffix}")
    has_companion = not log.path.stem.endswith(_SEVERAL) and path.is_file()
    samples, metadata = Samples(log, _LAYOUT), dict[str, Any]()
    for record in files.objects(path if has_companion else log.path, samples.damage):
        t_s = samples.t_s(moment(record.get("timestamp")))
        if t_s is None:
            continue
        stated = record.get("training_metadata")
        if isinstance(stated, dict) and not metadata:
            metadata = stated
        for card in _cards(record):
            samples.add(f"gpu{index(card.get('gpu_index')) or 0}", t_s, card)
    message = f"{path.name} was read instead of {log.path.name}, because it contains all cards"
    notes = [journal_lines.remark(NAME, message)] if has_companion else []
    yield from recording.recorded(log, _header(log, metadata), samples, notes)


def _cards(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of each card, with clock and temperature moved to the top level."""
    several = record.get("multi_gpu_data")
    for card in several if isinstance(several, list) else [record]:
        if isinstance(card, dict):
            row, clocks, temperatures = dict(card), card.get("clocks"), card.get("temperatures")
            clocks = clocks if isinstance(clocks, dict) else {}
            row["clock"] = clocks.get("gpu", clocks.get("sclk"))
            if isinstance(temperatures, dict):
                row["temperature"] = next(filter(celsius, map(temperatures.get, _CHIP)), None)
            yield row


def _header(log: Log, metadata: Mapping[str, Any]) -> Record:
    tags = {
        str(key)[:60]: str(value)[:200]
        for key, value in metadata.items()
        if key not in _NO_TAGS and (isinstance(value, str | bool) or number(value) is not None)
    }
    match = _CONFIGURED.match(log.path.stem)
    return journal_lines.header(
        log,
        NAME,
        name=match[1] if match and match[1] not in _VENDORS else None,
        command=short_text(metadata.get("training_command")),
        tags=tags,
    )

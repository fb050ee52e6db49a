"""JSON of AdamWPrune's ``monitor_gpu.py``: memory and load of cards, without power."""

import re
from collections.abc import Iterator
from typing import Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import files, journal_lines, recording
from energy_callbacks.importers.journal_lines import About
from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Samples
from energy_callbacks.importers.values import (
    Moment,
    index,
    number,
    share,
    size_from_mebibytes,
    whole,
    words,
)

NAME: Final = "monitor_gpu.py"
_START: Final = re.compile(r'\s*\{\s*"model"')
_CLAIM: Final = re.compile(r'"total_samples"\s*:\s*(\d{1,18})')
_TAIL_BYTES: Final = 4096


def recognises(log: Log) -> bool:
    """An object with samples of memory."""
    return bool(_START.match(log.head)) and '"samples"' in log.head and '"memory_mb"' in log.head


def records(log: Log) -> Iterator[Record]:
    """See ``Importer``."""
    samples, clock, damage, count = Samples(log.path), LogClock(), files.Damage(), 0
    model = None
    for record in files.objects(log.path, damage):
        at_s = number(record.get("timestamp"))
        memory_bytes = size_from_mebibytes(record.get("memory_mb"))
        if at_s is None or memory_bytes is None:
            damage.places += 1
            continue
        count += 1
        card = index(record.get("gpu_id")) or 0
        device = samples.add(
            f"gpu{card}",
            clock.t_s(Moment(at_s, is_local=False)),
            None,
            memory_used_bytes=memory_bytes,
            utilisation=share(record.get("gpu_utilization")),
        )
        if device.index is None:
            device.index = card
            device.memory_bytes = whole(size_from_mebibytes(record.get("memory_total_mb")))
            model = model or words(record.get("model"))
    about = About(program=NAME, name=model or log.path.stem, unix_s=0.0)
    lines = recording.recorded(log, about, samples, clock, damage)
    # Its times are seconds since it began: when that was, only the file system knows.
    yield next(lines) | {"unix_s": log.path.stat().st_mtime - samples.end_s}
    yield from _claims(log, count)
    yield from lines


def _claims(log: Log, count: int) -> Iterator[Record]:
    with log.path.open("rb") as file:
        file.seek(max(log.path.stat().st_size - _TAIL_BYTES, 0))
        claim = _CLAIM.search(file.read().decode("utf-8", "replace"))
    if claim and int(claim[1]) != count:
        yield journal_lines.warning(
            "log_cut_off", f"{log.path.name} claims to hold {claim[1]} samples and holds {count}."
        )

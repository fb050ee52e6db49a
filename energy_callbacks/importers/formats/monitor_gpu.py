"""Reads JSON of AdamWPrune's ``monitor_gpu.py``: memory and utilisation of cards, no power."""

import re
from collections.abc import Iterator
from typing import Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import files, journal_lines, recording, values
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Layout, Samples

NAME: Final = "monitor_gpu.py"
_LAYOUT: Final = Layout(
    utilisation=("gpu_utilization",), memory_used=("memory_mb",), memory_total=("memory_total_mb",)
)
_START: Final = re.compile(r'\s*\{\s*"model"')
_CLAIM: Final = re.compile(r'"total_samples"\s*:\s*(\d{1,18})')
_TAIL_BYTES: Final = 4096


def recognises(log: Log) -> bool:
    """Return whether the file is a JSON object with samples of memory."""
    return bool(_START.match(log.head)) and '"samples"' in log.head and '"memory_mb"' in log.head


def records(log: Log) -> Iterator[Record]:
    """Yield the journal of the log; see ``Importer.records``."""
    samples, count, model = Samples(log, _LAYOUT), 0, None
    for record in files.objects(log.path, samples.damage):
        at_s = values.number(record.get("timestamp"))
        if at_s is None or values.size_from_mebibytes(record.get("memory_mb")) is None:
            samples.damage.places += 1
            continue
        count += 1
        model = model or values.short_text(record.get("model"))
        t_s = samples.clock.t_s(values.Moment(at_s, is_local=False))
        samples.add(f"gpu{values.index(record.get('gpu_id')) or 0}", t_s, record)
    # Times are seconds since the beginning of the log. The file's modification time is taken as the
    # wall time of the last sample.
    began_unix_s = log.path.stat().st_mtime - samples.end_s
    header = journal_lines.header(log, NAME, began_unix_s, name=model)
    yield from recording.recorded(log, header, samples, _claims(log, count))


def _claims(log: Log, count: int) -> Iterator[Record]:
    """Yield a warning if the number of samples stated at the end of the file is not ``count``."""
    with log.path.open("rb") as file:
        file.seek(max(log.path.stat().st_size - _TAIL_BYTES, 0))
        claim = _CLAIM.search(file.read().decode("utf-8", "replace"))
    if claim and int(claim[1]) != count:
        yield journal_lines.warning(
            "log_cut_off",
            f"{log.path.name} states that it has {claim[1]} samples, but contains {count}.",
        )

"""The energy that earlier attempts of a run have used, so that totals continue after a restart.

It is read from the journals in the run folder and in the folder that the checkpoint names. If the
journals are gone, the checkpoint itself contains the energy used when it was written.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.core import json_lines
from energy_callbacks.core.errors import JournalError

logger = logging.getLogger("energy_callbacks")

Joules = Mapping[str, float]

# How lines of the journal begin; of the last two kinds only the newest line is used.
_DEVICE: Final = '{"type":"device"'
_NEWEST: Final = ('{"type":"series"', '{"type":"totals"')
_PREFIX: Final = len(_NEWEST[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousAttempts:
    """The energy of earlier attempts of a run, as one process has measured it.

    Attributes:
        energy_j: J by scope, ``gpu`` and ``host``; a scope that was never measured is absent.
        folder: the folder of the run before it continued in this one; ``None`` if it did not move.
        linked_j: the part of ``energy_j`` that was used in other folders.
    """

    energy_j: Joules = field(default_factory=dict)
    folder: str | None = None
    linked_j: Joules = field(default_factory=dict)

    def of(self, scope: str) -> float:
        """Joules of a scope, ``gpu``, ``host`` or ``total``."""
        return sum(self.energy_j.values()) if scope == "total" else self.energy_j.get(scope, 0.0)


def usage_before(
    folder: Path, number: int, run_id: str, process: TrainingProcess, state: Mapping[str, Any]
) -> PreviousAttempts:
    """Return the energy that a run has used before an attempt.

    Logs a warning and returns nothing if journals or checkpoint cannot be read.

    Args:
        folder: run folder.
        number: of the attempt that begins.
        run_id: of the run.
        process: the process that asks; only the first one of a host gets figures.
        state: of the meter, from a checkpoint; may be empty.
    """
    try:
        return _usage_before(folder, number, run_id, process, state)
    except Exception as error:  # noqa: BLE001 - a curve that begins at 0 does no harm
        logger.warning("what earlier attempts have used cannot be read: %r", error)
        return PreviousAttempts()


def _usage_before(
    folder: Path, number: int, run_id: str, process: TrainingProcess, state: Mapping[str, Any]
) -> PreviousAttempts:
    if process.local_rank:
        return PreviousAttempts()
    here = [one for one in _heads(folder, run_id, process) if one[1]["attempt"] < number]
    if here:
        return PreviousAttempts(energy_j=_total_j(here))
    # The checkpoint was written by the first rank, so its energies are those of that rank.
    stated = dict(state.get("energy_j") or {}) if process.rank == 0 else {}
    before = str(state.get("folder") or "")
    there = _heads(Path(before), run_id, process) if before and Path(before) != folder else []
    found = _total_j(there)
    # A journal also covers the time after its checkpoint, but journals may have been deleted.
    used_j = {key: max(stated.get(key, 0.0), found.get(key, 0.0)) for key in {*stated, *found}}
    link = os.path.relpath(Path(before).resolve(), folder.resolve()) if there else None
    return PreviousAttempts(energy_j=used_j, folder=link, linked_j=used_j)


def _heads(folder: Path, run_id: str, process: TrainingProcess) -> list[tuple[Path, Record]]:
    """Journals of a run with devices that this process is responsible for now, oldest first.

    Returns:
        Path and header of each.
    """
    found = []
    for path in journal.find(folder):
        try:
            record = journal.header(path)
        except (JournalError, OSError):
            continue
        rank = record.get("rank", 0)
        # Rank 0 is also responsible for ranks that are not the first of a host any more.
        is_gone = rank >= process.world_size or rank % process.local_world_size != 0
        is_mine = rank == process.rank or (process.rank == 0 and is_gone)
        if record.get("run_id") == run_id and not record.get("local_rank") and is_mine:
            found.append((path, record))
    return found


def _total_j(heads: Sequence[tuple[Path, Record]]) -> Joules:
    """Joules of journals by scope, with those that the run had used before in other folders."""
    links = (head.get("before") or {} for _, head in heads)
    before = (link.get("energy_j") or {} for link in links)
    return _sum([*(_used_j(path, head) for path, head in heads), *before])


def _used_j(path: Path, head: Record) -> Joules:
    """Joules of one journal by scope, without devices that are part of other devices."""
    devices, row, totals = _ends(path)
    columns = head.get("columns") or list(journal.COLUMNS)
    at = columns.index("energy_j")
    used_j = {key: values[at] for key, values in row.get("rows", {}).items() if len(values) > at}
    for key, energy in totals.get("energy", {}).items():
        used_j[key] = energy["energy_j"] if energy["energy_j"] is not None else used_j.get(key)
    known = {key: value for key, value in used_j.items() if value is not None and key in devices}
    return _sum(
        {devices[key]["scope"]: value}
        for key, value in known.items()
        if devices[key]["scope"] is not None and devices[key]["parent"] not in known
    )


def _ends(path: Path) -> tuple[dict[str, Record], Record, Record]:
    """Return the devices of a journal, its newest ``series`` line and its ``totals``.

    The journal of a day has about 100,000 lines, so only these are parsed.
    """
    devices, newest = [], {}
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith(_DEVICE):
                devices.append(line)
            elif line.startswith(_NEWEST) and line.endswith("\n"):
                newest[line[:_PREFIX]] = line
    found = list(json_lines.parsed([*devices, *newest.values()]))
    last = {record["type"]: record for record in found}
    named = {r["device"]["key"]: r["device"] for r in found if r["type"] == "device"}
    return named, last.get("series", {}), last.get("totals", {})


def _sum(parts: Iterable[Joules]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for scope, used_j in part.items():
            sums[scope] = sums.get(scope, 0.0) + used_j
    return sums

"""Finds the energy that earlier attempts of a run used, so that totals continue after a restart.

The energy is read from the journals of the run in the run folder. If there are none, the larger of
two energies is used for each scope: the energy in the journals of the folder that the checkpoint
names, and the energy in the checkpoint, which covers the time until the checkpoint was written.
"""

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
from energy_callbacks.core.guard import logger, pass_on_signals
from energy_callbacks.sensing.scopes import SCOPES, Part, in_sum

Joules = Mapping[str, float]

# Beginnings of the journal lines that are read. For each beginning in ``_NEWEST``, only the last
# line is used. ``_PREFIX`` is the length of each beginning in ``_NEWEST``.
_DEVICE: Final = '{"type":"device"'
_NEWEST: Final = ('{"type":"series"', '{"type":"totals"')
_PREFIX: Final = len(_NEWEST[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousAttempts:
    """The energy of earlier attempts that one process adds to its own energy.

    Attributes:
        energy_j: energy of these attempts, J by scope (``scopes.SCOPES``); a scope that was never
            measured is absent.
        folder: previous run folder, as a path relative to the new run folder; ``None`` if no
            journal in the previous run folder was read.
        linked_j: the part of ``energy_j`` that no journal in the new run folder contains, J by
            scope.
    """

    energy_j: Joules = field(default_factory=dict)
    folder: str | None = None
    linked_j: Joules = field(default_factory=dict)

    def of(self, scope: str) -> float:
        """Return the energy of a scope, J; 0 if unknown."""
        return self.energy_j.get(scope, 0.0)


def usage_before(
    folder: Path, number: int, run_id: str, process: TrainingProcess, state: Mapping[str, Any]
) -> PreviousAttempts:
    """Return the energy of earlier attempts that this process adds to its own.

    If an exception occurs, a warning is logged and the result is empty.

    Args:
        folder: run folder.
        number: number of the attempt that begins.
        run_id: id of the run.
        process: this process. If it is not the first process of its host, the result is empty.
        state: state of the meter from a checkpoint; may be empty.
    """
    if process.local_rank:
        return PreviousAttempts()
    try:
        here = [one for one in _heads(folder, run_id, process) if one[1]["attempt"] < number]
        if here:
            return PreviousAttempts(energy_j=_total_j(here))
        # Rank 0 wrote the checkpoint, so the checkpoint contains only the energy of rank 0.
        stated = with_total(state.get("energy_j") or {}) if process.rank == 0 else {}
        before = str(state.get("folder") or "")
        there = _heads(Path(before), run_id, process) if before and Path(before) != folder else []
        found = _total_j(there)
        # Journals also cover the time after the checkpoint, but some may have been deleted.
        # Therefore the larger energy is used.
        used_j = {key: max(stated.get(key, 0.0), found.get(key, 0.0)) for key in {*stated, *found}}
        link = os.path.relpath(Path(before).resolve(), folder.resolve()) if there else None
        return PreviousAttempts(energy_j=used_j, folder=link, linked_j=used_j)
    except Exception as error:  # noqa: BLE001 - totals then begin at 0
        pass_on_signals()
        logger.warning("the energy of earlier attempts cannot be read: %r", error)
        return PreviousAttempts()


def _heads(folder: Path, run_id: str, process: TrainingProcess) -> list[tuple[Path, Record]]:
    """Return the journals whose energy this process adds to its own, oldest first.

    Returns:
        Path and header of each journal.
    """
    found = []
    for path in journal.find(folder):
        try:
            record = journal.header(path)
        except (JournalError, OSError):
            continue
        rank = record.get("rank", 0)
        # Rank 0 also adds journals of ranks that no longer exist or are no longer the first rank of
        # a host.
        is_gone = rank >= process.world_size or rank % process.local_world_size != 0
        is_mine = rank == process.rank or (process.rank == 0 and is_gone)
        if record.get("run_id") == run_id and not record.get("local_rank") and is_mine:
            found.append((path, record))
    return found


def _total_j(heads: Sequence[tuple[Path, Record]]) -> Joules:
    """Return the energy of journals, and of previous folders that they name, J by scope."""
    links = (head.get("before") or {} for _, head in heads)
    before = (with_total(link.get("energy_j") or {}) for link in links)
    return _sum([*(_used_j(path, head) for path, head in heads), *before])


def _used_j(path: Path, head: Record) -> Joules:
    """Return the energy of one journal, J by scope."""
    devices, row, totals = _ends(path)
    columns = head.get("columns") or list(journal.COLUMNS)
    at = columns.index("energy_j")
    used_j = {key: values[at] for key, values in row.get("rows", {}).items() if len(values) > at}
    for key, energy in totals.get("energy", {}).items():
        used_j[key] = energy["energy_j"] if energy["energy_j"] is not None else used_j.get(key)
    known = {key: value for key, value in used_j.items() if value is not None and key in devices}
    parts = {key: Part(devices[key]["scope"], devices[key]["parent"]) for key in known}
    return _sum({scope: known[key]} for scope in SCOPES for key in in_sum(scope, parts))


def with_total(energy_j: Joules) -> Joules:
    """Return energies by scope with their total: GPUs and host, unless the total is stated.

    Older versions of this package did not write the total.
    """
    return {"total": sum(energy_j.values()), **energy_j} if energy_j else {}


def _ends(path: Path) -> tuple[dict[str, Record], Record, Record]:
    """Return the devices of a journal by key, its last ``series`` line and its ``totals`` line.

    A missing line becomes an empty record. Other lines are not parsed, because the journal of a
    training of one day has about 100,000 lines.
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

"""Groups the journals of a run, and finds the process that measures each physical device.

* Journals of one run only: a folder may hold older runs, the newest wins. Hosts of one launch that
  share no folder have named one run each: these are one.
* Attempts follow each other; the pauses between them are left out of every time axis.
* A physical device is its host and UUID (its host and key if it has none). However many ranks
  of an attempt wrote it down, the lowest rank that knows its energy owns it, unless it died and
  another went on.
* A device whose parent is there too is listed and not added: the parent's energy contains it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total
from energy_callbacks.core.records import Energy
from energy_callbacks.report.collect.process import ProcessJournal, energies

# Hosts of one launch begin when the slowest is ready, minutes later at most; the address and port
# that name a launch may serve again for the next one.
_LAUNCH_S = 300.0
# A rank that was killed is silent since the row before: its neighbours end within moments, unless
# they wait for it until a time limit.
_LAST_LINES_S = 5.0


class Identity(NamedTuple):
    """What identifies a physical device across journals."""

    host: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedDevice:
    """One physical device in one attempt, as its owner saw it.

    Attributes:
        record: the ``device`` line.
        energy: over the whole attempt.
        counted_in: key of the parent that already contains the energy.
        notes: what all processes of the attempt noted of it.
    """

    identity: Identity
    key: str
    owner: ProcessJournal
    record: Record
    energy: Energy
    counted_in: str | None
    notes: tuple[str, ...] = ()

    @property
    def is_counted(self) -> bool:
        """Whether its energy is one that is added up."""
        return self.counted_in is None and self.record["device"]["scope"] is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedAttempt:
    """One start of the training, over all its processes.

    Attributes:
        offset_s: where it begins on the time axis of the run.
        processes: by rank; one leads (phases and steps are in its time).
    """

    number: int
    offset_s: float
    processes: tuple[ProcessJournal, ...]
    owned: tuple[OwnedDevice, ...]

    @property
    def lead(self) -> ProcessJournal:
        """The process of the lowest rank that did not die long before the others."""
        return max(self.processes, key=lambda one: _outlives(one, self.processes[0]))

    def start_of(self, process: ProcessJournal) -> float:
        """Where the zero of a process lies on the time axis of the run."""
        first_unix_s = min(one.unix_s for one in self.processes)
        return self.offset_s + process.unix_s - first_unix_s


def newest_run(processes: Sequence[ProcessJournal]) -> tuple[list[ProcessJournal], int]:
    """The journals of the run that began last, and how many other runs there are."""
    newest = max(processes, key=lambda process: process.unix_s)
    launched = [newest, *(one for one in processes if _is_one_launch(one, newest))]
    run_id = min(launched, key=lambda process: process.rank).run_id
    run = [process for process in processes if process.run_id == run_id]
    others = [process for process in processes if process.run_id != run_id]
    beside = []
    for one in others:
        partner = next((other for other in run if _is_one_launch(one, other)), None)
        if partner is not None:
            beside.append(replace(one, header=one.header | {"attempt": partner.attempt}))
    known = {process.run_id for process in beside}
    return run + beside, len({process.run_id for process in others} - known)


def _is_one_launch(one: ProcessJournal, other: ProcessJournal) -> bool:
    """Whether two hosts that share no folder have begun the same thing: each named its own run."""
    launch = one.header.get("launch")
    is_same = launch is not None and launch == other.header.get("launch")
    return is_same and one.host != other.host and abs(one.unix_s - other.unix_s) < _LAUNCH_S


def merge(processes: Iterable[ProcessJournal]) -> list[MergedAttempt]:
    """The attempts of one run, oldest first, each device owned once."""
    groups: dict[tuple[int, int], list[ProcessJournal]] = {}
    for process in processes:
        groups.setdefault((-process.folders_back, process.attempt), []).append(process)
    attempts: list[MergedAttempt] = []
    offset_s = 0.0
    is_moved = any(folders_back for folders_back, _ in groups)
    for count, (place, group) in enumerate(sorted(groups.items()), start=1):
        number = count if is_moved else place[1]
        ordered = tuple(sorted(group, key=lambda process: (process.rank, process.host)))
        attempt = MergedAttempt(
            number=number, offset_s=offset_s, processes=ordered, owned=tuple(_owned(ordered))
        )
        attempts.append(attempt)
        offset_s = max(attempt.start_of(process) + process.end_s for process in ordered)
    return attempts


def _owned(processes: Sequence[ProcessJournal]) -> list[OwnedDevice]:
    chosen: dict[Identity, OwnedDevice] = {}
    lines: dict[Identity, list[Record]] = {}
    for process in processes:
        for key, record in process.devices.items():
            candidate = _claim(process, key, record)
            lines.setdefault(candidate.identity, []).append(record["device"])
            present = chosen.get(candidate.identity)
            if present is None or _knows_more(candidate, present):
                chosen[candidate.identity] = candidate
    noted = (replace(one, notes=_notes(lines[one.identity])) for one in chosen.values())
    return [_without_parent(device, chosen.values()) for device in noted]


def _claim(process: ProcessJournal, key: str, record: Record) -> OwnedDevice:
    return OwnedDevice(
        identity=Identity(process.host, record["device"]["uuid"] or key),
        key=key,
        owner=process,
        record=record,
        energy=energy_of(process, key),
        counted_in=record["device"]["parent"],
    )


def _notes(lines: Sequence[Record]) -> tuple[str, ...]:
    """What the ``device`` lines of all processes say of one device, each thing once."""
    notes = dict.fromkeys(note for line in lines for note in line["notes"])
    count = max(line.get("instance_count", 0) for line in lines)
    if not count:
        return tuple(notes)
    named = [set(line.get("instances", ())) for line in lines]
    used = len(set().union(*named)) if all(named) else 0
    share = f"{used} of its {count} MIG instances {'is' if used == 1 else 'are'} yours"
    return (f"whole card: {share if used else f'shared by its {count} MIG instances'}", *notes)


def _knows_more(candidate: OwnedDevice, present: OwnedDevice) -> bool:
    if candidate.energy.energy_j is None:
        return False
    return present.energy.energy_j is None or _outlives(candidate.owner, present.owner)


def _outlives(one: ProcessJournal, other: ProcessJournal) -> bool:
    """Whether a process went on, for longer than any last line takes, after another had died."""
    after_s = one.unix_s + one.end_s - other.unix_s - other.end_s
    return other.totals is None and after_s > _LAST_LINES_S


def _without_parent(device: OwnedDevice, others: Iterable[OwnedDevice]) -> OwnedDevice:
    """The device itself, free of its parent if that is not there or knows no energy."""
    has_parent = any(
        other.key == device.counted_in
        and other.identity.host == device.identity.host
        and other.energy.energy_j is not None
        for other in others
    )
    return device if has_parent else replace(device, counted_in=None)


def energy_of(process: ProcessJournal, key: str) -> Energy:
    """Energy of a device over an attempt: its totals, else as far as its lines go."""
    stated = energies(process.totals["energy"]).get(key) if process.totals else None
    if stated is not None and stated.energy_j is not None:
        return stated
    return _energy_so_far(process, key)


def _energy_so_far(process: ProcessJournal, key: str) -> Energy:
    """The newest cumulative energy of an attempt without totals, with the quality last written."""
    spans = [span for span in process.spans if key in span.energy]
    closed = total(
        [span.energy[key] for span in spans], [span.end_s - span.start_s for span in spans]
    )
    stated = energies(process.so_far).get(key, UNKNOWN)
    known = max(closed, stated, key=lambda energy: energy.energy_j or 0.0)
    newest_j = process.last_energy_j(key)
    if newest_j is None:
        return known
    if known.energy_j is None:
        return _unqualified(process, key, newest_j)
    if known.energy_j >= newest_j:
        return known
    share = newest_j / known.energy_j if known.energy_j > 0.0 else 1.0
    return replace(
        known,
        energy_j=newest_j,
        systematic_j=known.systematic_j * share,
        coverage=known.coverage * _reached(process, key),
    )


def _unqualified(process: ProcessJournal, key: str, energy_j: float) -> Energy:
    """An energy of which only the sensor's own figures are known."""
    sensors = process.devices[key]["sensors"].values()
    relative = max((sensor["relative_error"] for sensor in sensors), default=0.0)
    return Energy(
        energy_j=energy_j,
        systematic_j=relative * energy_j,
        method="cumulative series",
        coverage=_reached(process, key),
    )


def _reached(process: ProcessJournal, key: str) -> float:
    """Share of the attempt that the newest energy of a device covers: sensors lag behind."""
    seen_s = process.columns[key].seen_s
    return min(float(np.nanmax(seen_s)) / process.end_s, 1.0) if process.end_s else 0.0

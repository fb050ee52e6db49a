"""Groups the journals of a run into attempts, and assigns each physical device to one process.

* Only journals of one run are used: the newest run, if a folder contains several. Hosts that train
  together without a shared folder have different run ids; their journals are treated as one run.
* Attempts follow each other in time; the pauses between them are left out of all time axes.
* A physical device is identified by host and UUID, or by host and key if it has no UUID. Its owner
  is the rank from whose journal its energy is read: the lowest rank that knows the energy. If that
  rank died and another rank continued, the owner is the rank that continued.
* A device is listed, but left out of sums that include a device whose energy contains its own
  (``sensing.scopes``). A sensor of the whole machine contains the devices of all ranks of its host.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total_of_neighbours
from energy_callbacks.core.records import Energy
from energy_callbacks.report.collect.process import ProcessJournal, energies
from energy_callbacks.sensing.scopes import SCOPES, Part, containers, in_sum

# Processes on different hosts belong to the same launch of a training only if they start within
# this time of each other, in seconds. Later launches may have the same launch id, because they may
# reuse the address and port from which the id is computed.
_LAUNCH_S = 300.0
# After a rank died, another rank counts as continuing if its journal ends more than this time, in
# seconds, after the journal of the dead rank. Usually all other ranks end within a few seconds.
_LAST_LINES_S = 5.0


class Identity(NamedTuple):
    """Identifies a physical device; ``name`` is its UUID, or its key if it has none."""

    host: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedDevice:
    """One physical device in one attempt, as reported by the process that owns it.

    Attributes:
        identity: host and name, which are the same in all journals.
        key: key of the device in the journal of ``owner``.
        owner: process from whose journal the energy is read.
        record: the ``device`` line in the journal of ``owner``.
        energy: energy of the device over the whole attempt.
        counted_in: key of the device whose energy contains that of this device; ``None`` if
            there is no such device with known energy.
        sums: the scopes in whose sums the energy of the device is included (``scopes.SCOPES``).
        notes: notes about the device from all processes of the attempt.
    """

    identity: Identity
    key: str
    owner: ProcessJournal
    record: Record
    energy: Energy
    counted_in: str | None = None
    sums: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def properties(self) -> Record:
        """Fields of the device, named as in ``core.records.Device``."""
        properties: Record = self.record["device"]
        return properties

    @property
    def is_machine(self) -> bool:
        """Whether this is a sensor of the whole machine."""
        return bool(self.properties["scope"] == "machine")

    def part(self, known: Collection[str]) -> Part:
        """Return what sums need to know; a parent counts only if it is in ``known``."""
        parent = self.properties["parent"]
        return Part(self.properties["scope"], parent if parent in known else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedAttempt:
    """One start of the training, with all its processes.

    Attributes:
        number: number of the attempt in the run.
        offset_s: start of the attempt on the time axis of the run, in seconds.
        processes: journals in order of rank.
        owned: the devices of the attempt, each device once.
    """

    number: int
    offset_s: float
    processes: tuple[ProcessJournal, ...]
    owned: tuple[OwnedDevice, ...]

    @property
    def counted(self) -> Iterator[OwnedDevice]:
        """The devices whose energies are included in the total."""
        return (device for device in self.owned if "total" in device.sums)

    @property
    def lead(self) -> ProcessJournal:
        """The lead process: its phases and steps are those of the attempt.

        It is the process of the lowest rank. If that process died and other processes continued,
        the lead process is the lowest rank of those that continued.
        """
        return max(self.processes, key=lambda one: _outlives(one, self.processes[0]))

    def start_of(self, process: ProcessJournal) -> float:
        """Return the start of a process on the time axis of the run, in seconds."""
        first_unix_s = min(one.unix_s for one in self.processes)
        return self.offset_s + process.unix_s - first_unix_s


def newest_run(processes: Sequence[ProcessJournal]) -> tuple[list[ProcessJournal], int]:
    """Return the journals of the run that has the newest attempt, and the number of other runs."""
    newest = max(processes, key=lambda process: process.unix_s)
    launched = [newest, *(one for one in processes if _is_one_launch(one, newest))]
    run_id = min(launched, key=lambda process: process.rank).run_id
    run = [process for process in processes if process.run_id == run_id]
    others = [process for process in processes if process.run_id != run_id]
    same_launch = []
    for process in others:
        partner = next((one for one in run if _is_one_launch(process, one)), None)
        if partner is not None:
            header = process.header | {"attempt": partner.attempt}
            same_launch.append(replace(process, header=header))
    left_out = {one.run_id for one in others} - {one.run_id for one in same_launch}
    return run + same_launch, len(left_out)


def _is_one_launch(one: ProcessJournal, other: ProcessJournal) -> bool:
    """Return whether two processes run on different hosts and belong to the same launch."""
    launch = one.header.get("launch")
    is_same = launch is not None and launch == other.header.get("launch")
    return is_same and one.host != other.host and abs(one.unix_s - other.unix_s) < _LAUNCH_S


def merge(processes: Iterable[ProcessJournal]) -> list[MergedAttempt]:
    """Return the attempts of one run, oldest first."""
    groups: dict[tuple[int, int], list[ProcessJournal]] = defaultdict(list)
    for process in processes:
        groups[-process.folders_back, process.attempt].append(process)
    attempts: list[MergedAttempt] = []
    offset_s = 0.0
    is_moved = any(folders_back for folders_back, _ in groups)
    for count, ((_, attempt_number), group) in enumerate(sorted(groups.items()), start=1):
        ordered = tuple(sorted(group, key=lambda process: (process.rank, process.host)))
        attempt = MergedAttempt(
            # If the run moved to another folder, attempts are renumbered, because the numbers in
            # each folder begin with 1.
            number=count if is_moved else attempt_number,
            offset_s=offset_s,
            processes=ordered,
            owned=tuple(_owned(ordered)),
        )
        attempts.append(attempt)
        offset_s = max(attempt.start_of(process) + process.end_s for process in ordered)
    return attempts


def _owned(processes: Sequence[ProcessJournal]) -> list[OwnedDevice]:
    claims: dict[Identity, list[OwnedDevice]] = defaultdict(list)
    for process in processes:
        for key, record in process.devices.items():
            device = OwnedDevice(
                identity=Identity(process.host, record["device"]["uuid"] or key),
                key=key,
                owner=process,
                record=record,
                energy=energy_of(process, key),
            )
            claims[device.identity].append(device)
    owned = [
        replace(reduce(_preferred, devices), notes=_notes([one.properties for one in devices]))
        for devices in claims.values()
    ]
    hosts = dict.fromkeys(one.identity.host for one in owned)
    return [
        placed
        for host in hosts
        for placed in _placed([one for one in owned if one.identity.host == host])
    ]


def _placed(owned: Sequence[OwnedDevice]) -> Iterator[OwnedDevice]:
    """Yield the devices of one host, each with the sums that include its energy."""
    known = {one.key for one in owned if one.energy.energy_j is not None}
    parts = {one.key: one.part(known) for one in owned if one.key in known or not one.is_machine}
    inside = containers(parts)
    members = {scope: in_sum(scope, parts) for scope in SCOPES}
    for one in owned:
        sums = tuple(scope for scope, keys in members.items() if one.key in keys)
        yield replace(one, counted_in=inside.get(one.key), sums=sums)


def _notes(lines: Sequence[Record]) -> tuple[str, ...]:
    """Return the notes of a device without duplicates.

    If the GPU is divided into instances (NVIDIA's Multi-Instance GPU, MIG), the first note states
    how many there are. It also states how many of them the run uses, if that is known.

    Args:
        lines: properties of the device from each process that reports it.
    """
    notes = dict.fromkeys(note for line in lines for note in line["notes"])
    count = max(line.get("instance_count", 0) for line in lines)
    if not count:
        return tuple(notes)
    named = [set(line.get("instances", ())) for line in lines]
    used = len(set().union(*named)) if all(named) else 0
    share = f"{used} of its {count} MIG instances {'is' if used == 1 else 'are'} used by this run"
    return (f"whole card: {share if used else f'shared by its {count} MIG instances'}", *notes)


def _preferred(present: OwnedDevice, candidate: OwnedDevice) -> OwnedDevice:
    if candidate.energy.energy_j is None:
        return present
    is_better = present.energy.energy_j is None or _outlives(candidate.owner, present.owner)
    return candidate if is_better else present


def _outlives(one: ProcessJournal, other: ProcessJournal) -> bool:
    """Return whether ``one`` continued after ``other`` died; see ``_LAST_LINES_S``.

    ``other`` died if its journal has no totals line.
    """
    after_s = one.unix_s + one.newest_s - other.unix_s - other.newest_s
    return other.totals is None and after_s > _LAST_LINES_S


def energy_of(process: ProcessJournal, key: str) -> Energy:
    """Return the energy of a device over an attempt.

    This is the energy in the totals line of the journal. If that line is missing or does not
    contain the energy, ``_energy_so_far`` computes the energy from the other lines.
    """
    stated = energies(process.totals["energy"]).get(key) if process.totals else None
    if stated is not None and stated.energy_j is not None:
        return stated
    return _energy_so_far(process, key)


def _energy_so_far(process: ProcessJournal, key: str) -> Energy:
    """Return the energy of a device from all lines except the totals line.

    The largest of three energies is returned: the sum of the spans, the newest ``so_far`` line, and
    the newest ``energy_j`` of the ``series`` lines. The journal states the errors of spans and of
    ``so_far`` lines, but not those of ``series`` lines. If the energy of the ``series`` lines is
    the largest, its errors are taken from the larger of the first two energies: the standard error
    is the same, and the systematic bound is the same fraction of the energy. If the first two
    energies are unknown, ``_unqualified`` determines the error.
    """
    spans = [span for span in process.spans if key in span.energy]
    durations_s = [span.end_s - span.start_s for span in spans]
    closed = total_of_neighbours([span.energy[key] for span in spans], durations_s)
    stated = energies(process.so_far).get(key, UNKNOWN)
    known = max(closed, stated, key=lambda energy: energy.energy_j or 0.0)
    newest_j = None if process.is_settled else process.last_energy_j(key)
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
        coverage=known.coverage * _reached(process, key, process.so_far_s),
    )


def _unqualified(process: ProcessJournal, key: str, energy_j: float) -> Energy:
    """Return an energy whose only error is the largest relative error of the device's sensors."""
    sensors = process.devices[key]["sensors"].values()
    relative = max((sensor["relative_error"] for sensor in sensors), default=0.0)
    return Energy(
        energy_j=energy_j,
        systematic_j=relative * energy_j,
        method="cumulative series",
        coverage=_reached(process, key),
    )


def _reached(process: ProcessJournal, key: str, known_s: float = 0.0) -> float:
    """Return the share of the attempt, 0 to 1, before ``known_s`` or a device's newest reading.

    The later of both counts.
    """
    seen_s = max(float(np.nanmax(process.columns[key].seen_s)), known_s)
    return min(seen_s / process.end_s, 1.0) if process.end_s else 0.0

"""Combines a measured command with the trainings inside it.

``energy-callbacks run`` measures all devices from the start of the command to its end, and writes
a journal. Trainings inside the command that use a callback write their journals into the same
folder. Only the journals of trainings contain phases, steps and metrics. This module adds these to
the ``ProcessJournal`` of the command. The energies remain those that the command measured, except
for devices that only the trainings measured.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from energy_callbacks.accounting.journal.journal import Record, energy_as_json
from energy_callbacks.accounting.journal.launch import COMMAND
from energy_callbacks.accounting.metrics.carbon import SET_BY_USER, Intensity
from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.report.collect import phases
from energy_callbacks.report.collect.merge import energy_of
from energy_callbacks.report.collect.process import ProcessJournal, Training, energies
from energy_callbacks.report.collect.rows import DeviceColumns

# Keys of the header whose values are taken from the newest training.
_TRAININGS_OWN = ("run_id", "framework", "framework_version", "world_size", "launch", "before")

# Keys of a journal line whose values are times on the time axis of the journal.
_TIMES = ("t_s", "start_s", "end_s")
# Trainings that overlap by up to this time, in seconds, count as consecutive, because the wall
# clock may have been adjusted between them.
_SLACK_S = 0.5


def joined(processes: Sequence[ProcessJournal]) -> list[ProcessJournal]:
    """Return the processes, with the trainings inside each command merged into the command.

    Only rank 0 of a training is merged; the other ranks remain processes of their own. If trainings
    overlap, the later one is left out. If no rank 0 ran inside a command, the other ranks inside it
    are left out.
    """
    commands = [one for one in processes if is_command(one)]
    found = [one for one in processes if not any(one.folder == c.folder for c in commands)]
    for command in commands:
        inside = [one for one in processes if one.folder == command.folder and not is_command(one)]
        found += _joined(command, inside)
    return found


def is_command(process: ProcessJournal) -> bool:
    """Return whether the journal was written by ``energy-callbacks run``."""
    return process.header.get("framework") == COMMAND


def _joined(command: ProcessJournal, inside: Sequence[ProcessJournal]) -> Iterator[ProcessJournal]:
    command = _of_used_cards(command, inside)
    # The phases of the command itself are not known, so all its spans get the same name,
    # ``COMMAND``.
    command.spans = [replace(span, name=COMMAND) for span in command.spans]
    command.open_phase = COMMAND
    leads = sorted((one for one in inside if one.rank == 0), key=lambda one: one.unix_s)
    trainings, overlapping = _one_after_the_other(command, leads)
    if not trainings:
        yield command
        return
    lead = trainings[-1].process
    others = _energies_of_others(command, trainings)
    if command.totals is not None:
        command.totals = {**command.totals, "energy": {**command.totals["energy"], **others}}
    own = {key: lead.header[key] for key in _TRAININGS_OWN if key in lead.header}
    processes = [one.process for one in trainings]
    yield replace(
        command,
        header={**command.header, **own, **_settings(command, lead)},
        trainings=tuple(trainings),
        so_far={**command.so_far, **others},
        resumed_at_step=processes[0].resumed_at_step,
        devices={**_devices(trainings), **command.devices},
        columns={**_columns(trainings), **command.columns},
        steps=_lines(trainings, "steps"),
        epochs=_lines(trainings, "epochs"),
        metrics=_lines(trainings, "metrics"),
        power_changes=_lines(trainings, "power_changes"),
        profiles={kind: found for one in processes for kind, found in one.profiles.items()},
        batch_sizes=[line for one in processes for line in one.batch_sizes],
        forecast=lead.forecast,
        data_wait=_data_wait(processes),
        intensities=command.intensities or list(_intensities(trainings)),
        warnings=[
            *(line for one in (command, *processes) for line in one.warnings),
            *_overlap_warning(len(overlapping)),
        ],
        remarks=_distinct_remarks([command, *processes]),
    )
    left_out = {one.attempt for one in overlapping}
    for one in inside:
        if one.rank and one.attempt not in left_out:
            header = {**one.header, "attempt": command.attempt, "run_id": lead.run_id}
            yield replace(one, header=header)


def _of_used_cards(command: ProcessJournal, inside: Sequence[ProcessJournal]) -> ProcessJournal:
    """Return the command without the GPUs that it did not use.

    The command is returned unchanged if it is not known which GPUs it used.
    """
    here = [one for one in inside if one.host == command.host]
    named = {key for one in here for key, line in one.devices.items() if _is_gpu(line)}
    used = command.used | named
    left_out = [k for k, line in command.devices.items() if _is_gpu(line) and k not in used]
    if not used or not left_out:
        return command
    message = f"{', '.join(left_out)}: not included, because no process of the command used it"
    return replace(
        command,
        devices={key: line for key, line in command.devices.items() if key not in left_out},
        remarks=[*command.remarks, {"source": "GPU", "message": message}],
    )


def _is_gpu(line: Record) -> bool:
    return bool(line["device"]["kind"] == "gpu")


def _one_after_the_other(
    command: ProcessJournal, leads: Sequence[ProcessJournal]
) -> tuple[list[Training], list[ProcessJournal]]:
    """Return trainings that follow each other, and the journals of those that overlap them.

    Args:
        command: the journal of the command.
        leads: the journals of rank 0 of all trainings, in order of their start.
    """
    trainings: list[Training] = []
    overlapping: list[ProcessJournal] = []
    for lead in leads:
        start_s = max(lead.unix_s - command.unix_s, 0.0)
        if trainings and start_s < trainings[-1].start_s + trainings[-1].process.end_s - _SLACK_S:
            overlapping.append(lead)
        else:
            trainings.append(Training(process=lead, start_s=start_s))
    return trainings, overlapping


def _overlap_warning(count: int) -> Iterator[Record]:
    if count:
        trainings = "training" if count == 1 else "trainings"
        yield {
            "code": "trainings_at_once",
            "message": f"{count} {trainings} of the command ran at the same time as another "
            "one: phases and steps are those of the first training, the energy is "
            "that of all.",
            "fix": "measure each training with its own callback, or with a separate command",
            "t_s": 0.0,
        }


def _settings(command: ProcessJournal, lead: ProcessJournal) -> Mapping[str, Any]:
    """Return the header entries ``config``, ``run_name`` and ``tags`` for the combined journal.

    A setting of the command has precedence over the setting of the training ``lead``.
    """
    asked, own = command.header.get("config") or {}, lead.header.get("config") or {}
    # Whether each setting was left out on the command line.
    is_left_out = {"place": (asked.get("place") or {}).get("origin") != SET_BY_USER,
                   "pue": asked.get("pue") == 1.0,
                   "carbon_intensity": asked.get("carbon_intensity") is None,
                   "price_per_kwh": asked.get("price_per_kwh") is None,
                   "currency": asked.get("currency") is None}  # fmt: skip
    views = {key: own[key] for key, is_out in is_left_out.items() if is_out and key in own}
    return {
        "config": {**asked, **views},
        "run_name": command.header.get("run_name") or lead.header.get("run_name"),
        "tags": {**(lead.header.get("tags") or {}), **(command.header.get("tags") or {})},
    }


def _devices(trainings: Sequence[Training]) -> dict[str, Record]:
    return {key: line for one in trainings for key, line in one.process.devices.items()}


def _intensities(trainings: Sequence[Training]) -> Iterator[tuple[float, Intensity]]:
    """Yield the carbon intensities of the trainings on the time axis of the command."""
    for training in trainings:
        for start_s, intensity in training.process.intensities:
            yield start_s + training.start_s, intensity


def _columns(trainings: Sequence[Training]) -> dict[str, DeviceColumns]:
    """Return the rows of the trainings by device key, on the time axis of the command.

    Some of these devices, such as the framework's allocator, are in no journal of a command.
    """
    by_key: dict[str, list[DeviceColumns]] = defaultdict(list)
    before_j: dict[str, float] = defaultdict(float)
    for training in trainings:
        for key, columns in training.process.columns.items():
            by_key[key].append(columns.moved(training.start_s, before_j[key]))
            before_j[key] += training.process.last_energy_j(key) or 0.0
    return {key: DeviceColumns.chained(parts) for key, parts in by_key.items()}


def _energies_of_others(command: ProcessJournal, trainings: Sequence[Training]) -> Record:
    """Return the energies of the devices that only the trainings measured, by device key.

    The coverage is relative to the duration of the command.
    """
    found = {}
    for key, line in _devices(trainings).items():
        if key in command.devices or line["device"]["scope"] is None:
            continue
        parts = [one.process for one in trainings if key in one.process.devices]
        energy = total([energy_of(one, key) for one in parts], [one.end_s for one in parts])
        share = min(sum(one.end_s for one in parts) / command.end_s, 1.0) if command.end_s else 1.0
        found[key] = energy_as_json(replace(energy, coverage=energy.coverage * share))
    return found


def _lines(trainings: Sequence[Training], name: str) -> list[Record]:
    """Return the lines of all trainings, with times on the time axis of the command.

    Args:
        trainings: the trainings.
        name: field of ``ProcessJournal`` that contains the lines.
    """
    return [
        {key: value + one.start_s if key in _TIMES else value for key, value in line.items()}
        for one in trainings
        for line in getattr(one.process, name)
    ]


def _data_wait(processes: Sequence[ProcessJournal]) -> Record:
    """Return the total time and energy of waiting for data; empty if no process reports waits."""
    waits = [one.data_wait for one in processes if one.data_wait]
    if not waits:
        return {}
    by_key = phases.sums(
        (key, wait["duration_s"], energy)
        for wait in waits
        for key, energy in energies(wait["energy"]).items()
    )
    return {
        "duration_s": math.fsum(wait["duration_s"] for wait in waits),
        "energy": {key: energy_as_json(energy) for key, energy in by_key.items()},
    }


def _distinct_remarks(processes: Sequence[ProcessJournal]) -> list[Record]:
    """Return the remarks of all processes; each remark once, even if several processes made it."""
    found = {(line["source"], line["message"]): line for one in processes for line in one.remarks}
    return list(found.values())

"""Combines a measured command and the trainings inside it.

``energy-callbacks run`` measures all devices from the command's start to its end, and writes a
journal of its own. Trainings of the command that use our callbacks write theirs into the same
folder, and know phases, steps and metrics. The command's process takes over what they know; its own
sensors stay the ones that count.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from energy_callbacks.accounting.journal.journal import Record, energy_as_json
from energy_callbacks.accounting.journal.launch import COMMAND
from energy_callbacks.accounting.metrics.carbon import SET_BY_USER
from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.report.collect.merge import energy_of
from energy_callbacks.report.collect.process import ProcessJournal, Training, energies
from energy_callbacks.report.collect.rows import DeviceColumns

# What a training says of itself, in its header.
_TRAININGS_OWN = ("run_id", "framework", "framework_version", "world_size", "launch", "before")

_TIMES = ("t_s", "start_s", "end_s")
# Two clocks of one machine: the wall's, by which trainings are placed, may be set meanwhile.
_SLACK_S = 0.5


def joined(processes: Sequence[ProcessJournal]) -> list[ProcessJournal]:
    """Each command with what its trainings know; other processes as they are."""
    commands = [one for one in processes if is_command(one)]
    found = [one for one in processes if not any(one.folder == c.folder for c in commands)]
    for command in commands:
        inside = [one for one in processes if one.folder == command.folder and not is_command(one)]
        found += _joined(command, inside)
    return found


def is_command(process: ProcessJournal) -> bool:
    """Whether it has measured another program."""
    return process.header.get("framework") == COMMAND


def _joined(command: ProcessJournal, inside: Sequence[ProcessJournal]) -> Iterator[ProcessJournal]:
    command = _of_used_cards(command, inside)
    # The phases of a program without this package are unknown.
    command.spans = [replace(span, name=COMMAND) for span in command.spans]
    command.open_phase = COMMAND
    leads = sorted((one for one in inside if one.rank == 0), key=lambda one: one.unix_s)
    trainings, aside = _one_after_the_other(command, leads)
    if not trainings:
        yield command
        return
    lead = trainings[-1].process
    others = _energies_of_others(command, trainings)
    if command.totals is not None:
        energy = {**command.totals["energy"], **others}
        command.totals = {**command.totals, "energy": energy}
    own = {key: lead.header[key] for key in _TRAININGS_OWN if key in lead.header}
    yield replace(
        command,
        header={**command.header, **own, **_settings(command, lead)},
        trainings=tuple(trainings),
        so_far={**command.so_far, **others},
        resumed_at_step=trainings[0].process.resumed_at_step,
        devices={**_all(trainings, "devices"), **command.devices},
        columns={**_columns(trainings), **command.columns},
        steps=_lines(trainings, "steps"),
        epochs=_lines(trainings, "epochs"),
        metrics=_lines(trainings, "metrics"),
        profiles={kind: found for one in trainings for kind, found in one.process.profiles.items()},
        batch_sizes=[line for one in trainings for line in one.process.batch_sizes],
        forecast=lead.forecast,
        data_wait=_data_wait(trainings),
        warnings=[
            *command.warnings,
            *(line for one in trainings for line in one.process.warnings),
            *_beside(aside),
        ],
        remarks=_each_once([command, *(one.process for one in trainings)]),
    )
    for one in inside:
        if one.rank:
            header = {**one.header, "attempt": command.attempt, "run_id": lead.run_id}
            yield replace(one, header=header)


def _of_used_cards(command: ProcessJournal, inside: Sequence[ProcessJournal]) -> ProcessJournal:
    """Without the cards on which nothing of the command was seen, if it was seen on any."""
    named = {key for one in inside for key, line in one.devices.items() if _is_gpu(line)}
    used = command.used | named
    left_out = [k for k, line in command.devices.items() if _is_gpu(line) and k not in used]
    if not used or not left_out:
        return command
    message = f"{', '.join(left_out)}: no process of the command was seen there, so not counted"
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
    """Trainings that follow each other, and those that ran beside one of them."""
    found: list[Training] = []
    aside: list[ProcessJournal] = []
    for lead in leads:
        start_s = max(lead.unix_s - command.unix_s, 0.0)
        if found and start_s < found[-1].start_s + found[-1].process.end_s - _SLACK_S:
            aside.append(lead)
        else:
            found.append(Training(process=lead, start_s=start_s))
    return found, aside


def _beside(aside: Sequence[ProcessJournal]) -> Iterator[Record]:
    if aside:
        trainings = "training" if len(aside) == 1 else "trainings"
        yield {
            "code": "trainings_at_once",
            "message": f"{len(aside)} {trainings} of the command ran beside another one: phases "
            "and steps are those of the first, the energy is that of all.",
            "fix": "measure each by its own callback, or by a command of its own",
            "t_s": 0.0,
        }


def _settings(command: ProcessJournal, lead: ProcessJournal) -> Mapping[str, Any]:
    """Place, price and name as the command line says them, else as the training does."""
    asked, own = command.header.get("config") or {}, lead.header.get("config") or {}
    # A setting that the command line leaves out has its default there.
    is_left_out = {"place": (asked.get("place") or {}).get("origin") != SET_BY_USER,
                   "pue": asked.get("pue") == EnergyConfig().pue,
                   "price_per_kwh": asked.get("price_per_kwh") is None}  # fmt: skip
    views = {key: own[key] for key, is_out in is_left_out.items() if is_out and key in own}
    return {
        "config": {**asked, **views},
        "run_name": command.header.get("run_name") or lead.header.get("run_name"),
        "tags": {**(lead.header.get("tags") or {}), **(command.header.get("tags") or {})},
    }


def _all(trainings: Sequence[Training], name: str) -> dict[str, Any]:
    return {k: value for one in trainings for k, value in getattr(one.process, name).items()}


def _columns(trainings: Sequence[Training]) -> dict[str, DeviceColumns]:
    """What only the trainings know, such as their allocator's memory, on the command's time."""
    found: dict[str, list[DeviceColumns]] = {}
    before_j: dict[str, float] = {}
    for training in trainings:
        for key, columns in training.process.columns.items():
            moved = columns.moved(training.start_s, before_j.get(key, 0.0))
            found.setdefault(key, []).append(moved)
            before_j[key] = before_j.get(key, 0.0) + (training.process.last_energy_j(key) or 0.0)
    return {key: DeviceColumns.chained(parts) for key, parts in found.items()}


def _energies_of_others(command: ProcessJournal, trainings: Sequence[Training]) -> Record:
    """Energy of the devices that only the trainings have read, of their time alone."""
    lines = _all(trainings, "devices")
    found = {}
    for key, line in lines.items():
        if key in command.devices or line["device"]["scope"] is None:
            continue
        parts = [one.process for one in trainings if key in one.process.devices]
        energy = total([energy_of(one, key) for one in parts], [one.end_s for one in parts])
        share = min(sum(one.end_s for one in parts) / command.end_s, 1.0) if command.end_s else 1.0
        found[key] = energy_as_json(replace(energy, coverage=energy.coverage * share))
    return found


def _lines(trainings: Sequence[Training], name: str) -> list[Record]:
    """Lines of all trainings, on the command's time."""
    return [
        {key: value + one.start_s if key in _TIMES else value for key, value in line.items()}
        for one in trainings
        for line in getattr(one.process, name)
    ]


def _data_wait(trainings: Sequence[Training]) -> Record:
    """Seconds and energy of waiting, of all of them."""
    told = [one.process.data_wait for one in trainings if one.process.data_wait]
    if not told:
        return {}
    parts = [(energies(line["energy"]), line["duration_s"]) for line in told]
    keys = dict.fromkeys(key for found, _ in parts for key in found)
    by_key = {
        key: total(
            [found[key] for found, _ in parts if key in found],
            [duration_s for found, duration_s in parts if key in found],
        )
        for key in keys
    }
    return {
        "duration_s": math.fsum(duration_s for _, duration_s in parts),
        "energy": {key: energy_as_json(energy) for key, energy in by_key.items()},
    }


def _each_once(processes: Sequence[ProcessJournal]) -> list[Record]:
    """The command and its trainings have the same sensors."""
    found = {(line["source"], line["message"]): line for one in processes for line in one.remarks}
    return list(found.values())

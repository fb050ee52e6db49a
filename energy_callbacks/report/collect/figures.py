"""Figures of a report from the energies of devices: scopes, phases, efficiency, work."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, interval_j, total
from energy_callbacks.core.records import Energy, Origin, Scope
from energy_callbacks.report.collect import activity, phases
from energy_callbacks.report.collect.merge import MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.process import ProcessJournal, energies
from energy_callbacks.report.model.models import (
    Activity,
    DataWait,
    Efficiencies,
    Efficiency,
    Figure,
    FigureOrigin,
    Phase,
    Ratio,
    Scopes,
    Throughput,
    WaitEnergy,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEnergy:
    """Energy of one device in one attempt: what every figure is a sum of.

    Attributes:
        phase: ``None`` for the whole attempt.
    """

    scope: Scope
    origin: Origin
    phase: str | None
    duration_s: float
    energy: Energy


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Optimizer steps and what went through them.

    Attributes:
        executed_steps: of all attempts, those that were repeated after a resume twice.
        replayed_steps: how many of them were repetitions.
    """

    executed_steps: int
    replayed_steps: int
    samples: float | None
    tokens: float | None
    data_wait_s: float | None


def whole_parts(devices: Iterable[OwnedDevice]) -> list[DeviceEnergy]:
    """The energy of every counted device over its attempt, as the journal's totals state it."""
    return [
        _part(device, None, device.owner.end_s, device.energy)
        for device in devices
        if device.is_counted
    ]


def phase_parts(devices: Iterable[OwnedDevice]) -> list[DeviceEnergy]:
    """The same energy cut into phases."""
    return [
        _part(device, name, phases.durations_s(device.owner).get(name, 0.0), energy)
        for device in devices
        if device.is_counted
        for name, energy in phases.energies(device.owner, device.key, device.energy).items()
    ]


def wait_parts(devices: Iterable[OwnedDevice]) -> list[DeviceEnergy]:
    """Energy of every counted device while the process that owns it waited for data."""
    return [
        _part(device, None, *_waited(device.owner, device.key))
        for device in devices
        if device.is_counted and device.owner.data_wait
    ]


def _waited(process: ProcessJournal, key: str) -> tuple[float, Energy]:
    """Seconds of waiting, and the energy of one device in them.

    If a process was cut off, the energy of its last seconds of waiting is not known.
    """
    known_s: float = process.data_wait["duration_s"]
    told_s = math.fsum(line["data_wait_s"] or 0.0 for line in process.steps)
    energy = energies(process.data_wait["energy"]).get(key, UNKNOWN)
    return max(told_s, known_s), replace(
        energy, coverage=energy.coverage * min(known_s / told_s, 1.0) if told_s else energy.coverage
    )


def _part(
    device: OwnedDevice, phase: str | None, duration_s: float, energy: Energy
) -> DeviceEnergy:
    return DeviceEnergy(
        scope=device.record["device"]["scope"],
        origin=device.record["device"]["origin"],
        phase=phase,
        duration_s=duration_s,
        energy=energy,
    )


def figure(chosen: Sequence[DeviceEnergy]) -> Figure:
    """The sum of some parts; unknown if no part is known."""
    energy = total([part.energy for part in chosen], [part.duration_s for part in chosen])
    origins: set[Origin] = {part.origin for part in chosen if part.energy.energy_j is not None}
    return as_figure(energy, origins)


def as_figure(energy: Energy, origins: Iterable[Origin]) -> Figure:
    """An energy with its origin."""
    known = set(origins)
    origin: FigureOrigin | None = "mixed" if len(known) > 1 else next(iter(known), None)
    return Figure(**asdict(energy), origin=origin if energy.energy_j is not None else None)


def scopes(chosen: Sequence[DeviceEnergy]) -> Scopes:
    """Figures of the GPUs, of the hosts, and of both."""
    return Scopes(
        gpu=figure([part for part in chosen if part.scope == "gpu"]),
        host=figure([part for part in chosen if part.scope == "host"]),
        total=figure(chosen),
    )


def measured_fraction(chosen: Iterable[DeviceEnergy]) -> float | None:
    """Share of the known energy that sensors measured; ``None`` if there is none."""
    known = [(part.origin, part.energy.energy_j or 0.0) for part in chosen]
    whole_j = math.fsum(energy_j for _, energy_j in known)
    if whole_j <= 0.0:
        return None
    return math.fsum(energy_j for origin, energy_j in known if origin == "measured") / whole_j


def phase_table(
    attempts: Sequence[MergedAttempt], chosen: Sequence[DeviceEnergy]
) -> tuple[Phase, ...]:
    """Every phase with its time (of the lead process) and its energy, in order of appearance.

    Args:
        attempts: of the run.
        chosen: all its ``phase_parts``.
    """
    seconds: dict[str, float] = {}
    for attempt in attempts:
        for name, duration_s in phases.durations_s(attempt.lead).items():
            seconds[name] = seconds.get(name, 0.0) + duration_s
    for part in chosen:
        seconds.setdefault(part.phase or "", 0.0)
    whole_j = figure(chosen).energy_j
    busy = activity.by_phase(attempts)
    rows = (_phase(name, seconds[name], chosen, whole_j, busy.get(name)) for name in seconds)
    return tuple(row for row in rows if row.duration_s > 0.0 or row.total.energy_j)


def _phase(
    name: str,
    duration_s: float,
    chosen: Sequence[DeviceEnergy],
    whole_j: float | None,
    busy: Activity | None,
) -> Phase:
    by_scope = scopes([part for part in chosen if part.phase == name])
    energy_j = by_scope.total.energy_j
    return Phase(
        name=name,
        duration_s=duration_s,
        gpu=by_scope.gpu,
        host=by_scope.host,
        total=by_scope.total,
        share=energy_j / whole_j if whole_j and energy_j is not None else None,
        activity=busy,
    )


def work(attempts: Sequence[MergedAttempt]) -> Work:
    """Steps and waits as the lead process of each attempt reported them; samples of all ranks."""
    lead_lines = [line for attempt in attempts for line in attempt.lead.steps]
    all_lines = [
        line for attempt in attempts for process in attempt.processes for line in process.steps
    ]
    return Work(
        executed_steps=sum(line["steps"] for line in lead_lines),
        replayed_steps=_replayed_steps(attempts),
        samples=sum_if_known(line["samples"] for line in all_lines),
        tokens=sum_if_known(line["tokens"] for line in all_lines),
        data_wait_s=sum_if_known(line["data_wait_s"] for line in lead_lines),
    )


def sum_if_known(values: Iterable[float | None]) -> float | None:
    """The sum, or ``None`` if one part is not known or there is no part."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return math.fsum(known) if listed and len(known) == len(listed) else None


def _replayed_steps(attempts: Sequence[MergedAttempt]) -> int:
    """Steps that an attempt did again because the one before got further than its checkpoint."""
    reached, replayed = 0, 0
    for attempt in attempts:
        start = attempt.lead.resumed_at_step
        start = reached if start is None else start
        replayed += max(reached - start, 0)
        reached = start + sum(line["steps"] for line in attempt.lead.steps)
    return replayed


def efficiencies(chosen: Sequence[DeviceEnergy], done: Work) -> Efficiencies:
    """Energy of the phase ``train`` for each step, sample and token that was executed."""
    train = scopes([part for part in chosen if part.phase == "train"])
    return Efficiencies(gpu=_efficiency(train.gpu, done), total=_efficiency(train.total, done))


def _efficiency(train: Figure, done: Work) -> Efficiency:
    return Efficiency(
        j_per_step=_ratio(train, done.executed_steps, done),
        j_per_sample=_ratio(train, done.samples, done),
        j_per_token=_ratio(train, done.tokens, done),
    )


def _ratio(train: Figure, count: float | None, done: Work) -> Ratio | None:
    found = interval_j(train)
    if found is None or not count:
        return None
    value_j, low_j, high_j = found
    seen = count * train.coverage
    return Ratio(
        value_j=value_j / count,
        low_j=low_j / count,
        high_j=high_j / count,
        stderr_j=train.stderr_j / seen,
        systematic_j=train.systematic_j / seen,
        steps=done.executed_steps,
    )


def data_wait(waited: Sequence[DeviceEnergy]) -> DataWait | None:
    """Energy of waiting for data by scope; ``None`` if no waits were reported."""
    if not waited:
        return None
    found = scopes(waited)
    return DataWait(
        gpu=_wait_energy(found.gpu), host=_wait_energy(found.host), total=_wait_energy(found.total)
    )


def _wait_energy(waited: Figure) -> WaitEnergy | None:
    found = interval_j(waited)
    if found is None:
        return None
    value_j, low_j, high_j = found
    return WaitEnergy(
        value_j=value_j,
        low_j=low_j,
        high_j=high_j,
        stderr_j=waited.stderr_j / waited.coverage,
        systematic_j=waited.systematic_j / waited.coverage,
    )


def throughput(done: Work, train_s: float, waited: Sequence[DeviceEnergy] = ()) -> Throughput:
    """Work and speed over the time of the training phase.

    Args:
        done: in it.
        train_s: its length.
        waited: all ``wait_parts`` of the run.
    """
    return Throughput(
        steps=done.executed_steps - done.replayed_steps,
        replayed_steps=done.replayed_steps,
        samples=_whole(done.samples),
        tokens=_whole(done.tokens),
        train_s=train_s,
        samples_per_s=_over(done.samples, train_s),
        tokens_per_s=_over(done.tokens, train_s),
        data_wait_s=done.data_wait_s,
        data_wait_fraction=_over(done.data_wait_s, train_s),
        data_wait=None if done.data_wait_s is None else data_wait(waited),
    )


def _whole(count: float | None) -> int | None:
    return None if count is None else round(count)


def _over(amount: float | None, duration_s: float) -> float | None:
    return amount / duration_s if amount is not None and duration_s > 0.0 else None

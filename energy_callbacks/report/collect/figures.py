"""Computes figures from the energies of devices: by scope, by phase and per unit of work."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, interval_j, total
from energy_callbacks.core.records import Energy, Origin
from energy_callbacks.report.collect import activity, phases
from energy_callbacks.report.collect.merge import MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.process import ProcessJournal, energies
from energy_callbacks.report.model import amounts, runs


class DeviceEnergy(NamedTuple):
    """Energy of one device in one attempt, or in a part of an attempt, such as a phase.

    Attributes:
        phase: name of the phase that the energy is for; ``None`` if it is not for one phase.
        duration_s: time that the energy is for, in seconds.
    """

    device: OwnedDevice
    phase: str | None
    duration_s: float
    energy: Energy


def whole_parts(summed: Iterable[OwnedDevice]) -> list[DeviceEnergy]:
    """Return the energy of each device over the whole attempt of the process that owns it."""
    return [DeviceEnergy(device, None, device.owner.end_s, device.energy) for device in summed]


def phase_parts(summed: Iterable[OwnedDevice]) -> list[DeviceEnergy]:
    """Return the energy of each device in each phase; the joules sum to the ``whole_parts``."""
    return [
        DeviceEnergy(device, name, phases.durations_s(device.owner).get(name, 0.0), energy)
        for device in summed
        for name, energy in phases.energies(device.owner, device.key, device.energy).items()
    ]


def wait_parts(summed: Iterable[OwnedDevice]) -> list[DeviceEnergy]:
    """Return the energy of each device while its owner waited for data, if waits are reported."""
    return [
        DeviceEnergy(device, None, *_waited(device.owner, device.key))
        for device in summed
        if device.owner.data_wait
    ]


def _waited(process: ProcessJournal, key: str) -> tuple[float, Energy]:
    """Return the seconds of waiting for data, and the energy of one device during that time.

    If a process was cut off, the energy of its last waits is not known, which lowers the coverage.
    """
    known_s: float = process.data_wait["duration_s"]
    reported_s = math.fsum(line["data_wait_s"] or 0.0 for line in process.steps)
    energy = energies(process.data_wait["energy"]).get(key, UNKNOWN)
    share = min(known_s / reported_s, 1.0) if reported_s else 1.0
    return max(reported_s, known_s), replace(energy, coverage=energy.coverage * share)


def figure(chosen: Sequence[DeviceEnergy]) -> amounts.Figure:
    """Return the sum of the parts; unknown if all parts are unknown."""
    energy = total([part.energy for part in chosen], [part.duration_s for part in chosen])
    known = [part.device for part in chosen if part.energy.energy_j is not None]
    return as_figure(energy, [device.properties["origin"] for device in known])


def as_figure(energy: Energy, origins: Iterable[Origin]) -> amounts.Figure:
    """Return the energy with its origin (``mixed`` if several, ``None`` if energy is unknown)."""
    known = set(origins)
    origin: amounts.FigureOrigin | None = "mixed" if len(known) > 1 else next(iter(known), None)
    return amounts.Figure(**asdict(energy), origin=origin if energy.energy_j is not None else None)


def scopes(chosen: Sequence[DeviceEnergy]) -> amounts.Scopes:
    """Return the sums over the GPUs, over the hosts, and over everything."""
    by_scope = {
        scope: figure([part for part in chosen if scope in part.device.sums])
        for scope in ("gpu", "host", "total")
    }
    return amounts.Scopes(**by_scope)


def measured_fraction(chosen: Iterable[DeviceEnergy]) -> float | None:
    """Return the measured share of the known total; ``None`` if the known total is 0."""
    known = [
        (part.device.properties["origin"], part.energy.energy_j or 0.0)
        for part in chosen
        if "total" in part.device.sums
    ]
    whole_j = math.fsum(energy_j for _, energy_j in known)
    measured_j = math.fsum(energy_j for origin, energy_j in known if origin == "measured")
    return measured_j / whole_j if whole_j > 0.0 else None


def phase_table(
    attempts: Sequence[MergedAttempt], chosen: Sequence[DeviceEnergy]
) -> tuple[runs.Phase, ...]:
    """Return the time and energy of each phase, in order of appearance.

    Args:
        attempts: all attempts of the run; times are those of the lead processes.
        chosen: the ``phase_parts`` of the run.
    """
    seconds: dict[str, float] = defaultdict(float)
    for attempt in attempts:
        for name, duration_s in phases.durations_s(attempt.lead).items():
            seconds[name] += duration_s
    parts: dict[str, list[DeviceEnergy]] = {name: [] for name in seconds}
    for part in chosen:
        parts.setdefault(part.phase or "", []).append(part)
    whole_j = scopes(chosen).total.energy_j
    busy = activity.by_phase(attempts)
    rows = []
    for name, own in parts.items():
        by_scope = scopes(own)
        energy_j = by_scope.total.energy_j
        row = runs.Phase(
            name=name,
            duration_s=seconds[name],
            gpu=by_scope.gpu,
            host=by_scope.host,
            total=by_scope.total,
            share=energy_j / whole_j if whole_j and energy_j is not None else None,
            activity=busy.get(name),
        )
        rows.append(row)
    return tuple(row for row in rows if row.duration_s > 0.0 or row.total.energy_j)


def _executed_steps(attempts: Iterable[MergedAttempt]) -> int:
    """Return the number of steps of lead processes, including repetitions after a resume."""
    return sum(line["steps"] for attempt in attempts for line in attempt.lead.steps)


def _of_all_ranks(attempts: Iterable[MergedAttempt], name: str) -> float | None:
    """Return the sum of the field ``name`` over the steps of all ranks; ``None`` if not known."""
    return sum_if_known(
        line[name]
        for attempt in attempts
        for process in attempt.processes
        for line in process.steps
    )


def sum_if_known(values: Iterable[float | None]) -> float | None:
    """Return the sum; ``None`` if a value is ``None`` or there are no values."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return math.fsum(known) if listed and len(known) == len(listed) else None


def _replayed_steps(attempts: Sequence[MergedAttempt]) -> int:
    """Return the number of steps that were executed again after a resume from a checkpoint."""
    end, highest, replayed = 0, 0, 0
    for attempt in attempts:
        start = attempt.lead.resumed_at_step
        start = end if start is None else start
        end = start + _executed_steps([attempt])
        replayed += max(min(end, highest) - start, 0)
        highest = max(highest, end)
    return replayed


def efficiencies(
    attempts: Sequence[MergedAttempt], chosen: Sequence[DeviceEnergy]
) -> amounts.Efficiencies:
    """Return the energy of the phase ``train`` per executed step, sample and token.

    Args:
        attempts: all attempts of the run.
        chosen: the ``phase_parts`` of the run.
    """
    steps = _executed_steps(attempts)
    counts = {
        "j_per_step": steps,
        "j_per_sample": _of_all_ranks(attempts, "samples"),
        "j_per_token": _of_all_ranks(attempts, "tokens"),
    }
    train = scopes([part for part in chosen if part.phase == "train"])
    gpu, both = (
        amounts.Efficiency(**{name: _ratio(energy, counts[name], steps) for name in counts})
        for energy in (train.gpu, train.total)
    )
    return amounts.Efficiencies(gpu=gpu, total=both)


def _ratio(energy: amounts.Figure, count: float | None, steps: int) -> amounts.Ratio | None:
    found = _interval(energy, count)
    return None if found is None else amounts.Ratio(**found, steps=steps)


def _interval(energy: amounts.Figure, count: float | None) -> dict[str, float] | None:
    """Return energy per unit of work, 95 % interval and errors, in J; ``None`` if not known."""
    found = interval_j(energy)
    if found is None or not count:
        return None
    value_j, low_j, high_j = found
    seen = count * energy.coverage
    return {
        "value_j": value_j / count,
        "low_j": low_j / count,
        "high_j": high_j / count,
        "stderr_j": energy.stderr_j / seen,
        "edge_j": energy.edge_j / seen,
        "systematic_j": energy.systematic_j / seen,
    }


def _data_wait(waited: Sequence[DeviceEnergy]) -> amounts.DataWait:
    by_scope = scopes(waited)
    found = {name: _interval(getattr(by_scope, name), 1.0) for name in ("gpu", "host", "total")}
    return amounts.DataWait(
        **{name: None if one is None else amounts.WaitEnergy(**one) for name, one in found.items()}
    )


def throughput(
    attempts: Sequence[MergedAttempt], train_s: float, waited: Sequence[DeviceEnergy]
) -> amounts.Throughput:
    """Return the work done, and the rates over the time in the phase ``train``.

    Steps and times of waiting are those of the lead processes; samples and tokens are those of all
    ranks.

    Args:
        attempts: all attempts of the run.
        train_s: time in the phase ``train``, in seconds.
        waited: the ``wait_parts`` of the run.
    """
    samples, tokens = (_of_all_ranks(attempts, name) for name in ("samples", "tokens"))
    wait_s = sum_if_known(line["data_wait_s"] for one in attempts for line in one.lead.steps)
    replayed_steps = _replayed_steps(attempts)
    return amounts.Throughput(
        steps=_executed_steps(attempts) - replayed_steps,
        replayed_steps=replayed_steps,
        samples=_whole(samples),
        tokens=_whole(tokens),
        train_s=train_s,
        samples_per_s=_over(samples, train_s),
        tokens_per_s=_over(tokens, train_s),
        data_wait_s=wait_s,
        data_wait_fraction=_over(wait_s, train_s),
        data_wait=_data_wait(waited) if waited and wait_s is not None else None,
    )


def _whole(count: float | None) -> int | None:
    return None if count is None else round(count)


def _over(amount: float | None, duration_s: float) -> float | None:
    return amount / duration_s if amount is not None and duration_s > 0.0 else None

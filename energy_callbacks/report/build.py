"""Builds an ``EnergyReport`` from journals."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from energy_callbacks import importers
from energy_callbacks.accounting.journal import batch_job, journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.analysis import warnings
from energy_callbacks.report.analysis.advice import advice
from energy_callbacks.report.analysis.imbalance import imbalances
from energy_callbacks.report.collect import command, curves, figures, footprint
from energy_callbacks.report.collect.devices import device_table, memory
from energy_callbacks.report.collect.merge import MergedAttempt, merge, newest_run
from energy_callbacks.report.collect.metric_curves import metrics
from energy_callbacks.report.collect.process import ProcessJournal, load, of_records
from energy_callbacks.report.collect.progress import progress
from energy_callbacks.report.collect.ranks import rank_table
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, from_record
from energy_callbacks.report.model.models import (
    Attempt,
    Figure,
    Forecast,
    MeasuringCost,
    Run,
    Status,
    UnavailableSensor,
)
from energy_callbacks.report.model.profile import Profile, from_records
from energy_callbacks.report.model.schema import EnergyReport

# A journal is flushed at least each second; one that is silent for this long has ended.
_SILENT_S = 5.0
# The most informative status of a run whose ranks ended in different ways.
_GRAVITY: tuple[Status, ...] = ("failed", "interrupted", "running", "cut off", "finished")


def build(
    paths: str | Path | Sequence[str | Path], *, now_unix_s: float | None = None
) -> EnergyReport:
    """The report of one run.

    Args:
        paths: a run folder, a journal, a log of another program, or several of these.
        now_unix_s: wall time against which an attempt without an end is *running* or *cut off*;
            ``None`` asks the clock.

    Raises:
        JournalError: if no journal can be read.
    """
    merged, other_runs, unreadable = gather(paths)
    attempts = tuple(_attempts(merged, time.time() if now_unix_s is None else now_unix_s))
    return _assemble(merged, attempts, other_runs, unreadable)


def gather(
    paths: str | Path | Sequence[str | Path],
) -> tuple[list[MergedAttempt], int, list[str]]:
    """The attempts of the newest run, how many other runs there are, and what cannot be read.

    Args:
        paths: see ``build``.

    Raises:
        JournalError: as ``build``.
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    readable, unreadable = _load_all(_journals(map(Path, several)))
    processes, other_runs = newest_run(command.joined(readable))
    _add_earlier(processes)
    return merge(processes), other_runs, unreadable


def _journals(paths: Iterable[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for path in paths:
        found.update(dict.fromkeys(_journals_at(path)))
    return list(found)


def _journals_at(path: Path) -> list[Path]:
    place, _ = importers.located(path)
    if not place.exists():
        raise JournalError(f"{path} does not exist; give a run folder or a *.jsonl of one")
    if place.is_file():
        return [path.resolve()]
    found = journal.find(path.resolve()) or journal.find(path.resolve() / "energy")
    if not found:
        raise JournalError(
            f"{path} holds no journal (attempts/*/*.jsonl); give the run folder, "
            "such as lightning_logs/version_0/energy"
        )
    return found


def _load_all(paths: Sequence[Path]) -> tuple[list[ProcessJournal], list[str]]:
    """All journals that can be read, and why the others cannot."""
    readable: list[ProcessJournal] = []
    problems: list[JournalError] = []
    for path in paths:
        try:
            readable.append(_load(path))
        except JournalError as error:
            problems.append(error)
    if not readable:
        raise problems[0]
    return readable, [str(problem) for problem in problems]


def _load(path: Path) -> ProcessJournal:
    imported = importers.records(path)
    return load(path) if imported is None else of_records(path, imported)


def _add_earlier(processes: list[ProcessJournal]) -> None:
    """Add the journals of the folders that a run was in before, back to where it began."""
    known = {process.folder for process in processes}
    for process in processes:  # grows while it is walked
        link = process.before.get("folder")
        folder = (process.folder / link).resolve() if link else process.folder
        if folder in known:
            continue
        known.add(folder)
        for path in journal.find(folder):
            earlier = _load_of(path, process.run_id)
            if earlier is not None:
                earlier.folders_back = process.folders_back + 1
                processes.append(earlier)


def _load_of(path: Path, run_id: str) -> ProcessJournal | None:
    """A journal, if it is of a run and can be read: the present folder must not suffer by it."""
    try:
        return load(path) if journal.header(path).get("run_id") == run_id else None
    except (JournalError, OSError):
        return None


def _assemble(
    merged: Sequence[MergedAttempt],
    attempts: tuple[Attempt, ...],
    other_runs: int,
    unreadable: Sequence[str],
) -> EnergyReport:
    owned = [device for attempt in merged for device in attempt.owned]
    whole, by_phase = figures.whole_parts(owned), figures.phase_parts(owned)
    scopes = figures.scopes(whole)
    phases = figures.phase_table(merged, by_phase)
    done = figures.work(merged)
    ranks, timeline = rank_table(merged), curves.timeline(merged)
    header = merged[-1].lead.header
    config = header.get("config") or {}
    facts = warnings.WarningFacts(
        merged=merged,
        attempts=attempts,
        duration_s=math.fsum(attempt.lead.end_s for attempt in merged),
        energy=scopes,
        emissions=footprint.emissions(scopes.total, config),
        cost=footprint.cost(scopes.total, config),
        devices=device_table(merged),
        throughput=figures.throughput(
            done,
            math.fsum(phase.duration_s for phase in phases if phase.name == "train"),
            figures.wait_parts(owned),
        ),
        unavailable=_unavailable(merged),
        other_runs=other_runs,
        unreadable=unreadable,
    )
    report = EnergyReport(
        tool_version=str((header.get("environment") or {}).get("tool_version") or "unknown"),
        warnings=warnings.warnings(facts),
        run=_run(merged, attempts, facts.duration_s),
        energy=scopes,
        measured_fraction=figures.measured_fraction(whole),
        emissions=facts.emissions,
        cost=facts.cost,
        forecast=_forecast(merged),
        efficiency=figures.efficiencies(by_phase, done),
        throughput=facts.throughput,
        memory=memory(merged),
        phases=phases,
        devices=tuple(facts.devices),
        attempts=attempts,
        unavailable=tuple(facts.unavailable),
        measuring=_measuring(merged, facts.duration_s),
        environment=_environment(header),
        method_notes=warnings.method_notes(facts),
        timeline=timeline,
        series=curves.series(merged),
        ranks=ranks,
        imbalances=imbalances(merged, ranks),
        batch_sizes=_batch_sizes(merged),
        metrics=metrics(merged),
        progress=progress(merged, timeline),
        profile=_profile(merged),
    )
    return replace(report, advice=advice(report))


def _attempts(merged: Iterable[MergedAttempt], now_unix_s: float) -> Iterator[Attempt]:
    for attempt in merged:
        for process in attempt.processes:
            samples = [line["samples"] for line in process.steps]
            known = [count for count in samples if count is not None]
            yield Attempt(
                attempt=attempt.number,
                host=process.host,
                rank=process.rank,
                status=_status(process, now_unix_s),
                started_unix_s=process.unix_s,
                offset_s=attempt.start_of(process),
                duration_s=process.end_s,
                steps=sum(line["steps"] for line in process.steps),
                samples=round(sum(known)) if samples and len(known) == len(samples) else None,
                energy=_energy_of(attempt, process),
                job=batch_job.from_record(process.header.get("job")),
            )


def _energy_of(attempt: MergedAttempt, process: ProcessJournal) -> Figure:
    mine = tuple(device for device in attempt.owned if device.owner is process)
    return figures.figure(figures.whole_parts(mine))


def _status(process: ProcessJournal, now_unix_s: float) -> Status:
    if process.totals is not None:
        status: Status = process.totals["status"]
        return status
    silent_s = now_unix_s - (process.unix_s + process.end_s)
    return "running" if silent_s < _SILENT_S and not journal.is_gone(process.header) else "cut off"


def _run(merged: Sequence[MergedAttempt], attempts: Sequence[Attempt], duration_s: float) -> Run:
    newest = merged[-1]
    header = newest.lead.header
    environment = header.get("environment") or {}
    ends = {one.status for one in attempts if one.attempt == newest.number}
    errors = [(process.totals or {}).get("error") for process in newest.processes]
    return Run(
        run_id=newest.lead.run_id,
        name=header.get("run_name"),
        tags={key: str(value) for key, value in (header.get("tags") or {}).items()},
        framework=header.get("framework"),
        framework_version=header.get("framework_version") or None,
        command=environment.get("command"),
        git_commit=environment.get("git_commit"),
        started_unix_s=min(process.unix_s for process in merged[0].processes),
        duration_s=duration_s,
        status=next(status for status in _GRAVITY if status in ends),
        error=next((error for error in errors if error), None),
        job=batch_job.from_record(header.get("job")),
        host=newest.lead.host,
    )


def _unavailable(merged: Iterable[MergedAttempt]) -> tuple[UnavailableSensor, ...]:
    """Sensors that could not be opened, each once."""
    found = (
        UnavailableSensor(
            source=line["source"], reason=line["reason"].rstrip("."), fix=line["fix"] or ""
        )
        for attempt in merged
        for process in attempt.processes
        for line in process.unavailable
    )
    return tuple(dict.fromkeys(found))


def _forecast(merged: Sequence[MergedAttempt]) -> Forecast | None:
    """The newest one, by the process that leads."""
    found = [a.lead.forecast for a in merged if a.lead.forecast is not None]
    if not found:
        return None
    names = {one.name for one in fields(Forecast)}
    return Forecast(**{name: value for name, value in found[-1].items() if name in names})


def _batch_sizes(merged: Sequence[MergedAttempt]) -> tuple[BatchSizeCurve, ...]:
    """Of the process that leads: ranks search together."""
    found = [record for attempt in merged for record in attempt.lead.batch_sizes]
    return tuple(from_record(record) for record in found)


def _profile(merged: Sequence[MergedAttempt]) -> Profile | None:
    """Of each kind the newest, of the lowest rank that has one."""
    found: dict[str, Record] = {}
    for attempt in merged:
        for process in reversed(attempt.processes):
            found.update(process.profiles)
    return from_records(found)


def _measuring(merged: Iterable[MergedAttempt], duration_s: float) -> MeasuringCost:
    told = [
        process.totals.get("sampler_cpu_s") if process.totals else None
        for attempt in merged
        for process in attempt.processes
    ]
    known = [cpu_s for cpu_s in told if cpu_s is not None]
    if len(known) < len(told):
        return MeasuringCost(sampler_cpu_s=None, core_share=None)
    cpu_s = math.fsum(known)
    return MeasuringCost(
        sampler_cpu_s=cpu_s, core_share=cpu_s / duration_s if duration_s > 0.0 else None
    )


def _environment(header: Record) -> dict[str, str]:
    """Host, start, settings and environment of the newest attempt, as names and words."""
    started = datetime.fromtimestamp(header["unix_s"], tz=UTC).isoformat(timespec="seconds")
    flat = {"host": str(header["host"]), "started": started}
    world_size = header.get("world_size") or 1
    if world_size > 1:
        flat["world_size"] = str(world_size)
    flat.update(_flattened("", header.get("environment") or {}))
    flat.update(_flattened("config.", header.get("config") or {}))
    return flat


def _flattened(prefix: str, values: Record) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flattened(f"{prefix}{key}.", value)
        elif value is not None:
            yield f"{prefix}{key}", _text(value)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

"""Builds an ``EnergyReport`` from journals."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path

from energy_callbacks import importers
from energy_callbacks.accounting import open_attempts
from energy_callbacks.accounting.journal import batch_job, headers, journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.analysis import footprint, warnings
from energy_callbacks.report.analysis.advice import advice
from energy_callbacks.report.analysis.method_notes import method_notes
from energy_callbacks.report.collect import checks, command, curves, figures
from energy_callbacks.report.collect.devices import device_table, memory
from energy_callbacks.report.collect.intensity import run_intensity
from energy_callbacks.report.collect.merge import MergedAttempt, merge, newest_run
from energy_callbacks.report.collect.process import ProcessJournal, load
from energy_callbacks.report.collect.progress import metrics, progress
from energy_callbacks.report.collect.ranks import imbalances, rank_table
from energy_callbacks.report.collect.running import until_settled
from energy_callbacks.report.model import amounts, runs
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.report.model.power_limit import PowerChange
from energy_callbacks.report.model.schema import EnergyReport, Profile, from_record

# A running process writes a line to its journal at least once per second. If the newest line is
# older than this time, in seconds, the process is considered to have ended.
_SILENT_S = 5.0
# Beginning of the settings that the report shows with the emissions.
_INTENSITY = "config.place.intensity."
# The statuses of ranks in order of importance. The status of a run is the first of them that any
# rank of the run's newest attempt has.
_SEVERITY: tuple[runs.Status, ...] = ("failed", "interrupted", "running", "cut off", "finished")


def build(
    paths: str | Path | Sequence[str | Path], *, now_unix_s: float | None = None
) -> EnergyReport:
    """Build the report of one run.

    Args:
        paths: a run folder, a journal, a log of another program, or several of these.
        now_unix_s: current wall time, in seconds since 1970; ``None`` reads the clock. It
            is used to tell attempts that are still running from attempts that were cut off.

    A journal that cannot be read or used is left out, and a warning of the report names it.

    Raises:
        ValueError: if no path is given.
        JournalError: if a path does not exist, if a folder contains no journal, or if none of the
            journals can be used.
        MissingExtraError: for a ``.zst`` log if ``zstandard`` is not installed.
    """
    now_unix_s = time.time() if now_unix_s is None else now_unix_s
    processes, problems = _read(paths, now_unix_s)
    try:
        return _built(processes, problems, now_unix_s)
    except Exception as error:
        # One of the journals has values that are not checked when it is read.
        found = {process.path: _problem(process, now_unix_s) for process in processes}
        usable = [process for process in processes if found[process.path] is None]
        problems += [problem for problem in found.values() if problem is not None]
        if len(usable) == len(processes):
            raise
        if not usable:
            raise JournalError("; ".join(problems)) from error
        return _built(usable, problems, now_unix_s)


def gather(paths: str | Path | Sequence[str | Path]) -> list[MergedAttempt]:
    """Read journals, and merge the processes of the newest run into attempts.

    Args:
        paths: see ``build``.

    Returns:
        The attempts of the newest run.

    Raises:
        ValueError: if no path is given.
        JournalError: see ``build``.
        MissingExtraError: for a ``.zst`` log if ``zstandard`` is not installed.
    """
    processes, _ = _read(paths, math.inf)
    return _merged(processes)[0]


def _read(
    paths: str | Path | Sequence[str | Path], now_unix_s: float
) -> tuple[list[ProcessJournal], list[str]]:
    """Return all journals that can be read, and the reason for each of the others.

    The journals of processes that are still running at ``now_unix_s`` are read up to the time whose
    energy is final (``until_settled``).
    """
    several = [paths] if isinstance(paths, str | Path) else paths
    if not several:
        raise ValueError(f"no journal to read, got {paths!r}; give a run folder or a journal")
    readable: list[ProcessJournal] = []
    problems: list[str] = []
    # A journal that is found through several paths is read only once.
    for file in dict.fromkeys(file for path in several for file in _journals_at(Path(path))):
        try:
            process = _loaded(file)
            is_running = _status(process, now_unix_s) == "running"
            readable.append(until_settled(process) if is_running else process)
        except JournalError as error:
            problems.append(str(error))
        except (OSError, *checks.INVALID) as error:  # of an importer: it reads any file
            problems.append(_damage(file, error))
    if not readable:
        raise JournalError("; ".join(problems))
    return readable, problems


def _loaded(path: Path) -> ProcessJournal:
    process = load(path)
    headers.check(process.header, path, line=1, required=headers.REQUIRED)
    return process


def _merged(processes: Sequence[ProcessJournal]) -> tuple[list[MergedAttempt], int]:
    """Return the attempts of the newest run, and the number of other runs."""
    run, other_runs = newest_run(command.joined(processes))
    _add_earlier(run)
    return merge(run), other_runs


def _built(
    processes: Sequence[ProcessJournal], problems: Sequence[str], now_unix_s: float
) -> EnergyReport:
    merged, other_runs = _merged(processes)
    report = _assemble(merged, now_unix_s)
    report = replace(
        report,
        warnings=warnings.warnings(report, merged, other_runs=other_runs, unreadable=problems),
        method_notes=method_notes(report, merged),
    )
    return replace(report, advice=advice(report))


def _problem(process: ProcessJournal, now_unix_s: float) -> str | None:
    """Return why no report can be built from a journal; ``None`` if one can be built."""
    try:
        _built([process], (), now_unix_s)
    except Exception as error:  # noqa: BLE001 - invalid values raise exceptions of any type
        return _damage(process.path, error)
    return None


def _damage(path: Path, error: Exception) -> str:
    return f"{path} is damaged ({type(error).__name__}: {str(error)[:200]})"


def _journals_at(path: Path) -> list[Path]:
    place, _ = importers.located(path)
    open_attempts.wait_for_journals(place)
    if not place.exists():
        raise JournalError(f"{path} does not exist; give a run folder or a journal (*.jsonl)")
    if place.is_file():
        return [path.resolve()]
    found = journal.find(path.resolve()) or journal.find(path.resolve() / "energy")
    if not found:
        raise JournalError(
            f"{path} contains no journal (attempts/*/*.jsonl); give the run folder, "
            "such as lightning_logs/version_0/energy"
        )
    return found


def _add_earlier(processes: list[ProcessJournal]) -> None:
    """Append to ``processes`` the journals from all earlier folders of the same run."""
    known = {process.folder for process in processes}
    for process in processes:  # the list grows during the iteration
        link = process.before.get("folder")
        folder = (process.folder / link).resolve() if link else process.folder
        if folder in known:
            continue
        known.add(folder)
        for path in journal.find(folder):
            # Unreadable journals in earlier folders are ignored.
            with suppress(JournalError, OSError, *checks.INVALID):
                if journal.header(path).get("run_id") == process.run_id:
                    earlier = _loaded(path)
                    earlier.folders_back = process.folders_back + 1
                    processes.append(earlier)


def _assemble(merged: Sequence[MergedAttempt], now_unix_s: float) -> EnergyReport:
    """Return the report without warnings, notes and advice, which ``build`` derives from it."""
    summed = [device for attempt in merged for device in attempt.owned if device.sums]
    whole, by_phase = figures.whole_parts(summed), figures.phase_parts(summed)
    scopes = figures.scopes(whole)
    phases = figures.phase_table(merged, by_phase)
    attempts = tuple(_attempts(merged, now_unix_s))
    ranks, timeline = rank_table(merged), curves.timeline(merged)
    header = merged[-1].lead.header
    config = header.get("config") or {}
    pue = float(config.get("pue") or 1.0)
    duration_s = math.fsum(attempt.lead.end_s for attempt in merged)
    train_s = math.fsum(phase.duration_s for phase in phases if phase.name == "train")
    return EnergyReport(
        tool_version=str((header.get("environment") or {}).get("tool_version") or "unknown"),
        warnings=(),
        run=_run(merged, attempts, duration_s),
        energy=scopes,
        measured_fraction=figures.measured_fraction(whole),
        emissions=footprint.emissions(scopes.total, run_intensity(merged), pue),
        cost=footprint.cost(scopes.total, config.get("price_per_kwh"), config.get("currency"), pue),
        forecast=_forecast(merged),
        efficiency=figures.efficiencies(merged, by_phase),
        throughput=figures.throughput(merged, train_s, figures.wait_parts(summed)),
        memory=memory(merged),
        phases=phases,
        devices=device_table(merged),
        attempts=attempts,
        unavailable=_unavailable(merged),
        measuring=_measuring(merged, duration_s),
        environment=_environment(header),
        method_notes=(),
        timeline=timeline,
        series=curves.series(merged),
        ranks=ranks,
        imbalances=imbalances(merged, ranks),
        batch_sizes=tuple(
            from_record(BatchSizeCurve, record)
            for attempt in merged
            # All ranks run a search together, and each of them records it: one record is enough.
            for record in attempt.lead.batch_sizes
        ),
        metrics=metrics(merged),
        progress=progress(merged, timeline),
        profile=_profile(merged),
        power_changes=tuple(
            PowerChange(
                t_s=attempt.start_of(attempt.lead) + line["t_s"],
                knob=line["knob"],
                value=line["value"],
                why=line["why"],
            )
            for attempt in merged
            # All ranks record all changes, because all cards have the same setting.
            for line in attempt.lead.power_changes
        ),
    )


def _attempts(merged: Iterable[MergedAttempt], now_unix_s: float) -> Iterator[runs.Attempt]:
    for attempt in merged:
        for process in attempt.processes:
            samples = figures.sum_if_known(line["samples"] for line in process.steps)
            own = [device for device in attempt.counted if device.owner is process]
            yield runs.Attempt(
                attempt=attempt.number,
                host=process.host,
                rank=process.rank,
                status=_status(process, now_unix_s),
                started_unix_s=process.unix_s,
                offset_s=attempt.start_of(process),
                duration_s=process.end_s,
                steps=sum(line["steps"] for line in process.steps),
                samples=None if samples is None else round(samples),
                energy=figures.figure(figures.whole_parts(own)),
                job=batch_job.from_record(process.header.get("job")),
            )


def _status(process: ProcessJournal, now_unix_s: float) -> runs.Status:
    if process.totals is not None:
        status: runs.Status = process.totals["status"]
        return status
    silent_s = now_unix_s - (process.unix_s + process.newest_s)
    return "running" if silent_s < _SILENT_S and not journal.is_gone(process.header) else "cut off"


def _run(
    merged: Sequence[MergedAttempt], attempts: Sequence[runs.Attempt], duration_s: float
) -> runs.Run:
    newest = merged[-1]
    header = newest.lead.header
    environment = header.get("environment") or {}
    statuses = {attempt.status for attempt in attempts if attempt.attempt == newest.number}
    errors = [(process.totals or {}).get("error") for process in newest.processes]
    return runs.Run(
        run_id=newest.lead.run_id,
        name=header.get("run_name"),
        tags={key: str(value) for key, value in (header.get("tags") or {}).items()},
        framework=header.get("framework"),
        framework_version=header.get("framework_version") or None,
        command=environment.get("command"),
        git_commit=environment.get("git_commit"),
        started_unix_s=min(process.unix_s for process in merged[0].processes),
        duration_s=duration_s,
        status=next(status for status in _SEVERITY if status in statuses),
        error=next(filter(None, errors), None),
        job=batch_job.from_record(header.get("job")),
        host=newest.lead.host,
    )


def _unavailable(merged: Iterable[MergedAttempt]) -> tuple[runs.UnavailableSensor, ...]:
    """Return the sensors that were not read, without duplicates.

    GPUs that another rank or a later attempt has measured are left out.
    """
    processes = [process for attempt in merged for process in attempt.processes]
    measured = {(process.host, key) for process in processes for key in process.devices}
    sensors = (
        runs.UnavailableSensor(
            source=line["source"], reason=line["reason"].rstrip("."), fix=line["fix"] or ""
        )
        for process in processes
        for line in process.unavailable
        if (process.host, line["source"]) not in measured
    )
    return tuple(dict.fromkeys(sensors))


def _forecast(merged: Sequence[MergedAttempt]) -> amounts.Forecast | None:
    """Return the forecast of the newest attempt whose ``lead`` process has one, or ``None``."""
    records = [attempt.lead.forecast for attempt in merged if attempt.lead.forecast]
    return from_record(amounts.Forecast, records[-1]) if records else None


def _profile(merged: Sequence[MergedAttempt]) -> Profile | None:
    """Return the newest profile of each kind; within an attempt, that of the lowest rank."""
    records: dict[str, Record] = {}
    for attempt in merged:
        for process in reversed(attempt.processes):
            records.update(process.profiles)
    # Kinds that this version does not know are ignored.
    known = [field.name for field in fields(Profile) if field.name in records]
    return from_record(Profile, records) if known else None


def _measuring(merged: Iterable[MergedAttempt], duration_s: float) -> runs.MeasuringCost:
    cpu_s = figures.sum_if_known(
        (process.totals or {}).get("sampler_cpu_s")
        for attempt in merged
        for process in attempt.processes
    )
    core_share = cpu_s / duration_s if cpu_s is not None and duration_s > 0.0 else None
    return runs.MeasuringCost(sampler_cpu_s=cpu_s, core_share=core_share)


def _environment(header: Record) -> dict[str, str]:
    """Return host, start time, environment and settings of an attempt as strings.

    The keys of nested values are dotted names, such as ``config.pue``.
    """
    started = datetime.fromtimestamp(header["unix_s"], tz=UTC).isoformat(timespec="seconds")
    flat = {"host": str(header["host"]), "started": started}
    world_size = header.get("world_size") or 1
    if world_size > 1:
        flat["world_size"] = str(world_size)
    nested = {**(header.get("environment") or {}), "config": header.get("config") or {}}
    known = _flattened("", nested)
    return flat | {key: text for key, text in known if not key.startswith(_INTENSITY)}


def _flattened(prefix: str, values: Record) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flattened(f"{prefix}{key}.", value)
        elif value is not None:
            is_list = isinstance(value, list)
            yield f"{prefix}{key}", ", ".join(map(str, value)) if is_list else str(value)

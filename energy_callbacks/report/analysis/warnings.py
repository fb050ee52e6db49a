"""Derives the warnings of a report.

A cause appears once: where a warning names the cause of another warning, that one is left out.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from energy_callbacks.accounting.journal.previous_attempts import with_total
from energy_callbacks.core import formatting
from energy_callbacks.core.extras import dependency_command
from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.collect.process import ProcessJournal
from energy_callbacks.report.model.runs import Attempt, DeviceUse, ReportWarning
from energy_callbacks.report.model.schema import EnergyReport

# A device gets a warning if readings cover less than this share of the time, because the energy of
# the rest of the time is missing.
_FULL_COVERAGE = 0.99
# Runs shorter than this, in seconds, get a warning: a counter that is updated every 100 ms then has
# an error above 1 %.
_SHORT_RUN_S = 10.0
# Names of RAPL and of the sensors of GPUs in the list of unavailable sensors: of a vendor, such as
# ``AMD GPU``, and of one card, such as ``NVML GPU-4b2c`` and ``AMD GPU gpu0``.
_RAPL = "RAPL"
_GPU_SENSORS, _ONE_GPU = re.compile(r".* GPU"), re.compile(r"NVML .*|.* gpu\d+")
_KINDS: Final = {"cpu": "the CPU", "dram": "the RAM"}
# Codes of warnings in journals that state why the energy of a device, whose key they contain, is
# not known or has gaps.
_CAUSES: Final = ("no_power", "gaps")
# Code of the warning that journals have about the first failed reading of a source.
_MISSED: Final = "source_missed"


def warnings(
    report: EnergyReport,
    merged: Sequence[MergedAttempt],
    *,
    other_runs: int,
    unreadable: Sequence[str],
) -> tuple[ReportWarning, ...]:
    """Return the warnings of a report without duplicates, in a fixed order of their kinds.

    Args:
        report: the report; its field ``warnings`` is ignored.
        merged: the attempts from which the report was built.
        other_runs: number of other runs in the same folder.
        unreadable: for each journal that cannot be read, the reason.
    """
    processes = [process for attempt in merged for process in attempt.processes]
    is_imported = any("imported" in process.header for process in processes)
    # The command ``doctor`` checks the sensors of this machine. It does not help if the energy was
    # measured by another program.
    doctor = "" if is_imported else "run: energy-callbacks doctor"
    recorded = [
        ReportWarning(code=line["code"], message=line["message"], fix=line.get("fix") or "")
        for process in processes
        for line in process.warnings
    ]
    missed = _missed(processes)
    found = [
        *_of_files(other_runs, unreadable),
        *_of_lost_attempts(merged[0].processes),
        *_of_attempts(report, merged),
        *_of_devices(report.devices, doctor, recorded),
        *_of_origin(report, doctor),
        *_of_place(report, recorded),
        *_of_length(report),
        *_of_sensors(report),
        *_of_readings(missed, recorded),
        *(one for one in recorded if one.code != _MISSED or _source(one) not in missed),
    ]
    return tuple(dict.fromkeys(found))


def _of_files(other_runs: int, unreadable: Sequence[str]) -> Iterator[ReportWarning]:
    for reason in unreadable:
        yield ReportWarning(
            code="journal_unreadable", message=f"A journal is not included: {reason}."
        )
    if other_runs:
        runs = "run" if other_runs == 1 else "runs"
        yield ReportWarning(
            code="other_runs",
            message=f"{other_runs} older {runs} in the same folder not included.",
            fix="use a separate report_dir= for each run",
        )


def _of_lost_attempts(first: Sequence[ProcessJournal]) -> Iterator[ReportWarning]:
    """Yield a warning if the run resumed from a checkpoint and its earlier journals are missing.

    Args:
        first: the processes of the oldest attempt that has journals.
    """
    lost_j = sum(
        with_total(process.before.get("energy_j", {})).get("total", 0.0) for process in first
    )
    if lost_j:
        yield ReportWarning(
            code="earlier_attempts_lost",
            message=f"The run resumed from a checkpoint. The {formatting.energy(lost_j)} that its "
            "earlier attempts used are not included, because their journals are missing.",
            fix="keep the run folder of the earlier attempts at its original path",
        )


def _of_attempts(report: EnergyReport, merged: Sequence[MergedAttempt]) -> Iterator[ReportWarning]:
    ranks = {attempt.number: _rank_count(attempt) for attempt in merged}
    for attempt in report.attempts:
        who = f"Attempt {attempt.attempt} (host {attempt.host}, rank {attempt.rank})"
        if attempt.status == "cut off":
            yield _cut_off(attempt, who, ranks[attempt.attempt])
        elif attempt.status == "running":
            covered = formatting.duration(attempt.duration_s)
            message = f"{who} is still running; this report covers its first {covered}."
            yield ReportWarning(code="running", message=message)
    if report.throughput.replayed_steps:
        yield ReportWarning(
            code="replayed_steps",
            message=f"{report.throughput.replayed_steps} steps were executed twice, because an "
            "attempt resumed from an older checkpoint. The total includes both executions.",
            fix="save checkpoints more often",
        )
    for one in merged:
        yield from _of_missing_ranks(one)


def _rank_count(attempt: MergedAttempt) -> int:
    return max(int(process.header.get("world_size") or 1) for process in attempt.processes)


def _cut_off(attempt: Attempt, who: str, ranks: int) -> ReportWarning:
    rank = f"Rank {attempt.rank} of {ranks} (attempt {attempt.attempt}, host {attempt.host})"
    after = formatting.duration(attempt.duration_s)
    message = (
        f"{who if ranks == 1 else rank} stopped unexpectedly after {after}. Up to one second "
        "of data before that may be missing."
    )
    return ReportWarning(code="cut_off", message=message)


def _of_missing_ranks(attempt: MergedAttempt) -> Iterator[ReportWarning]:
    """Yield a warning if ranks of an attempt have no journal, such as ranks that did not start."""
    count = _rank_count(attempt)
    missing = sorted(set(range(count)) - {process.rank for process in attempt.processes})
    if missing:
        is_one = len(missing) == 1
        named = f"Rank{'' if is_one else 's'} {formatting.listed(missing)}"
        yield ReportWarning(
            code="rank_missing",
            message=f"{named} of {count}: the journal of attempt {attempt.number} is missing. The "
            f"energy of devices that only {'this rank' if is_one else 'these ranks'} measured is "
            "not included.",
            fix="use the same report_dir= on all hosts, or copy the folders attempts/ of all hosts "
            "into one run folder",
        )


def _of_devices(
    devices: Sequence[DeviceUse], doctor: str, recorded: Sequence[ReportWarning]
) -> Iterator[ReportWarning]:
    with_energy = [device for device in devices if device.scope is not None]
    if not with_energy:
        yield ReportWarning(
            code="nothing_measured",
            message="No sensor or model of energy was available: the energy is not known.",
            fix=doctor,
        )
    partly: dict[str, list[str]] = {}
    for device in with_energy:
        name = f"{device.key} ({device.name}, host {device.host})"
        if _has_cause(device, recorded):
            continue
        if device.energy.energy_j is None:
            code, message = _of_unknown(device)
            yield ReportWarning(code=code, message=f"The energy of {name} {message}.", fix=doctor)
        elif device.energy.coverage < _FULL_COVERAGE:
            partly.setdefault(formatting.percent(device.energy.coverage), []).append(name)
    for share, names in partly.items():
        message = f"Readings cover only {share} of the time of {', '.join(names)}."
        yield ReportWarning(code="low_coverage", message=f"{message} The rest is not included.")


def _of_unknown(device: DeviceUse) -> tuple[str, str]:
    """Return the code and the end of the warning about a device whose energy is not known."""
    if device.scope == "machine":
        return "machine_unknown", "is not known; the total is the sum of gpu and host"
    if device.counted_in is not None:
        return "part_unknown", f"is not known; that of {device.counted_in} contains it"
    return "energy_unknown", "is not known and not included in the totals"


def _has_cause(device: DeviceUse, recorded: Sequence[ReportWarning]) -> bool:
    """Return whether a journal states why the energy of a device is unknown or has gaps."""
    name = re.compile(rf"\b{re.escape(device.key)}\b")
    return any(one.code in _CAUSES and name.search(one.message) for one in recorded)


def _of_origin(report: EnergyReport, doctor: str) -> Iterator[ReportWarning]:
    estimated = {
        device.scope: dict.fromkeys(
            _KINDS.get(one.kind, one.kind)
            for one in report.devices
            if one.scope == device.scope and _is_estimated(one)
        )
        for device in report.devices
        if _is_estimated(device)
    }
    if "gpu" in estimated:
        message = "The energy of the GPU is estimated by a model, not measured."
        yield ReportWarning(code="gpu_estimated", message=message)
    if "host" in estimated:
        rapl = next((one for one in report.unavailable if one.source == _RAPL), None)
        because = "" if rapl is None else f", because RAPL was not read: {rapl.reason}"
        yield ReportWarning(
            code="host_estimated",
            message=f"The energy of {' and '.join(estimated['host'])} is estimated by a model, not "
            f"measured{because}.",
            fix=doctor if rapl is None else rapl.fix,
        )


def _is_estimated(device: DeviceUse) -> bool:
    return device.origin == "estimated" and device.energy.energy_j is not None


def _of_place(report: EnergyReport, recorded: Sequence[ReportWarning]) -> Iterator[ReportWarning]:
    if any(one.code in ("place_unknown", "carbon_intensity_gap") for one in recorded):
        return
    if report.emissions is not None and report.emissions.kg is None:
        yield ReportWarning(
            code="place_unknown",
            message="Location not set: the range of the emissions covers 90 % of national grids.",
            fix="set country=, such as country='DEU' (and region= in the USA and Canada)",
        )
    elif report.emissions is None and report.energy.total.energy_j is not None:
        yield ReportWarning(
            code="emissions_unknown",
            message="The emissions are not known: CodeCarbon's table of carbon intensities cannot "
            "be read.",
            fix=f"run: {dependency_command('codecarbon')} --force-reinstall",
        )


def _of_length(report: EnergyReport) -> Iterator[ReportWarning]:
    is_measured = any(device.origin == "measured" and device.scope for device in report.devices)
    if report.run.duration_s < _SHORT_RUN_S and is_measured:
        duration = formatting.duration(report.run.duration_s)
        yield ReportWarning(
            code="short_run",
            message=f"The run is short for power sensors ({duration}); consider the errors when "
            "you compare it.",
            fix="measure for at least ten seconds",
        )


def _of_sensors(report: EnergyReport) -> Iterator[ReportWarning]:
    """Yield a warning for each sensor that was not read, except RAPL if a model replaces it.

    A GPU sensor that was not read is a warning, not a note, if the run used a GPU: a certain card
    was asked for, or the framework allocated memory on GPUs and no GPU was measured.
    """
    has_gpu = any(device.scope == "gpu" for device in report.devices)
    uses_gpu = bool(report.memory.peak_allocated_bytes) and not has_gpu
    has_estimate = any(
        device.scope == "host" and _is_estimated(device) for device in report.devices
    )
    for sensor in report.unavailable:
        why = f"{sensor.source} was not read: {sensor.reason}."
        is_asked_for = _ONE_GPU.fullmatch(sensor.source)
        if is_asked_for or (uses_gpu and _GPU_SENSORS.fullmatch(sensor.source)):
            message = f"The energy of a GPU is not included in the totals. {why}"
            yield ReportWarning(code="gpu_not_measured", message=message, fix=sensor.fix)
        elif sensor.fix and not (sensor.source == _RAPL and has_estimate):
            yield ReportWarning(code="sensor_unavailable", message=why, fix=sensor.fix)


def _missed(processes: Sequence[ProcessJournal]) -> Counter[str]:
    """Return the number of failed readings of each source, without sources that have none."""
    missed: Counter[str] = Counter()
    for process in processes:
        missed.update((process.totals or {}).get("missed_readings") or {})
    return +missed


def _of_readings(
    missed: Mapping[str, int], recorded: Sequence[ReportWarning]
) -> Iterator[ReportWarning]:
    """Yield the number of failed readings of each source, with the reason of the first failure."""
    reasons = {_source(one): one.message for one in recorded if one.code == _MISSED}
    for source, count in sorted(missed.items()):
        noun = "reading" if count == 1 else "readings"
        reason = reasons.get(source, "").removeprefix(f"{source}: ").rstrip(".")
        because = f" ({reason})" if reason else ""
        message = f"{source}: {count} {noun} failed{because}."
        yield ReportWarning(code="missed_readings", message=message)


def _source(warning: ReportWarning) -> str:
    """Return the name of the source in a warning that the sampler recorded."""
    return warning.message.partition(": ")[0]

"""Derives the warnings of a report, and the notes on the assumptions behind its numbers."""

from collections import Counter
from collections.abc import Iterator, Sequence

from energy_callbacks.core import formatting
from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.collect.process import ProcessJournal
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Cost, Emissions
from energy_callbacks.report.model.runs import Attempt, DeviceUse, ReportWarning
from energy_callbacks.report.model.schema import EnergyReport

# A device gets a warning if readings cover less than this share of the time, because the energy of
# the rest of the time is missing.
_FULL_COVERAGE = 0.99
# Runs shorter than this, in seconds, get a warning: a counter that is updated every 100 ms then has
# an error above 1 %.
_SHORT_RUN_S = 10.0
# First words of the notes that depend on location, PUE and price. ``footprint.view`` removes the
# notes that begin with these words.
EMISSIONS_NOTE, PRICE_NOTE = "Emissions", "The price"


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
    found = [
        *_of_files(other_runs, unreadable),
        *_of_lost_attempts(merged[0].processes),
        *_of_attempts(report, merged),
        *_of_devices(report.devices, doctor),
        *_of_origin(report, doctor),
        *_of_place(report, has_file=any(process.intensities for process in processes)),
        *_of_length(report),
        *_of_sensors(report, processes),
        *(
            ReportWarning(code=line["code"], message=line["message"], fix=line.get("fix") or "")
            for process in processes
            for line in process.warnings
        ),
    ]
    return tuple(dict.fromkeys(found))


def _of_files(other_runs: int, unreadable: Sequence[str]) -> Iterator[ReportWarning]:
    for reason in unreadable:
        yield ReportWarning(code="journal_unreadable", message=f"A journal was left out: {reason}.")
    if other_runs:
        runs = "run was" if other_runs == 1 else "runs were"
        yield ReportWarning(
            code="other_runs",
            message=f"{other_runs} older {runs} found in the same folder and left out.",
            fix="give each run a folder of its own with report_dir=",
        )


def _of_lost_attempts(first: Sequence[ProcessJournal]) -> Iterator[ReportWarning]:
    """Yield a warning if the run resumed from a checkpoint and its earlier journals are missing.

    Args:
        first: the processes of the oldest attempt that has journals.
    """
    lost_j = sum(sum(process.before.get("energy_j", {}).values()) for process in first)
    if lost_j:
        yield ReportWarning(
            code="earlier_attempts_lost",
            message=f"This run went on from a checkpoint; the {formatting.energy(lost_j)} that it "
            "had used before are not in this report, because their journals are not here.",
            fix="keep the run folder of the first attempts where it was",
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
            message=f"{report.throughput.replayed_steps} steps were done twice, because an attempt "
            "resumed from an older checkpoint; their energy is in the total.",
            fix="save checkpoints more often",
        )
    for one in merged:
        yield from _of_missing_ranks(one)


def _rank_count(attempt: MergedAttempt) -> int:
    return max(int(process.header.get("world_size") or 1) for process in attempt.processes)


def _cut_off(attempt: Attempt, who: str, ranks: int) -> ReportWarning:
    rank = f"Rank {attempt.rank} of {ranks} (attempt {attempt.attempt}, host {attempt.host})"
    event = f"{who} was cut off" if ranks == 1 else f"{rank} ended without a word"
    after = formatting.duration(attempt.duration_s)
    message = f"{event} after {after}; its last second may be missing."
    return ReportWarning(code="cut_off", message=message)


def _of_missing_ranks(attempt: MergedAttempt) -> Iterator[ReportWarning]:
    """Yield a warning if ranks of an attempt have no journal, such as ranks that did not start."""
    count = _rank_count(attempt)
    missing = sorted(set(range(count)) - {process.rank for process in attempt.processes})
    if missing:
        named = f"Rank{'s' if len(missing) > 1 else ''} {formatting.listed(missing)}"
        yield ReportWarning(
            code="rank_missing",
            message=f"{named} of {count} left no journal in attempt {attempt.number}; the energy "
            "of their devices is in no figure.",
            fix="share one report_dir= between all hosts, or copy the attempts/ of each into one",
        )


def _of_devices(devices: Sequence[DeviceUse], doctor: str) -> Iterator[ReportWarning]:
    with_energy = [device for device in devices if device.scope is not None]
    if not with_energy:
        yield ReportWarning(
            code="nothing_measured",
            message="No device with energy was seen: every energy is unknown.",
            fix=doctor,
        )
    for device in with_energy:
        name = f"{device.key} ({device.name}, host {device.host})"
        if device.energy.energy_j is None:
            yield ReportWarning(
                code="energy_unknown",
                message=f"The energy of {name} is not known; the totals leave it out.",
                fix=doctor,
            )
        elif device.energy.coverage < _FULL_COVERAGE:
            yield ReportWarning(
                code="low_coverage",
                message=f"{name} was seen for {formatting.percent(device.energy.coverage)} of the "
                "time; the rest of its energy is missing.",
            )


def _of_origin(report: EnergyReport, doctor: str) -> Iterator[ReportWarning]:
    estimated = {
        device.scope
        for device in report.devices
        if device.origin == "estimated" and device.energy.energy_j is not None
    }
    if "gpu" in estimated:
        message = "The energy of the GPU is estimated by a model, not measured."
        yield ReportWarning(code="gpu_estimated", message=message)
    if "host" in estimated:
        yield ReportWarning(
            code="host_estimated",
            message="The energy of CPU and RAM is estimated by a model, at least in part.",
            fix="" if any(sensor.fix for sensor in report.unavailable) else doctor,
        )


def _of_place(report: EnergyReport, *, has_file: bool) -> Iterator[ReportWarning]:
    # If a file of intensities has a gap, the journal has a warning.
    if report.emissions is not None and report.emissions.kg is None and not has_file:
        yield ReportWarning(
            code="place_unknown",
            message="Nobody said where this ran: emissions are an interval that holds the grids of "
            "nine in ten countries.",
            fix="pass country= (and region= for USA and CAN), such as country='DEU'",
        )
    elif report.emissions is None and report.energy.total.energy_j is not None:
        yield ReportWarning(
            code="emissions_unknown",
            message="Emissions could not be found: CodeCarbon's table cannot be read.",
            fix="run: pip install --force-reinstall 'codecarbon>=2.8,<4'",
        )


def _of_length(report: EnergyReport) -> Iterator[ReportWarning]:
    is_measured = any(device.origin == "measured" and device.scope for device in report.devices)
    if report.run.duration_s < _SHORT_RUN_S and is_measured:
        duration = formatting.duration(report.run.duration_s)
        yield ReportWarning(
            code="short_run",
            message=f"A run of {duration} is short for power sensors; look at the errors before "
            "comparing it.",
            fix="measure at least ten seconds",
        )


def _of_sensors(
    report: EnergyReport, processes: Sequence[ProcessJournal]
) -> Iterator[ReportWarning]:
    for sensor in report.unavailable:
        if sensor.fix:
            yield ReportWarning(
                code="sensor_unavailable",
                message=f"{sensor.source} could not be read: {sensor.reason}.",
                fix=sensor.fix,
            )
    missed: Counter[str] = Counter()
    for process in processes:
        missed.update((process.totals or {}).get("missed_readings") or {})
    for source, count in sorted(missed.items()):
        if count:
            noun = "reading was" if count == 1 else "readings were"
            yield ReportWarning(code="missed_readings", message=f"{source}: {count} {noun} missed.")


def method_notes(report: EnergyReport, merged: Sequence[MergedAttempt]) -> tuple[str, ...]:
    """Return notes on the assumptions behind the numbers of a report, one text per assumption."""
    has_ranks = any(len(attempt.processes) > 1 for attempt in merged)
    return (
        *_notes_of_errors(),
        *_notes_of_scopes(report.devices, has_ranks=has_ranks),
        *_notes_of_time(report, len(merged)),
        *_notes_of_work(report, has_ranks=has_ranks),
        *notes_of_views(report.emissions, report.cost),
        *(
            f"{remark['source']}: {remark['message']}."
            for attempt in merged
            for process in attempt.processes
            for remark in process.remarks
        ),
    )


def _notes_of_errors() -> Iterator[str]:
    yield (
        "An energy is given with the half-width of its 95 % interval: the random error (1.96 "
        "standard errors), the error from the edges of time spans, and the systematic bound of the "
        "sensor or model, added in quadrature."
    )
    yield (
        "If the random error and the error from edges together are more than half of an energy, "
        "its time was too short for the sensor: the report shows an upper bound instead of the "
        "energy."
    )
    yield (
        "In sums, random errors add in quadrature. Errors from edges and systematic bounds add "
        "linearly, because they may have the same sign in all parts. Coverage is the mean share of "
        "the time that was seen, weighted with duration."
    )


def _notes_of_scopes(devices: Sequence[DeviceUse], *, has_ranks: bool) -> Iterator[str]:
    scopes = {device.scope for device in devices}
    if "gpu" in scopes:
        yield (
            "gpu is the whole card of each GPU that the run used, its memory and any other "
            "process on it included."
        )
    if "host" in scopes:
        yield (
            "host is CPU and RAM of each machine of the run with everything that ran there; fans, "
            "disks, network and losses of the power supply are in no figure."
        )
    if "gpu" in scopes and "host" in scopes:
        yield "total is gpu plus host."
    if any(device.counted_in for device in devices):
        yield "A device that is part of another is listed, and counted in that one only."
    if has_ranks:
        yield (
            "Each physical device is counted once, from the journal of the lowest rank that knows "
            "its energy, or of one that went on after that one had died."
        )


def _notes_of_time(report: EnergyReport, attempts: int) -> Iterator[str]:
    if attempts > 1:
        yield (
            f"{attempts} attempts follow each other in every sum and on every time axis; "
            "the pauses between them are left out."
        )
    statuses = {attempt.status for attempt in report.attempts}
    if "running" in statuses:
        yield (
            "The report of a running attempt ends at the newest moment at which the energy of all "
            "phases is final."
        )
    if "cut off" in statuses:
        yield (
            "An attempt without an end is counted up to its last line; what its closed phases "
            "leave of the energy belongs to the phase that was open."
        )
    yield (
        "Phases sum to the total; a window inside a phase, such as a validation inside the "
        "training, is taken out of it."
    )
    yield "A peak of power is the highest mean over one row of the journal, about a second."


def _notes_of_work(report: EnergyReport, *, has_ranks: bool) -> Iterator[str]:
    if report.throughput.steps:
        yield (
            "Joules for a step, a sample or a token are the energy of the phase train, waiting "
            "for data included, over everything that was executed in it, repetitions included."
        )
    if report.throughput.steps and has_ranks:
        yield "Steps are those of the lowest rank; samples and tokens are of all ranks together."
        yield (
            "Of a slow rank, journals show its waits for data, the samples of its steps and the "
            "power of its cards; how long ranks wait for each other is in no figure. A rank stands "
            "out where 95 % intervals tell it from the median of the others, in waits and samples "
            "by at least 1 %."
        )
    yield (
        "Memory of a GPU is what all processes use on the card; host memory is that of the "
        "largest rank with its workers, pages that they share counted more than once."
    )


def notes_of_views(emissions: Emissions | None, cost: Cost | None) -> Iterator[str]:
    """Yield notes on how emissions and cost are computed from the energy."""
    if emissions is not None:
        low, high = emissions.low_kg_per_kwh, emissions.high_kg_per_kwh
        intensity, source = f"lie between {_grams(low)} and {_grams(high)}", emissions.source
        if emissions.kg is not None and emissions.kg_per_kwh is not None:
            intensity = f"are {_grams(emissions.kg_per_kwh)}"
            source = ", ".join(filter(None, (emissions.place, source)))
        yield (
            f"{EMISSIONS_NOTE} {intensity} g CO2e for each kWh ({source}), times the energy, times "
            f"a PUE of {emissions.pue:g}; making the hardware is not included."
        )
    if cost is not None:
        yield f"{PRICE_NOTE} is the energy times the PUE times {figure_format.price(cost)}."


def _grams(mass_kg: float) -> str:
    return formatting.significant(1e3 * mass_kg)

"""The warnings of a report, and the assumptions behind its numbers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from energy_callbacks.core import formatting
from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.model.models import (
    Attempt,
    Cost,
    DeviceUse,
    Emissions,
    ReportWarning,
    Scopes,
    Throughput,
    UnavailableSensor,
)

# Below this share of the time seen, a reader must know that something is missing.
_FULL_COVERAGE = 0.99
# A counter that ticks each 100 ms leaves more than 1 % open in windows below ten seconds.
_SHORT_RUN_S = 10.0
# How the notes of views begin.
EMISSIONS_NOTE, PRICE_NOTE = "Emissions", "The price"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningFacts:
    """Everything that warnings and notes are drawn from."""

    merged: Sequence[MergedAttempt]
    attempts: Sequence[Attempt]
    duration_s: float
    energy: Scopes
    emissions: Emissions | None
    cost: Cost | None
    devices: Sequence[DeviceUse]
    throughput: Throughput
    unavailable: Sequence[UnavailableSensor]
    other_runs: int
    unreadable: Sequence[str]


def warnings(facts: WarningFacts) -> tuple[ReportWarning, ...]:
    """Warnings, gravest first, each one once."""
    found = [
        *_of_files(facts),
        *_of_attempts(facts),
        *_of_devices(facts),
        *_of_origin(facts),
        *_of_place(facts),
        *_of_length(facts),
        *_of_sensors(facts),
        *_of_journals(facts),
    ]
    return tuple(dict.fromkeys(found))


def _of_files(facts: WarningFacts) -> Iterator[ReportWarning]:
    for problem in facts.unreadable:
        yield ReportWarning(
            code="journal_unreadable", message=f"A journal was left out: {problem}."
        )
    if facts.other_runs:
        runs = "run was" if facts.other_runs == 1 else "runs were"
        yield ReportWarning(
            code="other_runs",
            message=f"{facts.other_runs} older {runs} found in the same folder and left out.",
            fix="give each run a folder of its own with report_dir=",
        )

    yield from _of_lost_attempts(facts)


def _of_lost_attempts(facts: WarningFacts) -> Iterator[ReportWarning]:
    """A run that went on from a checkpoint, without the journals of what came before it."""
    first = facts.merged[0].processes
    lost_j = sum(sum(process.before.get("energy_j", {}).values()) for process in first)
    if lost_j:
        yield ReportWarning(
            code="earlier_attempts_lost",
            message=f"This run went on from a checkpoint; the {formatting.energy(lost_j)} that it "
            "had "
            "used before are not in this report, because their journals are not here.",
            fix="keep the run folder of the first attempts where it was",
        )


def _of_attempts(facts: WarningFacts) -> Iterator[ReportWarning]:
    ranks = {attempt.number: _rank_count(attempt) for attempt in facts.merged}
    for attempt in facts.attempts:
        who = f"Attempt {attempt.attempt} (host {attempt.host}, rank {attempt.rank})"
        if attempt.status == "cut off":
            yield _cut_off(attempt, who, ranks[attempt.attempt])
        elif attempt.status == "running":
            yield ReportWarning(
                code="running", message=f"{who} is still running; these are its figures so far."
            )
    if facts.throughput.replayed_steps:
        yield ReportWarning(
            code="replayed_steps",
            message=f"{facts.throughput.replayed_steps} steps were done twice, because an attempt "
            "resumed from an older checkpoint; their energy is in the total.",
            fix="save checkpoints more often",
        )

    for merged in facts.merged:
        yield from _of_missing_ranks(merged)


def _rank_count(attempt: MergedAttempt) -> int:
    return max(int(process.header.get("world_size") or 1) for process in attempt.processes)


def _cut_off(attempt: Attempt, who: str, ranks: int) -> ReportWarning:
    after = formatting.duration(attempt.duration_s)
    if ranks == 1:
        said = f"{who} was cut off after {after}"
    else:
        said = (
            f"Rank {attempt.rank} of {ranks} (attempt {attempt.attempt}, host {attempt.host}) "
            f"ended without a word after {after}"
        )
    return ReportWarning(code="cut_off", message=f"{said}; its last second may be missing.")


def _of_missing_ranks(attempt: MergedAttempt) -> Iterator[ReportWarning]:
    """Ranks of which nothing is known: they never began, or wrote elsewhere."""
    count = _rank_count(attempt)
    missing = sorted(set(range(count)) - {process.rank for process in attempt.processes})
    if missing:
        named = (
            f"Rank {formatting.listed(missing)}"
            if len(missing) == 1
            else f"Ranks {formatting.listed(missing)}"
        )
        yield ReportWarning(
            code="rank_missing",
            message=f"{named} of {count} left no journal in attempt {attempt.number}; the energy "
            "of their devices is in no figure.",
            fix="share one report_dir= between all hosts, or copy the attempts/ of each into one",
        )


def _of_devices(facts: WarningFacts) -> Iterator[ReportWarning]:
    with_energy = [device for device in facts.devices if device.scope is not None]
    if not with_energy:
        yield ReportWarning(
            code="nothing_measured",
            message="No device with energy was seen: every energy is unknown.",
            fix="" if _is_imported(facts) else "run: energy-callbacks doctor",
        )
    for device in with_energy:
        name = f"{device.key} ({device.name}, host {device.host})"
        if device.energy.energy_j is None:
            yield ReportWarning(
                code="energy_unknown",
                message=f"The energy of {name} is not known; the totals leave it out.",
                fix="" if _is_imported(facts) else "run: energy-callbacks doctor",
            )
        elif device.energy.coverage < _FULL_COVERAGE:
            yield ReportWarning(
                code="low_coverage",
                message=f"{name} was seen for {formatting.percent(device.energy.coverage)} of the "
                "time; "
                "the rest of its energy is missing.",
            )


def _is_imported(facts: WarningFacts) -> bool:
    """Whether another program has measured, so that nothing of ours could have done better."""
    return any("imported" in one.header for merged in facts.merged for one in merged.processes)


def _of_origin(facts: WarningFacts) -> Iterator[ReportWarning]:
    estimated = {
        device.scope: device.name
        for device in facts.devices
        if device.origin == "estimated" and device.energy.energy_j is not None
    }
    if "gpu" in estimated:
        yield ReportWarning(
            code="gpu_estimated",
            message="The energy of the GPU is estimated by a model, not measured.",
        )
    if "host" in estimated:
        yield ReportWarning(
            code="host_estimated",
            message="The energy of CPU and RAM is estimated by a model, at least in part.",
            fix="" if facts.unavailable or _is_imported(facts) else "run: energy-callbacks doctor",
        )


def _of_place(facts: WarningFacts) -> Iterator[ReportWarning]:
    if facts.emissions is not None and facts.emissions.kg is None:
        yield ReportWarning(
            code="place_unknown",
            message="Nobody said where this ran: emissions are an interval that holds the grids of "
            "nine in ten countries.",
            fix="pass country= (and region= for USA and CAN), such as country='DEU'",
        )
    elif facts.emissions is None and facts.energy.total.energy_j is not None:
        yield ReportWarning(
            code="emissions_unknown",
            message="Emissions could not be found: CodeCarbon's table cannot be read.",
            fix="run: pip install --force-reinstall 'codecarbon>=2.8,<4'",
        )


def _of_length(facts: WarningFacts) -> Iterator[ReportWarning]:
    is_measured = any(device.origin == "measured" and device.scope for device in facts.devices)
    if facts.duration_s < _SHORT_RUN_S and is_measured:
        yield ReportWarning(
            code="short_run",
            message=f"A run of {formatting.duration(facts.duration_s)} is short for power sensors; "
            "look at the errors before comparing it.",
            fix="measure at least ten seconds",
        )


def _of_sensors(facts: WarningFacts) -> Iterator[ReportWarning]:
    for sensor in facts.unavailable:
        if sensor.fix:
            yield ReportWarning(
                code="sensor_unavailable",
                message=f"{sensor.source} could not be read: {sensor.reason}.",
                fix=sensor.fix,
            )
    missed: Counter[str] = Counter()
    for attempt in facts.merged:
        for process in attempt.processes:
            missed.update((process.totals or {}).get("missed_readings") or {})
    for source, count in sorted(missed.items()):
        if count:
            readings = "reading was" if count == 1 else "readings were"
            yield ReportWarning(
                code="missed_readings", message=f"{source}: {count} {readings} missed."
            )


def _of_journals(facts: WarningFacts) -> Iterator[ReportWarning]:
    for attempt in facts.merged:
        for process in attempt.processes:
            for line in process.warnings:
                yield ReportWarning(
                    code=line["code"], message=line["message"], fix=line.get("fix") or ""
                )


def method_notes(facts: WarningFacts) -> tuple[str, ...]:
    """Each assumption behind the numbers of this report, one sentence each."""
    return (
        *_notes_of_errors(),
        *_notes_of_scopes(facts),
        *_notes_of_time(facts),
        *_notes_of_work(facts),
        *notes_of_views(facts.emissions, facts.cost),
        *_notes_of_sensors(facts),
    )


def _notes_of_errors() -> Iterator[str]:
    yield (
        "An energy is given with the half-width of its 95 % interval: 1.96 standard errors plus "
        "the systematic bound of its sensor or model."
    )
    yield (
        "Where 1.96 standard errors are more than half of a figure, its time was too short for "
        "the sensor: instead of the figure stands what it lies below."
    )
    yield (
        "In sums, random errors add in quadrature and systematic bounds linearly; coverage is "
        "the mean share of the time that was seen, weighted with duration."
    )


def _notes_of_scopes(facts: WarningFacts) -> Iterator[str]:
    scopes = {device.scope for device in facts.devices}
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
    if any(device.counted_in for device in facts.devices):
        yield "A device that is part of another is listed, and counted in that one only."
    if any(len(attempt.processes) > 1 for attempt in facts.merged):
        yield (
            "Each physical device is counted once, from the journal of the lowest rank that knows "
            "its energy, or of one that went on after that one had died."
        )


def _notes_of_time(facts: WarningFacts) -> Iterator[str]:
    if len(facts.merged) > 1:
        yield (
            f"{len(facts.merged)} attempts follow each other in every sum and on every time axis; "
            "the pauses between them are left out."
        )
    if any(attempt.status in ("cut off", "running") for attempt in facts.attempts):
        yield (
            "An attempt without an end is counted up to its last line; what its closed phases "
            "leave of the energy belongs to the phase that was open."
        )
    yield (
        "Phases sum to the total; a window inside a phase, such as a validation inside the "
        "training, is taken out of it."
    )
    yield "A peak of power is the highest mean over one row of the journal, about a second."


def _notes_of_work(facts: WarningFacts) -> Iterator[str]:
    if facts.throughput.steps:
        yield (
            "Joules for a step, a sample or a token are the energy of the phase train, waiting "
            "for data included, over everything that was executed in it, repetitions included."
        )
    if facts.throughput.steps and any(len(attempt.processes) > 1 for attempt in facts.merged):
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


def notes_of_views(found: Emissions | None, cost: Cost | None) -> Iterator[str]:
    """How emissions and money follow from the energy."""
    if found is not None and found.kg is not None and found.kg_per_kwh is not None:
        yield (
            f"{EMISSIONS_NOTE} are {formatting.significant(1e3 * found.kg_per_kwh)} g CO2e for "
            "each kWh "
            f"({found.place}, {found.source}), times the energy, times a PUE of {found.pue:g}; "
            "making the hardware is not included."
        )
    elif found is not None:
        yield (
            f"{EMISSIONS_NOTE} lie between {formatting.significant(1e3 * found.low_kg_per_kwh)} "
            "and "
            f"{formatting.significant(1e3 * found.high_kg_per_kwh)} g CO2e for each kWh "
            f"({found.source}), times the energy, times a PUE of {found.pue:g}; making the "
            "hardware is not included."
        )
    if cost is not None:
        yield (
            f"{PRICE_NOTE} is the energy times the PUE times {cost.price_per_kwh:g} for each "
            "kWh, in the currency of price_per_kwh."
        )


def _notes_of_sensors(facts: WarningFacts) -> Iterator[str]:
    for attempt in facts.merged:
        for process in attempt.processes:
            for remark in process.remarks:
                yield f"{remark['source']}: {remark['message']}."

"""Derives the notes on the assumptions behind the numbers of a report."""

from collections.abc import Iterator, Sequence

from energy_callbacks.core import formatting
from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Cost, Emissions
from energy_callbacks.report.model.runs import DeviceUse
from energy_callbacks.report.model.schema import EnergyReport

# First words of the notes that depend on location, PUE and price. ``footprint.view`` removes the
# notes that begin with these words.
EMISSIONS_NOTE, PRICE_NOTE = "Emissions", "Cost"


def method_notes(report: EnergyReport, merged: Sequence[MergedAttempt]) -> tuple[str, ...]:
    """Return the notes of a report, one text per assumption."""
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
        "The error of an energy is the half-width of its 95 % interval. It combines the random "
        "error (1.96 standard errors), the error from the edges of time spans, and the systematic "
        "bound of the sensor or model, in quadrature."
    )
    yield (
        "If the random error and the error from edges together exceed half of an energy, the time "
        "span was too short for the sensor. The report then shows an upper bound, such as < 1 Wh."
    )
    yield (
        "In sums, random errors add in quadrature. Errors from edges and systematic bounds add "
        "linearly, because they may have the same sign in all parts."
    )


def _notes_of_scopes(devices: Sequence[DeviceUse], *, has_ranks: bool) -> Iterator[str]:
    scopes = {device.scope for device in devices}
    if "gpu" in scopes:
        yield (
            "The scope gpu contains each GPU that the run used: the whole card with its memory, "
            "including other processes on it."
        )
    if "host" in scopes:
        yield (
            "The scope host contains CPU and RAM of each machine of the run, including other "
            "programs. Fans, disks, network and losses of the power supply are not included."
        )
    if machines := [one for one in devices if one.scope == "machine" and one.energy.energy_j]:
        names = ", ".join(f"{one.key} ({one.name}, host {one.host})" for one in machines)
        yield (
            f"The total is the energy of the whole machine, from {names}. It also contains parts "
            "that no other sensor measures, so it is not the sum of gpu and host. Hosts without "
            "such a sensor add their gpu and host."
        )
    elif "gpu" in scopes and "host" in scopes:
        yield "The scope total is the sum of gpu and host."
    if any(device.counted_in for device in devices):
        yield "If the energy of a device contains that of another device, no sum includes both."
    if has_ranks:
        yield (
            "Each physical device is counted once. Its energy comes from the journal of the lowest "
            "rank that measured it, or of another rank if that rank stopped earlier."
        )


def _notes_of_time(report: EnergyReport, attempts: int) -> Iterator[str]:
    if attempts > 1:
        yield (
            f"The run was started {attempts} times. Sums and time axes contain all of these "
            "attempts, without the pauses between them."
        )
    statuses = {attempt.status for attempt in report.attempts}
    if "running" in statuses:
        yield (
            "The report of a running attempt ends at the latest time for which the energy of all "
            "phases is final."
        )
    if "cut off" in statuses:
        yield (
            "An attempt that stopped unexpectedly is counted up to the last line of its journal. "
            "Energy that belongs to no finished phase is assigned to the phase that was active."
        )
    yield (
        "The phases sum to the total. The time of a phase inside another phase, such as a "
        "validation during the training, counts only for the inner phase."
    )
    yield "Peak power is the highest mean power between two rows of the journal, about one second."


def _notes_of_work(report: EnergyReport, *, has_ranks: bool) -> Iterator[str]:
    if report.throughput.steps:
        yield (
            "The energy per step, sample or token is the energy of the phase train, including "
            "waits for data, divided by all steps, samples or tokens that it executed, including "
            "repeated ones."
        )
    if report.throughput.steps and has_ranks:
        yield "Steps are counted on the lowest rank; samples and tokens on all ranks."
        yield (
            "A rank is reported as different if its waits for data or the power of its GPUs differ "
            "from the median of the other ranks by more than the 95 % interval, or its samples per "
            "step by at least 1 %. How long ranks wait for each other is not measured."
        )
    yield (
        "GPU memory is the memory that all processes use on the card. Host memory is that of the "
        "largest rank with its worker processes; shared pages count more than once."
    )


def notes_of_views(emissions: Emissions | None, cost: Cost | None) -> Iterator[str]:
    """Yield notes on how emissions and cost are computed from the energy."""
    if emissions is not None:
        low, high = emissions.low_kg_per_kwh, emissions.high_kg_per_kwh
        intensity, source = f"{_grams(low)} to {_grams(high)}", emissions.source
        if emissions.kg is not None and emissions.kg_per_kwh is not None:
            intensity = _grams(emissions.kg_per_kwh)
            source = ", ".join(filter(None, (emissions.place, source)))
        yield (
            f"{EMISSIONS_NOTE}: energy times a carbon intensity of {intensity} g CO2e per kWh "
            f"({source}) times a PUE of {emissions.pue:g}. The production of the hardware is not "
            "included."
        )
    if cost is not None:
        yield f"{PRICE_NOTE}: energy times PUE times {figure_format.price(cost)}."


def _grams(mass_kg: float) -> str:
    return formatting.significant(1e3 * mass_kg)

"""The sentences of a methods paragraph: what was measured, how, and what is not included.

Each sentence follows from facts of the reports, and names its sources.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from energy_callbacks.core import formatting
from energy_callbacks.report.analysis import embodied as hardware_emissions
from energy_callbacks.report.analysis.embodied import Embodied
from energy_callbacks.report.model.runs import DeviceUse, devices_in_sum
from energy_callbacks.report.render.paper import repeats
from energy_callbacks.report.render.paper.bibliography import keys_in
from energy_callbacks.report.render.paper.repeats import Reports
from energy_callbacks.report.render.paper.rows import grid

_KINDS: Final = {"machine": "whole machine", "gpu": "GPU", "cpu": "CPU", "dram": "memory"}
_METHODS: Final = {
    "counter+samples": "an energy counter and power samples that the driver buffers",
    "counter+power": "an energy counter and polled power",
    "counter": "an energy counter",
    "power": "polled power, integrated over time",
    "model": "a model of the power, integrated over time",
}


class Sentence(NamedTuple):
    """A sentence without its full stop, and the BibTeX keys of its sources."""

    text: str
    keys: tuple[str, ...] = ()


def sentences(
    reports: Reports, embodied: Embodied | None = None, counts: Sequence[int] = ()
) -> Iterator[Sentence]:
    """Yield the sentences about one or more runs.

    Args:
        reports: the runs.
        embodied: embodied emissions of the hardware; ``None`` if not known.
        counts: number of runs of each group; empty if all runs are of one group.
    """
    versions = repeats.texts(reports, lambda one: one.tool_version)
    yield Sentence(f"Energy was measured with energy_callbacks {versions}", ("energy_callbacks",))
    yield from scope(reports)
    yield from sensors(reports)
    yield from coverage(reports)
    yield uncertainty(counts or [len(reports)])
    yield from emissions(reports)
    yield from embodied_emissions(embodied)
    yield from problems(reports)


def _counted(reports: Reports) -> Iterator[DeviceUse]:
    """Yield the devices whose energies are known and make up the total."""
    for report in reports:
        for device in devices_in_sum(report.devices, "total"):
            if device.energy.energy_j is not None:
                yield device


def scope(reports: Reports) -> Iterator[Sentence]:
    """Yield the sentence on the devices of the total, one for each set of devices."""
    found = [tuple(dict.fromkeys(one.kind for one in _counted([report]))) for report in reports]
    sets = [kinds for kinds in dict.fromkeys(found) if kinds]
    for kinds in sets:
        runs = f" of {found.count(kinds)} of {len(found)} runs" if len(sets) > 1 else ""
        if "machine" in kinds:
            yield Sentence(f"The energy{runs} is that of the whole machine")
        else:
            names = " and ".join(_KINDS.get(kind, kind) for kind in kinds)
            yield Sentence(
                f"The energy{runs} is that of {names}; fans, disks, network and losses of the "
                "power supply are not included"
            )


def sensors(reports: Reports) -> Iterator[Sentence]:
    """Yield a sentence for each kind of device and the sensors or models of its energy."""
    yield from dict.fromkeys(map(_sensor, _counted(reports)))


def _sensor(device: DeviceUse) -> Sentence:
    used = [sensor for sensor in device.sensors if sensor.quantity in ("energy", "power")]
    names = " and ".join(dict.fromkeys(sensor.name for sensor in used)) or "an imported log"
    methods = device.energy.method.split(", ")
    how = " or ".join(_METHODS.get(method, method) for method in methods)
    cited = "; ".join(dict.fromkeys(sensor.citation for sensor in used if sensor.citation))
    source = f"; errors and other properties: {cited}" if cited else ""
    verb = "estimated" if device.origin == "estimated" else "computed"
    kind = _KINDS.get(device.kind, device.kind)
    text = f"The energy of the {kind} was {verb} from {names} ({how}{source})"
    return Sentence(text, keys_in(f"{names} {cited}"))


def coverage(reports: Reports) -> Iterator[Sentence]:
    """Yield the covered share of the time, and the measured share of the energy, if known."""
    covered = repeats.least([one.energy.total.coverage for one in reports])
    yield Sentence(f"Readings cover {covered} of the time")
    known = [one.measured_fraction for one in reports if one.measured_fraction is not None]
    if known and min(known) < 1.0:
        yield Sentence(
            f"Sensors measured {repeats.least(known)} of the energy, and models estimated the rest"
        )


def uncertainty(counts: Sequence[int]) -> Sentence:
    """Return the sentence on the intervals of groups with these numbers of runs."""
    if max(counts) == 1:
        return Sentence(
            "Intervals (95 %) combine random errors, errors from the edges of time spans and the "
            "systematic bounds of the sensors or models in quadrature; they do not include "
            "differences between repeated runs"
        )
    runs = " and ".join(map(str, dict.fromkeys(counts)))
    return Sentence(
        f"Values are means of {runs} runs; intervals (95 %) combine the interval of the mean over "
        "the runs (Student's t distribution) with errors from the edges of time spans and the "
        "systematic bounds of the sensors or models in quadrature"
    )


def emissions(reports: Reports) -> Iterator[Sentence]:
    """Yield the computation of the emissions, if they are known."""
    found = [one.emissions for one in reports if one.emissions is not None]
    if not found:
        return
    sources = "; ".join(dict.fromkeys(one.source for one in found))
    is_located = all(one.kg is not None for one in found)
    details = f"{repeats.texts(reports, grid)}; {sources}" if is_located else sources
    pue = " or ".join(dict.fromkeys(f"{one.pue:g}" for one in found))
    text = f"Emissions are energy times a PUE of {pue} times the carbon intensity of the grid"
    yield Sentence(f"{text} ({details})", keys_in(sources))
    if any(one.pue == 1.0 for one in found):
        yield Sentence("A PUE of 1 means that the overhead of the building is not included")


def embodied_emissions(embodied: Embodied | None) -> Iterator[Sentence]:
    """Yield how embodied emissions are included, or that they are not."""
    if embodied is None:
        text = hardware_emissions.NOT_INCLUDED
    else:
        method = hardware_emissions.METHOD
        given = f"{formatting.mass(embodied.kg)}CO2e, {embodied.lifetime_years:g} years"
        text = f"The share of embodied emissions is not part of the emissions: {method} ({given})"
    yield Sentence(text, keys_in(text))


def problems(reports: Reports) -> Iterator[Sentence]:
    """Yield why the energy is not that of a whole run, if a run did not finish or has gaps."""
    found = [one for report in reports for one in report.warnings if one.invalidates_total]
    for message in dict.fromkeys(one.message for one in found):
        yield Sentence(f"The energy is not that of the whole run: {message.rstrip('.')}")
    unfinished = [one.run.status for one in reports if one.run.status != "finished"]
    if unfinished:
        states = ", ".join(dict.fromkeys(unfinished))
        runs = f"{len(unfinished)} of {len(reports)} runs" if len(reports) > 1 else "The run"
        yield Sentence(f"{runs} did not finish ({states})")

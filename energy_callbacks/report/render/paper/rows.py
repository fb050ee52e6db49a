"""Rows of the table of a training: number of runs, means with 95 % intervals, and conditions."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from energy_callbacks.core import formatting
from energy_callbacks.report.analysis.embodied import Embodied
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.model_card import hardware
from energy_callbacks.report.render.paper import repeats
from energy_callbacks.report.render.paper.repeats import Reports


class PaperRow(NamedTuple):
    """A row: name, mean with unit, and 95 % interval (empty if there is none)."""

    name: str
    value: str
    interval: str = ""


def amounts(reports: Reports, embodied: Embodied | None) -> Iterator[PaperRow]:
    """Yield the rows of numbers."""
    yield PaperRow("Runs (n)", str(len(reports)))
    yield from _energies(reports)
    if (known := repeats.ratio(reports)) is not None:
        unit, ratio = known
        interval = figure_format.ratio_interval(ratio)
        yield PaperRow(f"Energy per {unit}", figure_format.ratio(ratio), interval)
    durations_s = [one.run.duration_s for one in reports]
    yield _time(durations_s)
    yield _emissions(reports)
    if embodied is not None:
        share_kg = fmean(embodied.share_kg(one) for one in durations_s)
        yield PaperRow("Embodied emissions, share", f"{formatting.mass(share_kg)}CO2e")


def conditions(reports: Reports) -> Iterator[PaperRow]:
    """Yield the rows of texts: hardware, PUE, and grid with its year."""
    yield PaperRow("Hardware", repeats.texts(reports, equipment))
    yield PaperRow("PUE", repeats.texts(reports, _pue))
    yield PaperRow("Grid, year", repeats.texts(reports, grid))


def _energies(reports: Reports) -> Iterator[PaperRow]:
    scopes = {device.scope for one in reports for device in one.devices}
    for name, scope in (("Energy", "total"), ("of which GPU", "gpu"), ("of which host", "host")):
        if scope == "total" or scope in scopes:
            yield _energy(name, repeats.energy(reports, scope))
    shares = [one.measured_fraction for one in reports if one.measured_fraction is not None]
    if shares:
        yield PaperRow("Measured by sensors", repeats.least(shares))


def _energy(name: str, figure: Figure) -> PaperRow:
    """Return the row of an energy, with as many decimals as its error justifies."""
    if figure.energy_j is None or not figure.is_resolved or figure_format.is_order_only(figure):
        return PaperRow(name, figure_format.energy_with_error(figure))
    size, unit = formatting.in_unit(figure.energy_j, formatting.ENERGY_UNITS)
    value, _ = formatting.with_error(figure.energy_j / size, figure.error_j / size)
    decimals = len(value.partition(".")[2])
    ends_j = (max(figure.energy_j - figure.error_j, 0.0), figure.energy_j + figure.error_j)
    low, high = (f"{end_j / size:.{decimals}f}" for end_j in ends_j)
    return PaperRow(name, f"{value} {unit}", f"{low} to {high} {unit}")


def _time(durations_s: Sequence[float]) -> PaperRow:
    mean_s, error_s = fmean(durations_s), repeats.half_width(durations_s)
    ends = [formatting.duration(max(end_s, 0.0)) for end_s in (mean_s - error_s, mean_s + error_s)]
    interval = "" if ends[0] == ends[1] else " to ".join(ends)
    return PaperRow("Time", formatting.duration(mean_s), interval)


def _emissions(reports: Reports) -> PaperRow:
    mean = repeats.emissions(reports)
    if mean is None:
        return PaperRow("Emissions", formatting.UNKNOWN)
    value = "location not set" if mean.kg is None else figure_format.emissions(mean)
    return PaperRow("Emissions", value, f"{figure_format.emissions_interval(mean)}CO2e")


def equipment(report: EnergyReport) -> str:
    """Return the number and name of GPUs and CPUs; without these, of memory or the machine."""
    names = hardware(report, "gpu", "cpu") or hardware(report, "dram", "machine")
    return names or formatting.UNKNOWN


def grid(report: EnergyReport) -> str:
    """Return location, carbon intensity and year of the grid."""
    emissions = report.emissions
    if emissions is None:
        return formatting.UNKNOWN
    year = str(emissions.year) if emissions.year else "year not known"
    intensity = figure_format.carbon_intensity(emissions)
    if not intensity:
        return "location not set"
    return ", ".join(filter(None, (emissions.place, intensity, year)))


def _pue(report: EnergyReport) -> str:
    return f"{report.emissions.pue:g}" if report.emissions else formatting.UNKNOWN

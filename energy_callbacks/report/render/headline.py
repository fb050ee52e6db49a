"""The headline of a report: energy, efficiency, emissions and others, as text."""

from collections.abc import Iterator
from dataclasses import dataclass

from energy_callbacks.core import formatting
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.models import Figure, FigureOrigin, Ratio
from energy_callbacks.report.model.schema import EnergyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineCard:
    """One number with its name.

    Attributes:
        value: number and unit, or ``not known``.
        detail: error, place, or what else belongs to it.
        origin: badge of an energy; ``None`` for anything else.
    """

    label: str
    value: str
    detail: str = ""
    origin: FigureOrigin | None = None


def cards(report: EnergyReport) -> tuple[HeadlineCard, ...]:
    """The headline of a report, in the order in which people look."""
    return (
        *_energies(report),
        _emissions(report),
        *_cost(report),
        *_forecast(report),
        *_efficiency(report),
        *_speed(report),
        *_memory(report),
    )


def _energies(report: EnergyReport) -> Iterator[HeadlineCard]:
    yield _energy("Energy in total", report.energy.total, _measured_share(report))
    for label, scope, figure in (
        ("GPU", "gpu", report.energy.gpu),
        ("Host (CPU and RAM)", "host", report.energy.host),
    ):
        if any(device.scope == scope for device in report.devices):
            yield _energy(label, figure, _mean_power(report, figure))
        else:
            yield HeadlineCard(
                label=label, value="none", detail="no such device was seen in this run"
            )


def _energy(label: str, figure: Figure, detail: str) -> HeadlineCard:
    return HeadlineCard(
        label=label,
        value=figure_format.energy_with_error(figure),
        detail=detail,
        origin=figure.origin,
    )


def _measured_share(report: EnergyReport) -> str:
    if report.measured_fraction is None or report.energy.total.origin != "mixed":
        return ""
    return f"{formatting.percent(report.measured_fraction)} of it measured"


def _mean_power(report: EnergyReport, figure: Figure) -> str:
    if figure.energy_j is None or not figure.is_resolved or report.run.duration_s <= 0.0:
        return ""
    return f"{formatting.power(figure.energy_j / report.run.duration_s)} on average"


def _emissions(report: EnergyReport) -> HeadlineCard:
    found = report.emissions
    if found is None:
        return HeadlineCard(
            label="Emissions", value=formatting.UNKNOWN, detail="because the energy is not"
        )
    if found.kg is None or found.kg_per_kwh is None:
        return HeadlineCard(
            label="Emissions",
            value=figure_format.emissions(found),
            detail="place not known: the grids of nine in ten countries",
        )
    return HeadlineCard(
        label="Emissions",
        value=figure_format.emissions(found),
        detail=f"{found.place}, {formatting.significant(1e3 * found.kg_per_kwh)} g/kWh; "
        + figure_format.emissions_interval(found),
    )


def _cost(report: EnergyReport) -> Iterator[HeadlineCard]:
    if report.cost is not None:
        yield HeadlineCard(
            label="Cost of electricity",
            value=figure_format.money(report.cost),
            detail=f"at {report.cost.price_per_kwh:g} per kWh",
        )


def _forecast(report: EnergyReport) -> Iterator[HeadlineCard]:
    """What the run was to use, beside what it has used."""
    found = report.forecast
    if found is not None:
        foreseen = Figure(energy_j=found.energy_j, systematic_j=found.energy_error_j)
        yield HeadlineCard(
            label=f"Forecast after {found.after}",
            value=figure_format.energy_with_error(foreseen),
            detail=f"in {formatting.duration(found.duration_s)}, for {found.planned_steps} steps",
        )


def _efficiency(report: EnergyReport) -> Iterator[HeadlineCard]:
    """Joules for the finest unit of work that was counted, on the GPUs if there are any."""
    has_gpu = report.energy.gpu.energy_j is not None
    found = report.efficiency.gpu if has_gpu else report.efficiency.total
    scope = "GPU" if has_gpu else "total"
    units: tuple[tuple[str, Ratio | None], ...] = (
        ("token", found.j_per_token),
        ("sample", found.j_per_sample),
        ("step", found.j_per_step),
    )
    known = [(unit, ratio) for unit, ratio in units if ratio is not None]
    for unit, ratio in known[:2] if found.j_per_token else known[:1]:
        yield HeadlineCard(
            label=f"Energy per {unit} ({scope})",
            value=figure_format.ratio(ratio),
            detail=figure_format.ratio_interval(ratio),
        )


def _speed(report: EnergyReport) -> Iterator[HeadlineCard]:
    done = report.throughput
    detail = _waiting(report)
    if done.samples_per_s is not None:
        yield HeadlineCard(
            label="Samples per second", value=formatting.grouped(done.samples_per_s), detail=detail
        )
    elif done.steps and done.train_s > 0.0:
        rate = (done.steps + done.replayed_steps) / done.train_s
        yield HeadlineCard(label="Steps per second", value=formatting.grouped(rate), detail=detail)
    if done.tokens_per_s is not None:
        yield HeadlineCard(label="Tokens per second", value=formatting.grouped(done.tokens_per_s))


def _waiting(report: EnergyReport) -> str:
    """Time, and energy of the GPUs if there are any, that training spent waiting for data."""
    share, found = report.throughput.data_wait_fraction, report.throughput.data_wait
    if share is None:
        return ""
    text = f"{formatting.percent(share)} of training waits for data"
    energy = None if found is None else found.gpu or found.total
    scope = "GPU" if found is not None and found.gpu else "total"
    return (
        text
        if energy is None or not share
        else f"{text}; {scope} {figure_format.wait_energy(energy)}"
    )


def _memory(report: EnergyReport) -> Iterator[HeadlineCard]:
    found = report.memory
    if found.device_used_peak_bytes is not None:
        details = (
            (found.device_used_mean_bytes, "on average"),
            (found.peak_allocated_bytes, "at most by the framework"),
        )
        yield HeadlineCard(
            label="Peak memory of a GPU",
            value=formatting.size(found.device_used_peak_bytes),
            detail=", ".join(
                f"{formatting.size(size_bytes)} {what}"
                for size_bytes, what in details
                if size_bytes is not None
            ),
        )
    if found.host_rss_peak_bytes is not None:
        yield HeadlineCard(
            label="Peak memory of the host",
            value=formatting.size(found.host_rss_peak_bytes),
            detail=f"{formatting.size(found.host_rss_mean_bytes)} on average",
        )

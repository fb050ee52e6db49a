"""Builds the cards at the top of a report, from energy and emissions to speed and memory."""

from collections.abc import Iterator
from dataclasses import dataclass

from energy_callbacks.core import formatting
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Efficiency, Figure, FigureOrigin, Ratio
from energy_callbacks.report.model.schema import EnergyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineCard:
    """A value with its label.

    Attributes:
        label: name of the value.
        value: number and unit as text; ``not known`` or ``none`` if there is no number.
        detail: further information, such as the interval or the location; may be empty.
        origin: ``measured``, ``estimated`` or ``mixed``, for cards that show total, GPU or host
            energy. ``None`` for all other cards, and if the energy is not known.
    """

    label: str
    value: str
    detail: str = ""
    origin: FigureOrigin | None = None


def cards(report: EnergyReport) -> tuple[HeadlineCard, ...]:
    """Return the cards of a report, the most important card first."""
    return (
        *_energies(report),
        _emissions(report),
        *_cost(report),
        *_efficiency(report),
        *_speed(report),
        *_memory(report),
        *_forecast(report),
    )


def _energies(report: EnergyReport) -> Iterator[HeadlineCard]:
    energy = report.energy
    is_mixed = report.measured_fraction is not None and energy.total.origin == "mixed"
    details = ["whole machine"] if figure_format.has_machine(report.devices) else []
    details += [f"{formatting.percent(report.measured_fraction)} measured"] if is_mixed else []
    yield _energy("Total energy", energy.total, ", ".join(details))
    for label, scope, figure in (
        ("GPU", "gpu", energy.gpu),
        ("Host (CPU and RAM)", "host", energy.host),
    ):
        if any(device.scope == scope for device in report.devices):
            yield _energy(label, figure, _mean_power(report, figure))
        else:
            yield HeadlineCard(label=label, value="none", detail="not in this run or not measured")


def _energy(label: str, figure: Figure, detail: str) -> HeadlineCard:
    value = figure_format.energy_with_error(figure)
    if figure_format.is_order_only(figure):
        detail = ", ".join(filter(None, (figure_format.ORDER_ONLY, detail)))
    return HeadlineCard(label=label, value=value, detail=detail, origin=figure.origin)


def _mean_power(report: EnergyReport, figure: Figure) -> str:
    if figure.energy_j is None or not figure.is_resolved or report.run.duration_s <= 0.0:
        return ""
    return f"mean {formatting.power(figure.energy_j / report.run.duration_s)}"


def _emissions(report: EnergyReport) -> HeadlineCard:
    emissions = report.emissions
    if emissions is None:
        detail = "the energy is not known"
    elif emissions.kg is None:
        detail = "location not set: 90 % of national grids"
    else:
        grid = (emissions.place, figure_format.carbon_intensity(emissions))
        interval = figure_format.emissions_interval(emissions)
        detail = f"{', '.join(filter(None, grid))}; {interval}"
    value = figure_format.emissions(emissions)
    return HeadlineCard(label="Emissions", value=value, detail=detail)


def _cost(report: EnergyReport) -> Iterator[HeadlineCard]:
    if report.cost is not None:
        value = figure_format.money(report.cost)
        detail = f"at {figure_format.price(report.cost)}"
        yield HeadlineCard(label="Cost of electricity", value=value, detail=detail)


def _forecast(report: EnergyReport) -> Iterator[HeadlineCard]:
    """Yield a card with the newest forecast; no card if there is no forecast.

    The interval of a forecast does not contain the errors of sensors and models, so the card says
    so: its interval may be much narrower than that of the total energy.
    """
    forecast = report.forecast
    if forecast is not None:
        figure = Figure(energy_j=forecast.energy_j, systematic_j=forecast.energy_error_j)
        duration = formatting.duration(forecast.duration_s)
        yield HeadlineCard(
            label=f"Forecast after {forecast.after}",
            value=figure_format.energy_with_error(figure),
            detail=f"{formatting.grouped(forecast.planned_steps)} steps in {duration}; the "
            "interval does not include the errors of sensors and models",
        )


def _efficiency(report: EnergyReport) -> Iterator[HeadlineCard]:
    """Yield a card with the energy per unit of work, for the finest unit that is known.

    If that unit is the token, a second card shows the energy per sample or, if that is not known,
    per step. The energy is that of the GPUs if it is known, otherwise the total.
    """
    has_gpu = report.energy.gpu.energy_j is not None
    known = known_ratios(report.efficiency.gpu if has_gpu else report.efficiency.total)
    scope = "GPU" if has_gpu else "total"
    for unit, ratio in known[:2] if known and known[0][0] == "token" else known[:1]:
        yield HeadlineCard(
            label=f"Energy per {unit} ({scope})",
            value=figure_format.ratio(ratio),
            detail=figure_format.ratio_interval(ratio),
        )


def known_ratios(efficiency: Efficiency) -> list[tuple[str, Ratio]]:
    """Return the known energies per unit of work as (unit, energy), the finest unit first."""
    ratios = (
        ("token", efficiency.j_per_token),
        ("sample", efficiency.j_per_sample),
        ("step", efficiency.j_per_step),
    )
    return [(unit, ratio) for unit, ratio in ratios if ratio is not None]


def _speed(report: EnergyReport) -> Iterator[HeadlineCard]:
    done = report.throughput
    detail = _waiting(report)
    if done.samples_per_s is not None:
        rate = formatting.grouped(done.samples_per_s)
        yield HeadlineCard(label="Samples per second", value=rate, detail=detail)
    elif done.steps and done.train_s > 0.0:
        rate = formatting.grouped((done.steps + done.replayed_steps) / done.train_s)
        yield HeadlineCard(label="Steps per second", value=rate, detail=detail)
    if done.tokens_per_s is not None:
        yield HeadlineCard(label="Tokens per second", value=formatting.grouped(done.tokens_per_s))


def _waiting(report: EnergyReport) -> str:
    """Return a text about waits for data: their share of the training time, and their energy.

    The text is empty if the share is not known. The energy is that of the GPUs if it is known,
    otherwise the total.
    """
    share, wait = report.throughput.data_wait_fraction, report.throughput.data_wait
    if share is None:
        return ""
    text = f"{formatting.percent(share)} of the training time waiting for data"
    energy = None if wait is None else wait.gpu or wait.total
    if wait is None or energy is None or not share:
        return text
    scope = "GPU" if wait.gpu else "total"
    return f"{text}; energy while waiting ({scope}): {figure_format.wait_energy(energy)}"


def _memory(report: EnergyReport) -> Iterator[HeadlineCard]:
    memory = report.memory
    if memory.device_used_peak_bytes is not None:
        details = (
            ("mean", memory.device_used_mean_bytes),
            ("peak allocated by the framework", memory.peak_allocated_bytes),
        )
        known = [
            f"{what} {formatting.size(n_bytes)}" for what, n_bytes in details if n_bytes is not None
        ]
        peak = formatting.size(memory.device_used_peak_bytes)
        yield HeadlineCard(label="Peak GPU memory", value=peak, detail=", ".join(known))
    if memory.host_rss_peak_bytes is not None:
        peak = formatting.size(memory.host_rss_peak_bytes)
        mean = f"mean {formatting.size(memory.host_rss_mean_bytes)}"
        yield HeadlineCard(label="Peak host memory", value=peak, detail=mean)

"""A report at another location, PUE or price: the same energy, other emissions and cost."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.report.analysis import warnings
from energy_callbacks.report.collect import footprint
from energy_callbacks.report.model.models import Figure, Forecast
from energy_callbacks.report.model.schema import EnergyReport

if TYPE_CHECKING:
    from energy_callbacks.accounting.metrics.carbon import Intensity, Place

_ORIGIN = "given when the report was drawn again"
_VIEW_NOTE = "This is a view of a run at another place, PUE or price"
_PLACE_WARNINGS = ("place_unknown", "emissions_unknown")


def view(
    report: EnergyReport,
    *,
    country: str | None = None,
    region: str | None = None,
    pue: float | None = None,
    price_per_kwh: float | None = None,
) -> EnergyReport:
    """The same run with emissions and money worked out anew from the energy that it has.

    Args:
        report: of the run; it stays as it is.
        country: as ``EnergyConfig`` takes it, like the others; ``None`` keeps what the run said.
        region: of that country.
        pue: power usage effectiveness.
        price_per_kwh: in any currency.

    Raises:
        ValueError: for a place that is not known, or a number that cannot be.
    """
    total = report.energy.total
    pue = _pue(report) if pue is None else pue
    if price_per_kwh is None and report.cost is not None:
        price_per_kwh = report.cost.price_per_kwh
    EnergyConfig(country=country, region=region, pue=pue, price_per_kwh=price_per_kwh)
    place, intensity = _grid(report, country, region)
    emissions = None
    if total.energy_j is not None and intensity is not None:
        emissions = footprint.emissions_with(total, intensity, pue)
    cost = footprint.cost_with(total, price_per_kwh, pue)
    is_placed = emissions is not None and emissions.kg is not None
    return replace(
        report,
        emissions=emissions,
        cost=cost,
        forecast=_forecast(report.forecast, intensity, pue),
        warnings=tuple(
            one for one in report.warnings if not (is_placed and one.code in _PLACE_WARNINGS)
        ),
        method_notes=(
            *(note for note in report.method_notes if not _is_of_view(note)),
            *warnings.notes_of_views(emissions, cost),
            _note(report),
        ),
        environment=_environment(report, place, pue, price_per_kwh),
    )


def _note(before: EnergyReport) -> str:
    """What the run itself said; a view of a view names the run."""
    for note in before.method_notes:
        if note.startswith(_VIEW_NOTE):
            return note
    place = before.emissions.place if before.emissions else None
    price = f"a price of {before.cost.price_per_kwh:g}" if before.cost else "no price"
    return (
        f"{_VIEW_NOTE}: the run itself had {place or 'no place'}, a PUE of {_pue(before):g} and "
        f"{price}; its energy is unchanged."
    )


def _pue(report: EnergyReport) -> float:
    if report.emissions is not None:
        return report.emissions.pue
    return float(report.environment.get("config.pue", 1.0))


def _grid(
    report: EnergyReport, country: str | None, region: str | None
) -> "tuple[Place | None, Intensity | None]":
    """The place that was asked for and its grid, else the grid that the report has."""
    from energy_callbacks.accounting.metrics import carbon

    if country is not None:
        place = replace(carbon.place(country, region), origin=_ORIGIN)
        return place, carbon.intensity(place)
    found = report.emissions
    if found is None:
        return None, None
    names = ("kg_per_kwh", "low_kg_per_kwh", "high_kg_per_kwh", "place", "source", "year")
    return None, carbon.Intensity(**{name: getattr(found, name) for name in names})


def _forecast(found: Forecast | None, intensity: "Intensity | None", pue: float) -> Forecast | None:
    if found is None or intensity is None:
        return found
    foreseen = Figure(energy_j=found.energy_j, systematic_j=found.energy_error_j)
    emissions = footprint.emissions_with(foreseen, intensity, pue)
    return replace(
        found,
        emissions_kg=emissions.kg,
        emissions_low_kg=emissions.low_kg,
        emissions_high_kg=emissions.high_kg,
    )


def _is_of_view(note: str) -> bool:
    return note.startswith((warnings.EMISSIONS_NOTE, warnings.PRICE_NOTE, _VIEW_NOTE))


def _environment(
    report: EnergyReport, place: "Place | None", pue: float, price_per_kwh: float | None
) -> dict[str, str]:
    """That of the run with the settings of the view."""
    found = {**report.environment, "config.pue": str(pue)}
    if price_per_kwh is not None:
        found["config.price_per_kwh"] = str(price_per_kwh)
    if place is None:
        return found
    elsewhere = {f"config.place.{name}": value for name, value in asdict(place).items()}
    kept = {name: value for name, value in found.items() if name not in elsewhere}
    return kept | {name: value for name, value in elsewhere.items() if value is not None}

"""Computes emissions and cost of a run, also for another location, PUE or price."""

from dataclasses import asdict, fields, replace

from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.carbon import Intensity, Place
from energy_callbacks.core.settings.checks import check_currency, check_settings
from energy_callbacks.core.units import kilowatt_hours
from energy_callbacks.report.analysis import method_notes
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Cost, Emissions, Figure, Forecast
from energy_callbacks.report.model.schema import EnergyReport

# Origin of a location that was passed to ``view``.
_ORIGIN = "set when the report was rendered again"
# First words of the note that ``view`` adds.
_VIEW_NOTE = "This report uses another location, PUE or price than the run"
# Codes of the warnings that ``view`` removes if the new emissions are known.
_PLACE_WARNINGS = ("place_unknown", "emissions_unknown", "carbon_intensity_gap")


def emissions(total: Figure, intensity: Intensity | None, pue: float) -> Emissions | None:
    """Return the emissions of a run: energy times PUE times carbon intensity.

    Args:
        total: energy of the run.
        intensity: carbon intensity of the run.
        pue: power usage effectiveness.

    Returns:
        The emissions; ``None`` if energy or carbon intensity are ``None``.
    """
    if total.energy_j is None or intensity is None:
        return None
    return _emissions(total, intensity, pue)


def _emissions(total: Figure, intensity: Intensity, pue: float) -> Emissions:
    """Return the emissions of a known energy."""
    kg, low_kg, high_kg = carbon.emissions(total, intensity, pue)
    assert low_kg is not None, "a known energy has an interval"
    assert high_kg is not None, "a known energy has an interval"
    return Emissions(kg=kg, low_kg=low_kg, high_kg=high_kg, **asdict(intensity), pue=pue)


def cost(
    total: Figure, price_per_kwh: float | None, currency: str | None, pue: float
) -> Cost | None:
    """Return energy times PUE times price; ``None`` if energy or price is not known."""
    if total.energy_j is None or price_per_kwh is None:
        return None
    amount = kilowatt_hours(total.energy_j) * pue * price_per_kwh
    return Cost(price_per_kwh=price_per_kwh, amount=amount, currency=currency)


def view(
    report: EnergyReport,
    *,
    country: str | None = None,
    region: str | None = None,
    pue: float | None = None,
    price_per_kwh: float | None = None,
    currency: str | None = None,
) -> EnergyReport:
    """Return a *view*: a copy of a report with emissions and cost for other settings.

    Args:
        report: report of the run; it is not changed.
        country: country, as in ``EnergyConfig``; ``None`` keeps the location of ``report``.
        region: region of ``country``, as in ``EnergyConfig``; ``None`` for the whole country.
            Without ``country``, ``None`` keeps the location of ``report``.
        pue: power usage effectiveness; ``None`` keeps the PUE of ``report``.
        price_per_kwh: price of electricity; ``None`` keeps the price of ``report``.
        currency: code of the currency of the price, such as ``EUR``. ``None`` keeps the currency of
            ``report``, unless there is a new price.

    Raises:
        ValueError: if the location is unknown, if ``region`` is given without ``country``, if a
            number is out of range, or if there is a currency without a price.
    """
    total = report.energy.total
    pue = _pue(report) if pue is None else pue
    if price_per_kwh is None and report.cost is not None:
        price_per_kwh = report.cost.price_per_kwh
        currency = currency or report.cost.currency
    names = {"country": country, "region": region, "pue": pue}
    check_settings(**names, price_per_kwh=price_per_kwh)
    check_currency(currency, price_per_kwh)
    place, intensity = _grid(report, country, region)
    new_emissions = emissions(total, intensity, pue)
    new_cost = cost(total, price_per_kwh, currency, pue)
    # The new settings make these warnings and notes obsolete.
    codes = _PLACE_WARNINGS if new_emissions is not None and new_emissions.kg is not None else ()
    obsolete = (method_notes.EMISSIONS_NOTE, method_notes.PRICE_NOTE, _VIEW_NOTE)
    return replace(
        report,
        emissions=new_emissions,
        cost=new_cost,
        forecast=_forecast(report.forecast, intensity, pue),
        warnings=tuple(one for one in report.warnings if one.code not in codes),
        method_notes=(
            *(note for note in report.method_notes if not note.startswith(obsolete)),
            *method_notes.notes_of_views(new_emissions, new_cost),
            _note(report),
        ),
        environment=_environment(
            report, place, pue=pue, price_per_kwh=price_per_kwh, currency=currency
        ),
    )


def _note(before: EnergyReport) -> str:
    """Return a note with the settings of the run itself, even if ``before`` is a view of it."""
    for note in before.method_notes:
        if note.startswith(_VIEW_NOTE):
            return note
    place = before.emissions.place if before.emissions else None
    price = f"a price of {figure_format.price(before.cost)}" if before.cost else "no price"
    return (
        f"{_VIEW_NOTE}. The settings of the run: {place or 'no location'}, a PUE of "
        f"{_pue(before):g} and {price}. The energy is unchanged."
    )


def _pue(report: EnergyReport) -> float:
    run_pue = float(report.environment.get("config.pue", 1.0))
    return report.emissions.pue if report.emissions else run_pue


def _grid(
    report: EnergyReport, country: str | None, region: str | None
) -> tuple[Place | None, Intensity | None]:
    """Return the given location and its carbon intensity.

    If none is given, the location is ``None`` and the intensity is that of the report.
    """
    if country is not None:
        place = replace(carbon.place(country, region), origin=_ORIGIN)
        return place, carbon.intensity(place)
    if report.emissions is None:
        return None, None
    names = [field.name for field in fields(Intensity)]
    return None, Intensity(**{name: getattr(report.emissions, name) for name in names})


def _forecast(old: Forecast | None, intensity: Intensity | None, pue: float) -> Forecast | None:
    if old is None or intensity is None:
        return old
    energy = Figure(energy_j=old.energy_j, systematic_j=old.energy_error_j)
    new = _emissions(energy, intensity, pue)
    return replace(
        old, emissions_kg=new.kg, emissions_low_kg=new.low_kg, emissions_high_kg=new.high_kg
    )


def _environment(
    report: EnergyReport, place: Place | None, **settings: float | str | None
) -> dict[str, str]:
    """Return the environment of the run with the location and other settings of the view."""
    new = {f"config.{name}": str(value) for name, value in settings.items() if value is not None}
    found = {**report.environment, **new}
    if place is None:
        return found
    elsewhere = {f"config.place.{name}": value for name, value in asdict(place).items()}
    replaced = {*elsewhere, "config.carbon_intensity"}
    kept = {name: value for name, value in found.items() if name not in replaced}
    return kept | {name: value for name, value in elsewhere.items() if value is not None}

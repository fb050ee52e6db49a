"""Emissions and cost of the energy of a run."""

import logging
from typing import TYPE_CHECKING

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.units import kilowatt_hours
from energy_callbacks.report.model.models import (
    Cost,
    Emissions,
    Figure,
)

if TYPE_CHECKING:
    from energy_callbacks.accounting.metrics.carbon import Intensity, Place

logger = logging.getLogger("energy_callbacks")


def emissions(total: Figure, config: Record) -> Emissions | None:
    """Greenhouse gas of the run's energy, PUE included; ``None`` if it cannot be found."""
    if total.energy_j is None:
        return None
    from energy_callbacks.accounting.metrics import carbon

    pue = float(config.get("pue") or 1.0)
    try:
        intensity = carbon.intensity(_place(config))
    except Exception as error:  # noqa: BLE001 - what only emissions need must not end the report
        logger.warning("emissions cannot be found: %s", error)
        return None
    return emissions_with(total, intensity, pue)


def emissions_with(total: Figure, intensity: "Intensity", pue: float) -> Emissions:
    """Greenhouse gas of a known energy at a place whose grid is looked up."""
    from energy_callbacks.accounting.metrics import carbon

    found = carbon.emissions(total, intensity, pue)
    assert found.low_kg is not None, "a known energy has an interval"
    assert found.high_kg is not None, "a known energy has an interval"
    return Emissions(
        kg=found.kg,
        low_kg=found.low_kg,
        high_kg=found.high_kg,
        place=intensity.place,
        source=intensity.source,
        year=intensity.year,
        kg_per_kwh=intensity.kg_per_kwh,
        low_kg_per_kwh=intensity.low_kg_per_kwh,
        high_kg_per_kwh=intensity.high_kg_per_kwh,
        pue=pue,
    )


def _place(config: Record) -> "Place":
    """The place as the run resolved it, so that a journal means the same on any machine."""
    from energy_callbacks.accounting.metrics import carbon

    found = config.get("place") or {}
    return carbon.Place(
        country=found.get("country"),
        country_name=found.get("country_name"),
        region=found.get("region"),
        origin=found.get("origin") or "not set",
    )


def cost(total: Figure, config: Record) -> Cost | None:
    """Money for the run's energy, PUE included; ``None`` without a price."""
    return cost_with(total, config.get("price_per_kwh"), float(config.get("pue") or 1.0))


def cost_with(total: Figure, price_per_kwh: float | None, pue: float) -> Cost | None:
    """Likewise at a price of one's own."""
    if total.energy_j is None or price_per_kwh is None:
        return None
    return Cost(
        price_per_kwh=price_per_kwh,
        amount=kilowatt_hours(total.energy_j) * pue * price_per_kwh,
    )

"""Emissions and cost of the energy of a run."""

import logging
from dataclasses import asdict
from typing import TYPE_CHECKING

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.units import kilowatt_hours
from energy_callbacks.report.model.models import Cost, Emissions, Figure

if TYPE_CHECKING:
    from energy_callbacks.accounting.metrics.carbon import Intensity

logger = logging.getLogger("energy_callbacks")


def emissions(total: Figure, config: Record) -> Emissions | None:
    """Returns the emissions of the run's energy, including PUE; ``None`` if not known.

    Args:
        total: energy of the run.
        config: settings in the journal. They hold the location as the run resolved it, so that a
            journal gives the same emissions on any machine.
    """
    if total.energy_j is None:
        return None
    from energy_callbacks.accounting.metrics import carbon

    place = config.get("place") or {}
    names = ("country", "country_name", "region")
    try:
        intensity = carbon.intensity(
            carbon.Place(
                **{name: place.get(name) for name in names},
                origin=place.get("origin") or "not set",
            )
        )
    except Exception as error:  # noqa: BLE001 - what only emissions need must not end the report
        logger.warning("emissions cannot be found: %s", error)
        return None
    return emissions_with(total, intensity, _pue(config))


def emissions_with(total: Figure, intensity: "Intensity", pue: float) -> Emissions:
    """Returns the emissions of a known energy with a known carbon intensity."""
    from energy_callbacks.accounting.metrics import carbon

    kg, low_kg, high_kg = carbon.emissions(total, intensity, pue)
    assert low_kg is not None, "a known energy has an interval"
    assert high_kg is not None, "a known energy has an interval"
    return Emissions(kg=kg, low_kg=low_kg, high_kg=high_kg, **asdict(intensity), pue=pue)


def _pue(config: Record) -> float:
    return float(config.get("pue") or 1.0)


def cost(total: Figure, config: Record) -> Cost | None:
    """Returns the cost of the run's energy, including PUE; ``None`` without a price."""
    return cost_with(total, config.get("price_per_kwh"), _pue(config))


def cost_with(total: Figure, price_per_kwh: float | None, pue: float) -> Cost | None:
    """Returns the cost of an energy; ``None`` if energy or price is ``None``."""
    if total.energy_j is None or price_per_kwh is None:
        return None
    amount = kilowatt_hours(total.energy_j) * pue * price_per_kwh
    return Cost(price_per_kwh=price_per_kwh, amount=amount)

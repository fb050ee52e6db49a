"""The carbon intensity of a machine's electricity at each time, from its settings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from energy_callbacks.accounting.grid import intensity_table
from energy_callbacks.accounting.grid.intensity_table import IntensityTable
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.carbon import Intensity, Place
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.guard import logger, pass_on_signals
from energy_callbacks.core.units import kilograms_from_grams

# End of the source of an intensity whose error is not known.
_NO_ERROR: Final = "taken as exact"
_CODECARBON: Final = "force_carbon_intensity_g_co2e_kwh of CodeCarbon's configuration"


class Stretch(NamedTuple):
    """A time over which the carbon intensity is constant.

    Attributes:
        intensity: the carbon intensity.
        end_unix_s: end, in seconds since 1970; infinite if there is no end.
        is_covered: ``False`` if a file of intensities has no row for this time.
    """

    intensity: Intensity
    end_unix_s: float
    is_covered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The electricity grid that supplies a machine.

    Attributes:
        place: location of the machine.
        intensity: carbon intensity at all times that ``table`` does not cover.
        table: carbon intensities over time; ``None`` if the intensity is constant.
    """

    place: Place
    intensity: Intensity
    table: IntensityTable | None = None

    def at(self, unix_s: float) -> Stretch:
        """Return the carbon intensity at a time, in seconds since 1970."""
        if self.table is None:
            return Stretch(self.intensity, math.inf, is_covered=True)
        row, end_s = self.table.at(unix_s)
        if row is None:
            return Stretch(self.intensity, end_s, is_covered=False)
        place = self.place.label or self.table.zone
        year = datetime.fromtimestamp(row.start_s, tz=UTC).year
        intensity = _exact(row.kg_per_kwh, place, self.table.source, year)
        return Stretch(intensity, end_s, is_covered=True)


def grid(config: EnergyConfig) -> Grid:
    """Return the grid that the settings describe.

    Without ``country``, ``region`` and ``carbon_intensity``, this is the grid in CodeCarbon's
    configuration: ``force_carbon_intensity_g_co2e_kwh`` or ``country_iso_code`` and ``region``.

    Raises:
        ValueError: if the country or region is unknown, if the file of intensities is invalid, or
            if CodeCarbon's configuration is.
        MissingExtraError: if the settings name a country and CodeCarbon is not installed.
        FileNotFoundError: if CodeCarbon's tables are missing.
    """
    given = config.carbon_intensity
    place = carbon.place(config.country, config.region)
    if given is None:
        own = carbon.configured_g_per_kwh() if config.country is None else None
        intensity = carbon.intensity(place) if own is None else _given(own, place, _CODECARBON)
        return Grid(place=place, intensity=intensity)
    place = replace(place, origin=carbon.SET_BY_USER)
    if isinstance(given, int | float):
        return Grid(place=place, intensity=_given(given, place, "carbon_intensity"))
    table = intensity_table.read(given)
    return Grid(place=place, intensity=carbon.intensity(place), table=table)


def check_grid(config: EnergyConfig) -> None:
    """Check the settings of the grid; a message names the file or variable that they come from.

    Raises:
        ValueError: see ``grid``.
        MissingExtraError: see ``grid``.
        FileNotFoundError: see ``grid``.
    """
    try:
        grid(config)
    except ValueError as error:
        raise config.blame(error, "country", "region", "carbon_intensity") from error


def grid_or_unknown(config: EnergyConfig) -> tuple[Grid | None, str]:
    """Return the grid, and a message if it cannot be found and the location counts as unknown.

    Only emissions need the grid, so errors do not stop the measurement. If CodeCarbon's tables
    cannot be read, a warning is logged and the grid is ``None``.
    """
    try:
        return grid(config), ""
    except Exception as error:  # noqa: BLE001 - only emissions need the grid
        pass_on_signals()
        problem = f"the location is treated as not set: {error}"
    try:
        return Grid(place=Place(), intensity=carbon.intensity(Place())), problem
    except Exception as error:  # noqa: BLE001 - only emissions need the grid
        pass_on_signals()
        logger.warning("emissions cannot be computed: %s", error)
        return None, problem


def _given(g_per_kwh: float, place: Place, setting: str) -> Intensity:
    return _exact(kilograms_from_grams(g_per_kwh), place.label, f"setting {setting}")


def _exact(kg_per_kwh: float, place: str | None, source: str, year: int | None = None) -> Intensity:
    return Intensity(
        kg_per_kwh=kg_per_kwh,
        low_kg_per_kwh=kg_per_kwh,
        high_kg_per_kwh=kg_per_kwh,
        place=place,
        source=f"{source}, {_NO_ERROR}",
        year=year,
    )


def mean(parts: Sequence[tuple[float, Intensity]]) -> Intensity:
    """Return the mean of carbon intensities, weighted with the energy that was used at each.

    The best value is ``None`` if one of the intensities is not known. Place, source and year are
    those of the last part.

    Args:
        parts: energy in J and carbon intensity of each part; at least one.
    """
    used = [(energy_j, one) for energy_j, one in parts if energy_j > 0.0] or [parts[-1]]
    if len({one for _, one in used}) == 1:
        return used[0][1]
    total_j = math.fsum(energy_j for energy_j, _ in used)

    def weighted(name: str) -> float:
        return math.fsum(energy_j * getattr(one, name) for energy_j, one in used) / total_j

    is_known = all(one.kg_per_kwh is not None for _, one in used)
    return replace(
        used[-1][1],
        kg_per_kwh=weighted("kg_per_kwh") if is_known else None,
        low_kg_per_kwh=weighted("low_kg_per_kwh"),
        high_kg_per_kwh=weighted("high_kg_per_kwh"),
    )

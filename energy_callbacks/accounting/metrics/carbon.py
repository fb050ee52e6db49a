"""The location of a run, the carbon intensity of its grid, and the emissions of its energy.

All figures come from the tables in CodeCarbon's package, read through CodeCarbon's own code, so
that they agree with CodeCarbon's reports for the same place. No network and no tracker is used.
They are annual averages, independent of the hour of the day.
The carbon intensity of an unknown place is ``None``, with an interval over most countries.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import version
from statistics import quantiles
from typing import Any, Final, NamedTuple

from energy_callbacks.core.records import Energy
from energy_callbacks.core.units import kilograms_from_grams, kilowatt_hours
from energy_callbacks.sensing.quiet_codecarbon import quiet_codecarbon

# Relative difference between two estimates of the same annual average: for the 126 countries of
# CodeCarbon 3.3.2's table with more than 5 TWh a year, the published figure and the one computed
# from the generation mix and CodeCarbon's factor of each fuel differ by 18 % at the median (43 %
# at the 90th percentile).
_ANNUAL_SPREAD = 0.2
_UNKNOWN_RANGE = "5th to 95th percentile of all countries"

SET_BY_USER: Final = "set by the user"
"""The ``origin`` of a place that was passed as an argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A country, or a region of it, under the names of CodeCarbon's tables; may be unknown.

    Attributes:
        country: ISO 3166 alpha-3 code; ``None`` if the place is unknown.
        country_name: in English.
        region: state or province as CodeCarbon writes it, such as ``quebec``.
        origin: where the place comes from, as text.
    """

    country: str | None = None
    country_name: str | None = None
    region: str | None = None
    origin: str = "not set"

    @property
    def label(self) -> str | None:
        """The place as shown to people: ``Quebec, Canada``; ``None`` if unknown."""
        if self.region is None:
            return self.country_name
        return f"{self.region.title()}, {self.country_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intensity:
    """Greenhouse gas per kilowatt-hour of electricity, in kg of CO2 equivalent.

    Attributes:
        kg_per_kwh: annual average; ``None`` if the place is unknown.
        low_kg_per_kwh: lower end of its interval.
        high_kg_per_kwh: upper end of its interval.
        place: as shown to people; ``None`` if unknown.
        source: where the figure and its interval come from, as text.
        year: of the figure; ``None`` without a figure, or if the table does not state it.
    """

    kg_per_kwh: float | None
    low_kg_per_kwh: float
    high_kg_per_kwh: float
    place: str | None
    source: str
    year: int | None = None


class EmissionsEstimate(NamedTuple):
    """Greenhouse gas of an amount of energy with its interval, in kg of CO2 equivalent.

    Attributes:
        kg: best value; ``None`` if the place or the energy is unknown.
        low_kg: lower end; ``None`` if the energy is unknown.
        high_kg: upper end; ``None`` if the energy is unknown.
    """

    kg: float | None
    low_kg: float | None
    high_kg: float | None


def place(country: str | None = None, region: str | None = None) -> Place:
    """Return the given place, else the one in CodeCarbon's configuration, else an unknown one.

    CodeCarbon's configuration is ``country_iso_code`` and ``region`` in ``~/.codecarbon.config``,
    ``./.codecarbon.config`` or the environment (``CODECARBON_COUNTRY_ISO_CODE``).

    Args:
        country: ISO 3166 code of three or two letters, or English name.
        region: state of the USA or province of Canada; other countries have no regional figures.

    Raises:
        ValueError: if the country or region is unknown; the message names similar ones.
    """
    if country is not None:
        return _known_place(country, region, SET_BY_USER)
    if region is not None:
        raise ValueError(f"region needs its country: got region={region!r}; set country= too")
    configured = _codecarbon_configuration()
    country, region = configured.get("country_iso_code"), configured.get("region")
    if not country:
        return Place()
    origin = "CodeCarbon's configuration"
    try:
        return _known_place(country, region, origin)
    except _RegionError as error:
        # CodeCarbon ignores such a region too and uses the figure of the country.
        return _known_place(country, None, f"{origin}, whose region is left out: {error}")
    except ValueError as error:
        raise ValueError(f"in {origin} (country_iso_code): {error}") from error


def intensity(place: Place) -> Intensity:
    """Return the carbon intensity of a place with an interval.

    The interval of a known figure is 20 % either way. Its upper end is at least the life-cycle
    figure of hydropower, because lower figures count only what power plants burn. The interval of
    an unknown place covers the middle 90 % of all countries.
    """
    with quiet_codecarbon():
        if place.country is None or place.country not in _countries():
            return _unknown_intensity(place)
        kg_per_kwh = _codecarbon_kg_per_kwh(place)
        water_g_per_kwh = _data().get_carbon_intensity_per_source_data()["hydroelectricity"]
        year = _year(place)
    return Intensity(
        kg_per_kwh=kg_per_kwh,
        low_kg_per_kwh=kg_per_kwh * (1 - _ANNUAL_SPREAD),
        high_kg_per_kwh=max(
            kg_per_kwh * (1 + _ANNUAL_SPREAD), kilograms_from_grams(water_g_per_kwh)
        ),
        place=place.label,
        source=f"{_table_name()}, annual average with 20 % either way; place {place.origin}",
        year=year,
    )


def emissions(energy: Energy, intensity: Intensity, pue: float = 1.0) -> EmissionsEstimate:
    """Return the emissions of an amount of energy: ``kWh * pue * kg/kWh``.

    The ends of the interval multiply the ends of both factors.

    Args:
        energy: as measured at the machine, with its error.
        intensity: of the place.
        pue: power usage effectiveness: energy of the building per joule of the machine.

    Raises:
        ValueError: if ``pue`` is below 1.
    """
    if not pue >= 1.0:
        raise ValueError(f"pue is the building's energy over the machine's: got {pue}; give >= 1")
    if energy.energy_j is None:
        return EmissionsEstimate(None, None, None)
    energy_kwh = kilowatt_hours(energy.energy_j) * pue
    error_kwh = kilowatt_hours(energy.error_j) * pue
    kg_per_kwh = intensity.kg_per_kwh
    return EmissionsEstimate(
        kg=None if kg_per_kwh is None else energy_kwh * kg_per_kwh,
        low_kg=max(energy_kwh - error_kwh, 0.0) * intensity.low_kg_per_kwh,
        high_kg=(energy_kwh + error_kwh) * intensity.high_kg_per_kwh,
    )


class _RegionError(ValueError):
    """The country is known, but its region is not."""


def _known_place(country: str, region: str | None, origin: str) -> Place:
    with quiet_codecarbon():
        code, name = _country(country)
        key = None if region is None else _region(code, name, region)
    return Place(country=code, country_name=name, region=key, origin=origin)


def _country(text: str) -> tuple[str, str]:
    """Return the ISO code and the English name of a country.

    Args:
        text: code or name as the user writes it.
    """
    advice = "give an ISO 3166 code such as DEU or DE, or the English name"
    code = _look_up(text, _country_names(), "country", advice, ValueError)
    return code, _english_names()[code]


def _region(code: str, country_name: str, text: str) -> str:
    regions = _regions(code)
    if not regions:
        raise _RegionError(
            f"there are no regional figures for {country_name}: got region={text!r}; leave it out"
        )
    advice = f"give one of {', '.join(sorted(set(regions.values())))}"
    return _look_up(text, regions, f"region of {country_name}", advice, _RegionError)


def _look_up(
    text: str, known: Mapping[str, str], what: str, advice: str, error: type[ValueError]
) -> str:
    key = text.strip().casefold()
    if key in known:
        return known[key]
    close = get_close_matches(key, known, n=3)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise error(f"{what} is not known: got {text!r}; {hint}{advice}")


@cache
def _english_names() -> dict[str, str]:
    """English country names by ISO alpha-3 code; CodeCarbon's name if it has one."""
    iso = {country.alpha_3: country.name for country in _iso_countries()}
    return iso | {code: str(row["country_name"]) for code, row in _countries().items()}


@cache
def _country_names() -> dict[str, str]:
    """ISO alpha-3 codes by all codes and names of a country, in lower case."""
    names = {name.casefold(): code for code, name in _english_names().items()}
    names.update((code.casefold(), code) for code in _english_names())
    for country in _iso_countries():
        for key in ("alpha_2", "name", "common_name", "official_name"):
            names[getattr(country, key, country.alpha_3).casefold()] = country.alpha_3
    # ISO 3166 reserves UK for the United Kingdom, and it is in common use.
    return {**names, "uk": "GBR"}


def _iso_countries() -> list[Any]:
    """All countries of ISO 3166; empty with CodeCarbon 2, which does not install pycountry."""
    try:
        import pycountry
    except ModuleNotFoundError:
        return []
    return list(pycountry.countries)


def _regions(code: str) -> dict[str, str]:
    """CodeCarbon's region keys by name and postal code, in lower case."""
    if code == "CAN":
        return {name: name for name in _data().get_country_energy_mix_data("can")}
    if code != "USA":
        return {}
    # The table also has notes (a leading underscore) and a row for the whole country.
    rows = _data().get_country_emissions_data("usa")
    states = [name for name in rows if not name.startswith("_") and name != "usa"]
    codes = {str(rows[name]["regionCode"]).casefold(): name for name in states}
    return codes | {name: name for name in states}


def _unknown_intensity(place: Place) -> Intensity:
    grams = [row["carbon_intensity"] for row in _countries().values()]
    twentieths = quantiles([value for value in grams if value is not None], n=20)
    reason = "place not known" if place.country is None else f"no figure for {place.label}"
    return Intensity(
        kg_per_kwh=None,
        low_kg_per_kwh=kilograms_from_grams(twentieths[0]),
        high_kg_per_kwh=kilograms_from_grams(twentieths[-1]),
        place=place.label,
        source=f"{reason}: {_UNKNOWN_RANGE} in {_table_name()}",
    )


def _codecarbon_kg_per_kwh(place: Place) -> float:
    """CodeCarbon's carbon intensity of a known place, in kg per kWh."""
    from codecarbon.core.emissions import Emissions as CodeCarbonEmissions
    from codecarbon.core.units import Energy as CodeCarbonEnergy
    from codecarbon.external.geography import GeoMetadata

    assert place.country is not None, "an unknown place has no figure"
    where = GeoMetadata(place.country, country_name=place.country_name, region=place.region)
    model = CodeCarbonEmissions(_data())
    is_country = place.region is None
    emissions_of = model.get_country_emissions if is_country else model.get_region_emissions
    return float(emissions_of(CodeCarbonEnergy.from_energy(kWh=1.0), where))


def _year(place: Place) -> int | None:
    """Year of a country's row; that of a region is in the path of its table."""
    if place.region is None:
        return int(_countries()[str(place.country)]["year"])
    tables = _data().config
    paths = (path for name, path in tables.items() if name.startswith(f"{place.country}_".lower()))
    years = [match[1] for path in paths if (match := re.search(r"/(\d{4})/", path))]
    return int(years[0]) if years else None


def _countries() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = _data().get_global_energy_mix_data()
    return rows


def _data() -> Any:
    from codecarbon.input import DataSource

    return DataSource()


def _table_name() -> str:
    return f"CodeCarbon {version('codecarbon')}'s table"


def _codecarbon_configuration() -> dict[str, str]:
    with quiet_codecarbon():
        from codecarbon.core.config import get_hierarchical_config

        try:
            return dict(get_hierarchical_config())
        except Exception as error:
            raise ValueError(
                f"CodeCarbon's configuration cannot be read: {error}; "
                "mend .codecarbon.config, or set country="
            ) from error

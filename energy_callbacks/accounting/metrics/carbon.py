"""The location of a run, the carbon intensity there, and the emissions of its energy.

All figures are those of CodeCarbon's packaged tables, read through CodeCarbon's own code, so that
they agree with what CodeCarbon reports for the same place. There is no network and no tracker.
They are annual averages: the hour of the day is not known.
An unknown place stays unknown: its figure is ``None``, with an interval that says how much that
leaves open.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import version
from statistics import quantiles
from typing import Any, Final

from energy_callbacks.core.records import Energy
from energy_callbacks.core.units import kilograms_from_grams, kilowatt_hours
from energy_callbacks.sensing.quiet_codecarbon import quiet_codecarbon

# How far two ways to the same annual average lie apart: for the 126 countries of CodeCarbon
# 3.3.2's table with more than 5 TWh a year, the published figure and the one that follows from
# the generation mix and CodeCarbon's factors for each fuel differ by 18 % at the median (43 % at
# the 90th percentile).
_ANNUAL_SPREAD = 0.2
_UNKNOWN_RANGE = "5th to 95th percentile of all countries"

SET_BY_USER: Final = "set by the user"
"""The origin of a place that was passed on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A country, perhaps a region of it, as CodeCarbon's tables know them; or nowhere known.

    Attributes:
        country: ISO 3166 alpha-3 code, ``None`` if the place is not known.
        country_name: in English.
        region: state or province as CodeCarbon writes it, such as ``quebec``.
        origin: who said so, in words.
    """

    country: str | None = None
    country_name: str | None = None
    region: str | None = None
    origin: str = "not set"

    @property
    def label(self) -> str | None:
        """For people: ``Quebec, Canada``."""
        if self.region is None:
            return self.country_name
        return f"{self.region.title()}, {self.country_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intensity:
    """Greenhouse gas for each kilowatt-hour of electricity, in kg of CO2 equivalent.

    Attributes:
        kg_per_kwh: annual average, ``None`` if the place is not known.
        low_kg_per_kwh: lower end of what it may be.
        high_kg_per_kwh: upper end.
        place: for people, ``None`` if not known.
        source: where the figure and its interval come from, in words.
        year: of the figure, ``None`` if there is no figure or the table does not say.
    """

    kg_per_kwh: float | None
    low_kg_per_kwh: float
    high_kg_per_kwh: float
    place: str | None
    source: str
    year: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmissionsEstimate:
    """Greenhouse gas of an amount of energy, in kg of CO2 equivalent; ``None`` is unknown."""

    kg: float | None
    low_kg: float | None
    high_kg: float | None


def place(country: str | None = None, region: str | None = None) -> Place:
    """The place that the user names, else the one in CodeCarbon's configuration, else unknown.

    CodeCarbon's configuration is ``country_iso_code`` and ``region`` in ``~/.codecarbon.config``,
    ``./.codecarbon.config`` or the environment (``CODECARBON_COUNTRY_ISO_CODE``).

    Args:
        country: ISO 3166 code of three or two letters, or English name.
        region: state of the USA or province of Canada; other countries have no regional figures.

    Raises:
        ValueError: if the country or region is not known; with the nearest ones that are.
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
        # CodeCarbon ignores such a region too; the country's figure stands, and says so.
        return _known_place(country, None, f"{origin}, whose region is left out: {error}")
    except ValueError as error:
        raise ValueError(f"in {origin} (country_iso_code): {error}") from error


def intensity(place: Place) -> Intensity:
    """How clean the electricity of a place is, with an honest interval.

    A known figure has 20 % either way, and at least reaches up to the life cycle of water power
    (figures below count only what leaves a chimney). An unknown place spans the middle nine
    tenths of all countries.
    """
    with quiet_codecarbon():
        if place.country is None or place.country not in _countries():
            return _unknown_intensity(place)
        kg_per_kwh = _codecarbon_kg_per_kwh(place)
        water_kg_per_kwh = kilograms_from_grams(
            _data().get_carbon_intensity_per_source_data()["hydroelectricity"]
        )
        year = _year(place)
    return Intensity(
        kg_per_kwh=kg_per_kwh,
        low_kg_per_kwh=kg_per_kwh * (1 - _ANNUAL_SPREAD),
        high_kg_per_kwh=max(kg_per_kwh * (1 + _ANNUAL_SPREAD), water_kg_per_kwh),
        place=place.label,
        source=f"{_table_name()}, annual average with 20 % either way; place {place.origin}",
        year=year,
    )


def emissions(energy: Energy, intensity: Intensity, pue: float = 1.0) -> EmissionsEstimate:
    """The emissions of an amount of energy: ``kWh * pue * kg/kWh``.

    The interval multiplies the ends: the least energy with the cleanest electricity, the most
    energy with the dirtiest.

    Args:
        energy: as measured at the machine, with its error.
        intensity: of the place.
        pue: power usage effectiveness, energy of the building for each joule of the machine.

    Raises:
        ValueError: if ``pue`` is below 1.
    """
    if not pue >= 1.0:
        raise ValueError(f"pue is the building's energy over the machine's: got {pue}; give >= 1")
    if energy.energy_j is None:
        return EmissionsEstimate(kg=None, low_kg=None, high_kg=None)
    energy_kwh = kilowatt_hours(energy.energy_j) * pue
    error_kwh = kilowatt_hours(energy.error_j) * pue
    kg_per_kwh = intensity.kg_per_kwh
    return EmissionsEstimate(
        kg=None if kg_per_kwh is None else energy_kwh * kg_per_kwh,
        low_kg=max(energy_kwh - error_kwh, 0.0) * intensity.low_kg_per_kwh,
        high_kg=(energy_kwh + error_kwh) * intensity.high_kg_per_kwh,
    )


class _RegionError(ValueError):
    """The country is known, its region is not."""


def _known_place(country: str, region: str | None, origin: str) -> Place:
    with quiet_codecarbon():
        code, name = _country(country)
        key = None if region is None else _region(code, name, region)
    return Place(country=code, country_name=name, region=key, origin=origin)


def _country(text: str) -> tuple[str, str]:
    """ISO code and English name."""
    names = _country_names()
    code = names.get(text.strip().casefold())
    if code is None:
        raise ValueError(
            f"country is not known: got {text!r}; {_nearest(text, names)}"
            "give an ISO 3166 code such as DEU or DE, or the English name"
        )
    return code, _english_names()[code]


def _region(code: str, country_name: str, text: str) -> str:
    regions = _regions(code)
    if not regions:
        raise _RegionError(
            f"there are no regional figures for {country_name}: got region={text!r}; leave it out"
        )
    key = regions.get(text.strip().casefold())
    if key is None:
        raise _RegionError(
            f"region of {country_name} is not known: got {text!r}; {_nearest(text, regions)}"
            f"give one of {', '.join(sorted(set(regions.values())))}"
        )
    return key


def _nearest(text: str, known: Mapping[str, str]) -> str:
    close = get_close_matches(text.strip().casefold(), known, n=3)
    return f"did you mean {' or '.join(close)}? " if close else ""


@cache
def _english_names() -> dict[str, str]:
    """English country names by ISO alpha-3 code; CodeCarbon's own if it has one."""
    names = {code: str(row["country_name"]) for code, row in _countries().items()}
    return {**{country.alpha_3: country.name for country in _iso_countries()}, **names}


@cache
def _country_names() -> dict[str, str]:
    """ISO alpha-3 codes by everything that a country is called, in lower case."""
    names = {name.casefold(): code for code, name in _english_names().items()}
    names.update((code.casefold(), code) for code in _english_names())
    for country in _iso_countries():
        for key in ("alpha_2", "name", "common_name", "official_name"):
            names[getattr(country, key, country.alpha_3).casefold()] = country.alpha_3
    # Reserved by ISO 3166 for the United Kingdom, and what people write.
    return {**names, "uk": "GBR"}


def _iso_countries() -> list[Any]:
    """All countries of ISO 3166; none with CodeCarbon 2, which does not bring pycountry."""
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
    # Beside the states stand notes (a leading underscore) and the whole country.
    states = {
        name: row
        for name, row in _data().get_country_emissions_data("usa").items()
        if not name.startswith("_") and name != "usa"
    }
    codes = {str(row["regionCode"]).casefold(): name for name, row in states.items()}
    return {**codes, **{name: name for name in states}}


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
    """CodeCarbon's carbon intensity, in kg per kWh."""
    from codecarbon.core.emissions import Emissions as CodeCarbonEmissions
    from codecarbon.core.units import Energy as CodeCarbonEnergy
    from codecarbon.external.geography import GeoMetadata

    assert place.country is not None, "an unknown place has no figure"
    where = GeoMetadata(place.country, country_name=place.country_name, region=place.region)
    one_kwh = CodeCarbonEnergy.from_energy(kWh=1.0)
    model = CodeCarbonEmissions(_data())
    if place.region is None:
        return float(model.get_country_emissions(one_kwh, where))
    return float(model.get_region_emissions(one_kwh, where))


def _year(place: Place) -> int | None:
    """Of the country's row; a region's is in the name of the folder that its table lies in."""
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

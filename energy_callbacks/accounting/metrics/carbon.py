"""Finds the location of a run and the carbon intensity of its grid, and computes emissions.

All carbon intensities are read from CodeCarbon's tables, and the tests compare them with those of
CodeCarbon's own code for every place. The network and CodeCarbon's trackers are not used. The
carbon intensities are annual averages and do not depend on the time of day. If there is no figure
for the place, the average is ``None``, and the interval is the 5th to 95th percentile of all
countries.
"""

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from energy_callbacks.accounting.journal.environment import installed
from energy_callbacks.core.errors import MissingExtraError
from energy_callbacks.core.records import Energy
from energy_callbacks.core.units import kilograms_from_grams, kilowatt_hours
from energy_callbacks.sensing.codecarbon_tables import path, table

# Relative half-width of the interval of a known carbon intensity: the typical relative difference
# between two estimates of the same annual average. CodeCarbon 3.3.2's table has 126 countries that
# generate more than 5 TWh a year. For each of these countries, the published figure was compared
# with the figure computed from the generation mix and CodeCarbon's factor of each fuel. The median
# of the differences is 18 %, and their 90th percentile is 43 %.
_ANNUAL_SPREAD = 0.2
_UNKNOWN_RANGE = "5th to 95th percentile of all countries"
# That range in CodeCarbon 3.3.2 (data/private_infra/global_energy_mix.json), for installations
# without CodeCarbon.
_UNKNOWN_G_PER_KWH: Final = (33.4141, 757.5927)
# Tables of regions, by country. A folder is named after the year: 2023 in CodeCarbon 3.3.2.
_REGIONS: Final = {
    "USA": "private_infra/20*/usa_emissions.json",
    "CAN": "private_infra/20*/canada_energy_mix.json",
}
# Carbon intensity of fuels in the table of Canada; of other sources it is 0 (codecarbon 3.3.2,
# core/emissions.py).
_CANADIAN_KG_PER_KWH: Final = {
    "coal": 0.995725971,
    "petroleum": 0.8166885263,
    "naturalGas": 0.7438415916,
}
# 1 lb/MWh in kg/kWh: a pound is 0.45359237 kg (NIST Special Publication 811, appendix B.8).
_KG_PER_KWH: Final = 0.00045359237
# As a factor, so that the last digit is that of CodeCarbon; a division may round otherwise.
_KG_PER_G: Final = 0.001
# Minimum ratio of ``difflib`` between a given name and a name that a message proposes. Its default
# of 0.6 proposes Albania for Atlantis (0.67); "Germny" has 0.92.
_SIMILAR: Final = 0.8
# Beginning of the environment variables that configure CodeCarbon.
_PREFIX: Final = "codecarbon_"

SET_BY_USER: Final = "set by the user"
"""The ``origin`` of a place whose country was passed as an argument."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A country, or a region of a country, as named in CodeCarbon's tables; may be unknown.

    Attributes:
        country: ISO 3166 alpha-3 code; ``None`` if the place is unknown.
        country_name: English name of the country; ``None`` if the place is unknown.
        region: state or province as CodeCarbon writes it, such as ``quebec``; ``None`` for the
            whole country.
        origin: text that says where the name of the place comes from.
    """

    country: str | None = None
    country_name: str | None = None
    region: str | None = None
    origin: str = "not set"

    @property
    def label(self) -> str | None:
        """Name of the place for reports, such as ``Quebec, Canada``; ``None`` if unknown."""
        if self.region is None:
            return self.country_name
        return f"{self.region.title()}, {self.country_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intensity:
    """Greenhouse gas per kilowatt-hour of electricity, in kg of CO2 equivalent.

    Attributes:
        kg_per_kwh: annual average; ``None`` if the place is unknown or has no figure.
        low_kg_per_kwh: lower end of the interval that the function ``intensity`` describes.
        high_kg_per_kwh: upper end of the same interval.
        place: name of the place for reports; ``None`` if unknown.
        source: text that says where the average and its interval come from.
        year: year of the average; ``None`` if there is no average or its year is unknown.
    """

    kg_per_kwh: float | None
    low_kg_per_kwh: float
    high_kg_per_kwh: float
    place: str | None
    source: str
    year: int | None = None


class EmissionsEstimate(NamedTuple):
    """Greenhouse gas emissions of an amount of energy, in kg of CO2 equivalent.

    Attributes:
        kg: best value; ``None`` if the carbon intensity or the energy is unknown.
        low_kg: lower end of the interval; ``None`` if the energy is unknown.
        high_kg: upper end of the interval; ``None`` if the energy is unknown.
    """

    kg: float | None
    low_kg: float | None
    high_kg: float | None


def place(country: str | None = None, region: str | None = None) -> Place:
    """Return the place with the given names, by default the place in CodeCarbon's configuration.

    CodeCarbon's configuration is ``country_iso_code`` and ``region`` in ``~/.codecarbon.config``,
    ``./.codecarbon.config`` or the environment (``CODECARBON_COUNTRY_ISO_CODE``). If this
    configuration names no country, the place is unknown.

    Args:
        country: ISO 3166 code of two or three letters, or English name; ``None`` for the country in
            CodeCarbon's configuration.
        region: state of the USA or province of Canada; other countries have no regional figures.
            ``None`` for the whole country or, without ``country``, for the configured region.

    Raises:
        ValueError: if the country or a given region is unknown (the message suggests similar
            names), if a region is given without a country, or if CodeCarbon's configuration cannot
            be read.
        MissingExtraError: if a country is given and CodeCarbon is not installed.
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
        whole = _known_place(country, None, origin)
    except ValueError as error:
        raise ValueError(f"in {origin} (country_iso_code): {error}") from error
    try:
        return _known_place(country, region, origin)
    except ValueError as error:
        # CodeCarbon also ignores an unknown region and uses the figure of the country.
        return replace(whole, origin=f"{origin}, whose region is left out: {error}")


def configured_g_per_kwh() -> float | None:
    """Return ``force_carbon_intensity_g_co2e_kwh`` of CodeCarbon's configuration, if it is set.

    As in CodeCarbon, a value that is negative or not a number is ignored.

    Raises:
        ValueError: if CodeCarbon's configuration cannot be read.
    """
    text = _codecarbon_configuration().get("force_carbon_intensity_g_co2e_kwh") or "nan"
    try:
        g_per_kwh = float(text)
    except ValueError:
        return None
    return g_per_kwh if 0.0 <= g_per_kwh < math.inf else None


def intensity(place: Place) -> Intensity:
    """Return the carbon intensity of a place with an interval.

    The interval of a known intensity is +-20 %, but its upper end is at least the life-cycle
    emissions of hydropower in CodeCarbon's tables. The reason is that some figures in these tables
    are too low: 0 for the Central African Republic (CodeCarbon 3.3.2), for example. If there is no
    figure for the place, the interval is the 5th to 95th percentile of all countries.
    """
    kg_per_kwh = _kg_per_kwh(place)
    if kg_per_kwh is None:
        return _unknown_intensity(place)
    water_g_per_kwh = table("private_infra/carbon_intensity_per_source.json")["hydroelectricity"]
    return Intensity(
        kg_per_kwh=kg_per_kwh,
        low_kg_per_kwh=kg_per_kwh * (1 - _ANNUAL_SPREAD),
        high_kg_per_kwh=max(
            kg_per_kwh * (1 + _ANNUAL_SPREAD), kilograms_from_grams(water_g_per_kwh)
        ),
        place=place.label,
        source=f"{_table_name()}, annual average, typical error 20 %; location {place.origin}",
        year=_year(place),
    )


def emissions(energy: Energy, intensity: Intensity, pue: float = 1.0) -> EmissionsEstimate:
    """Return the emissions of an amount of energy: ``kWh * pue * kg/kWh``.

    The lower end of the emissions is computed from the lower ends of energy and carbon intensity,
    and the upper end from their upper ends.

    Args:
        energy: energy of the devices, with its error.
        intensity: carbon intensity of the place.
        pue: power usage effectiveness: energy of the building divided by energy of its machines.

    Raises:
        ValueError: if ``pue`` is below 1.
    """
    if not pue >= 1.0:
        raise ValueError(
            "pue is the energy of the building divided by that of its machines: "
            f"got {pue}; give a number of at least 1"
        )
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


def _known_place(country: str, region: str | None, origin: str) -> Place:
    try:
        code, name = _country(country)
    except MissingExtraError as error:
        advice = "or set a carbon intensity instead of a country"
        raise MissingExtraError(
            f"the country {country!r} needs CodeCarbon's tables: {error}, {advice}"
        ) from error
    key = None if region is None else _region(code, name, region)
    return Place(country=code, country_name=name, region=key, origin=origin)


def _country(text: str) -> tuple[str, str]:
    """Return the ISO code and the English name of a country.

    Args:
        text: ISO code or English name, in any case.
    """
    advice = "give an ISO 3166 code such as DEU or DE, or the English name"
    code = _look_up(text, _country_names(), "country", advice)
    return code, _english_names()[code]


def _region(code: str, country_name: str, text: str) -> str:
    regions = _regions(code)
    if not regions:
        raise ValueError(
            f"there are no regional figures for {country_name}: got region={text!r}; leave it out "
            "or set carbon_intensity="
        )
    advice = f"give one of {', '.join(sorted(set(regions.values())))}"
    return _look_up(text, regions, f"region of {country_name}", advice)


def _look_up(text: str, known: Mapping[str, str], what: str, advice: str) -> str:
    key = text.strip().casefold()
    if key in known:
        return known[key]
    from difflib import get_close_matches

    names = [name for name in known if len(name) > 3]  # codes are similar to each other
    close = get_close_matches(key, names, n=3, cutoff=_SIMILAR)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise ValueError(f"{what} is not known: got {text!r}; {hint}{advice}")


@cache
def _english_names() -> dict[str, str]:
    """Return English country names by ISO alpha-3 code; CodeCarbon's names take precedence."""
    iso = {country.alpha_3: country.name for country in _iso_countries()}
    return iso | {code: str(row["country_name"]) for code, row in _countries().items()}


@cache
def _country_names() -> dict[str, str]:
    """Return ISO alpha-3 codes; the keys are all codes and names of each country in lower case."""
    names = {name.casefold(): code for code, name in _english_names().items()}
    names.update((code.casefold(), code) for code in _english_names())
    for country in _iso_countries():
        for key in ("alpha_2", "name", "common_name", "official_name"):
            names[getattr(country, key, country.alpha_3).casefold()] = country.alpha_3
    # ISO 3166 reserves the code UK for the United Kingdom, and many people use it.
    return {**names, "uk": "GBR"}


def _iso_countries() -> list[Any]:
    """Return the countries of ISO 3166; empty if pycountry is missing, as with CodeCarbon 2."""
    try:
        import pycountry
    except ModuleNotFoundError:
        return []
    return list(pycountry.countries)


def _regions(code: str) -> dict[str, str]:
    """Return CodeCarbon's names of the regions of a country.

    The keys of the result are the names themselves and, for the USA, also postal codes. All keys
    are in lower case. For countries other than the USA and Canada, the result is empty.
    """
    if code == "CAN":
        return {name: name for name in table(_REGIONS["CAN"])}
    if code != "USA":
        return {}
    # The table also has notes, whose names begin with an underscore, and a row for the country.
    rows = table(_REGIONS["USA"])
    states = [name for name in rows if not name.startswith("_") and name != "usa"]
    codes = {str(rows[name]["regionCode"]).casefold(): name for name in states}
    return codes | {name: name for name in states}


def _unknown_intensity(place: Place) -> Intensity:
    low, high, table_name = _range_of_countries()
    reason = "location not set" if place.country is None else f"no figure for {place.label}"
    return Intensity(
        kg_per_kwh=None,
        low_kg_per_kwh=kilograms_from_grams(low),
        high_kg_per_kwh=kilograms_from_grams(high),
        place=place.label,
        source=f"{reason}: {_UNKNOWN_RANGE} in {table_name}",
    )


def _range_of_countries() -> tuple[float, float, str]:
    """Return the 5th and 95th percentile, g/kWh, and the name of the table that they are from."""
    from statistics import quantiles

    try:
        grams = [row["carbon_intensity"] for row in _countries().values()]
    except MissingExtraError:
        return *_UNKNOWN_G_PER_KWH, "CodeCarbon 3.3.2's table"
    twentieths = quantiles([value for value in grams if value is not None], n=20)
    return twentieths[0], twentieths[-1], _table_name()


def _kg_per_kwh(place: Place) -> float | None:
    """Return the carbon intensity of a place, kg per kWh; ``None`` if there is no figure."""
    if place.country is None:
        return None
    if place.region is None:
        g_per_kwh = _countries().get(place.country, {}).get("carbon_intensity")
        return None if g_per_kwh is None else float(g_per_kwh) * _KG_PER_G
    row = table(_REGIONS[place.country])[place.region]
    if place.country == "USA":
        return float(row["emissions"]) * _KG_PER_KWH
    return sum(
        float(row[fuel]) / float(row["total"]) * kg for fuel, kg in _CANADIAN_KG_PER_KWH.items()
    )


def _year(place: Place) -> int | None:
    """Return the year of the carbon intensity of a place with a figure; ``None`` if unknown.

    For a country, the year is in the country's row of the table. For a region, the year is the name
    of the folder of the table.
    """
    country = str(place.country)
    if place.region is None:
        return int(_countries()[country]["year"])
    folder = path(_REGIONS[country]).parent.name
    return int(folder) if folder.isdigit() else None


def _countries() -> dict[str, dict[str, Any]]:
    return table("private_infra/global_energy_mix.json")


def _table_name() -> str:
    return f"CodeCarbon {installed().get('codecarbon', '?')}'s table"


def _codecarbon_configuration() -> dict[str, str]:
    """Return CodeCarbon's configuration; see ``place`` for where it is stored."""
    from configparser import ConfigParser

    found: dict[str, str] = {}
    folders = [Path()]
    with suppress(RuntimeError):  # a user id without a home directory, as in containers
        folders.insert(0, Path.home())
    try:
        for folder in folders:
            parser = ConfigParser()
            parser.read(folder / ".codecarbon.config")
            found |= dict(parser["codecarbon"]) if "codecarbon" in parser else {}
    except Exception as error:
        raise ValueError(
            f"CodeCarbon's configuration cannot be read: {error}; "
            "correct .codecarbon.config, or set country="
        ) from error
    lower = {name.lower(): value for name, value in os.environ.items()}
    names = (name for name in lower if name.startswith(_PREFIX))
    return found | {name.removeprefix(_PREFIX): lower[name] for name in names}

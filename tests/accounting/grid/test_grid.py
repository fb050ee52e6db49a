"""The grid of a machine from its settings."""

import math
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig
from energy_callbacks.accounting.grid.grid import check_grid, grid, grid_or_unknown, mean
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.carbon import Intensity, Place

NEW_YEAR_S = 1_767_225_600.0  # 2026-01-01T00:00Z


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CODECARBON_COUNTRY_ISO_CODE", raising=False)


def hourly(folder: Path) -> Path:
    """A file with 100 g/kWh in the first hour of 2026 and 400 in the second."""
    path = folder / "hourly.csv"
    path.write_text("time,intensity\n2026-01-01T00:00Z,100\n2026-01-01T01:00Z,400\n")
    return path


def test_a_country_has_its_annual_average() -> None:
    """At all times, as CodeCarbon's table says."""
    found = grid(EnergyConfig(country="DEU")).at(NEW_YEAR_S)
    assert found.intensity == carbon.intensity(carbon.place("DEU"))
    assert found[1:] == (math.inf, True)


@pytest.mark.parametrize("country", [None, "DEU"])
def test_a_number_is_used_as_it_is(country: str | None) -> None:
    """Without an error of its own; the source names the setting, a country is the place."""
    intensity = grid(EnergyConfig(country=country, carbon_intensity=380)).intensity
    assert (intensity.low_kg_per_kwh, intensity.kg_per_kwh, intensity.high_kg_per_kwh) == (
        0.38,
    ) * 3
    assert intensity.place == ("Germany" if country else None)
    assert intensity.source == "setting carbon_intensity, taken as exact"
    assert intensity.year is None


def test_a_file_is_used_where_it_has_rows(tmp_path: Path) -> None:
    """Elsewhere the annual average of the place is used, and not silently: ``is_covered``."""
    found = grid(EnergyConfig(country="DEU", carbon_intensity=hourly(tmp_path)))
    first, second, late = (found.at(NEW_YEAR_S + hours * 3600.0) for hours in (0.5, 1.0, 2.0))
    assert [one.intensity.kg_per_kwh for one in (first, second)] == [0.1, 0.4]
    assert first.intensity.source == "hourly.csv, taken as exact"
    assert (first.intensity.place, first.intensity.year) == ("Germany", 2026)
    assert first.end_unix_s == NEW_YEAR_S + 3600.0
    assert late.intensity == carbon.intensity(found.place)
    assert [one.is_covered for one in (first, second, late)] == [True, True, False]


def test_without_a_place_a_gap_of_a_file_is_unknown(tmp_path: Path) -> None:
    """Only the range of all countries is known there."""
    found = grid(EnergyConfig(carbon_intensity=str(hourly(tmp_path)))).at(NEW_YEAR_S - 1.0)
    assert found.intensity == carbon.intensity(Place())
    assert found.end_unix_s == NEW_YEAR_S


@pytest.mark.parametrize(("text", "g_per_kwh"), [("123.5", 123.5), ("-1", None), ("much", None)])
def test_the_configuration_of_codecarbon_may_have_a_number(
    tmp_path: Path, text: str, g_per_kwh: float | None
) -> None:
    """It is used like a setting, unless the settings have a country; wrong numbers are ignored."""
    (tmp_path / ".codecarbon.config").write_text(
        f"[codecarbon]\nforce_carbon_intensity_g_co2e_kwh = {text}\ncountry_iso_code = FRA\n"
    )
    intensity = grid(EnergyConfig()).intensity
    france = carbon.intensity(carbon.place("FRA")).kg_per_kwh
    assert intensity.kg_per_kwh == (france if g_per_kwh is None else g_per_kwh / 1e3)
    assert intensity.place == "France"
    assert ("CodeCarbon's configuration, taken as exact" in intensity.source) == (
        g_per_kwh is not None
    )
    german = carbon.intensity(carbon.place("DEU")).kg_per_kwh
    assert grid(EnergyConfig(country="DEU")).intensity.kg_per_kwh == german
    assert grid(EnergyConfig(carbon_intensity=5)).intensity.kg_per_kwh == 0.005


def test_an_error_names_the_file_that_the_setting_comes_from(tmp_path: Path) -> None:
    """Paths in a settings file are relative to it; an argument is not named."""
    (tmp_path / "energy_callbacks.toml").write_text("carbon_intensity = 'none.csv'\n")
    with pytest.raises(
        ValueError, match=f"^{tmp_path}/energy_callbacks.toml: the file with carbon"
    ):
        check_grid(EnergyConfig())
    with pytest.raises(ValueError, match=r"^country is not known"):
        check_grid(EnergyConfig(country="Atlantis"))


def test_an_error_after_the_construction_leaves_the_place_unknown(tmp_path: Path) -> None:
    """The training goes on; its report has the message."""
    config = EnergyConfig(carbon_intensity=hourly(tmp_path))
    hourly(tmp_path).unlink()
    found, problem = grid_or_unknown(config)
    assert found is not None
    assert found.intensity == carbon.intensity(Place())
    assert "the file with carbon intensities cannot be read" in problem


def intensity(kg: float | None, low: float, high: float) -> Intensity:
    """A carbon intensity and its interval, in kg/kWh."""
    return Intensity(kg_per_kwh=kg, low_kg_per_kwh=low, high_kg_per_kwh=high, place=None, source="")


def test_the_mean_is_weighted_with_energy() -> None:
    """1 J at 0.1 and 3 J at 0.5 kg/kWh: 0.4; the ends of the intervals likewise."""
    parts = [(1.0, intensity(0.1, 0.05, 0.2)), (3.0, intensity(0.5, 0.45, 0.8))]
    found = mean(parts)
    assert found.kg_per_kwh == pytest.approx(0.4)
    assert (found.low_kg_per_kwh, found.high_kg_per_kwh) == pytest.approx((0.35, 0.65))
    assert mean([*parts, (1.0, intensity(None, 0.0, 1.0))]).kg_per_kwh is None
    assert mean([*parts, (0.0, intensity(None, 0.0, 1.0))]) == found
    assert mean([(0.0, parts[0][1])]) == parts[0][1]

"""Places, intensities and emissions against published figures and closed forms."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from codecarbon.core.emissions import Emissions
from codecarbon.core.units import Energy as CodeCarbonEnergy
from codecarbon.external.geography import GeoMetadata
from codecarbon.input import DataSource

from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.carbon import Intensity, Place, emissions, intensity, place
from energy_callbacks.core.errors import MissingExtraError
from energy_callbacks.core.records import Energy

KWH_J = 3.6e6


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch, tmp_path):
    """Without a CodeCarbon configuration of the machine, and without network."""
    for name in ("CODECARBON_COUNTRY_ISO_CODE", "CODECARBON_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("used the network"))


@pytest.mark.parametrize(
    ("country", "region", "grams"),
    [
        ("CAN", "quebec", 3.94),
        ("USA", None, 369.5),
        ("DEU", None, 380.9),
        ("POL", None, 661.9),
        ("IND", None, 713.4),
    ],
)
def test_figures_are_the_published_ones(country, region, grams):
    """g/kWh as CodeCarbon 3.3.2 reported them for 1 kWh (a unit error would be 1000 or 2.2)."""
    found = intensity(place(country, region))
    assert found.kg_per_kwh * 1000 == pytest.approx(grams, abs=0.06)
    assert found.low_kg_per_kwh < found.kg_per_kwh < found.high_kg_per_kwh
    assert found.year == 2023
    assert "CodeCarbon" in found.source
    assert "20 %" in found.source


def test_every_figure_is_codecarbons():
    """For each country, state and province, the figure is that of CodeCarbon's own code."""
    model, kwh = Emissions(DataSource()), CodeCarbonEnergy.from_energy(kWh=1.0)
    countries = [(code, None) for code in carbon._countries()]
    regions = [(code, name) for code in ("USA", "CAN") for name in carbon._regions(code).values()]
    for code, region in countries + regions:
        theirs = model.get_region_emissions if region else model.get_country_emissions
        expected = theirs(kwh, GeoMetadata(code, region=region))
        found = intensity(place(code, region)).kg_per_kwh
        assert found == pytest.approx(expected, rel=1e-12), (code, region)
    assert (len(countries), len(regions)) >= (200, 60)


def test_state_agrees_with_its_source():
    """California's 394.769 lb/MWh (table of the EPA's eGRID 2023) are pounds of 0.45359237 kg."""
    found = intensity(place("USA", "California"))
    assert found.kg_per_kwh == pytest.approx(394.769 * 0.45359237 / 1000, rel=1e-9)


def test_chimney_figures_reach_up_to_the_life_cycle():
    """Quebec's 4 g/kWh leaves out building dams; the interval reaches water power's 26 g/kWh."""
    found = intensity(place("CAN", "quebec"))
    assert found.low_kg_per_kwh == pytest.approx(found.kg_per_kwh * 0.8)
    assert found.high_kg_per_kwh == pytest.approx(0.026)


@pytest.mark.parametrize(
    "name", ["DEU", "de", "Germany", " germany ", "Federal Republic of Germany"]
)
def test_a_country_has_many_names(name):
    """Codes of two and three letters and English names are accepted."""
    assert place(name) == Place(country="DEU", country_name="Germany", origin="set by the user")


def test_uk_is_a_country():
    """UK is accepted for the United Kingdom."""
    assert place("UK").country == "GBR"


@pytest.mark.parametrize("region", ["New York", "new york", "NY"])
def test_a_state_has_two_names(region):
    """States are found by name and by postal code, and shown in title case."""
    assert place("USA", region).region == "new york"
    assert place("USA", region).label == "New York, United States"


@pytest.mark.parametrize(
    ("country", "region", "parts"),
    [
        ("Germny", None, ("got 'Germny'", "did you mean germany", "ISO 3166")),
        ("XX", None, ("got 'XX'", "ISO 3166")),
        ("Atlantis", None, ("got 'Atlantis'; give an ISO 3166 code",)),
        ("GER", None, ("got 'GER'; give an ISO 3166 code",)),
        ("", None, ("got ''", "ISO 3166")),
        ("USA", "Calfornia", ("got 'Calfornia'", "did you mean california", "give one of alabama")),
        ("CAN", "toronto", ("got 'toronto'", "ontario")),
        ("DEU", "BY", ("no regional figures for Germany", "leave it out or set carbon_intensity=")),
        (None, "quebec", ("got region='quebec'", "set country=")),
    ],
)
def test_wrong_places_say_what_is_right(country, region, parts):
    """The message has the given place, similar places and advice."""
    with pytest.raises(ValueError, match=r"region|country") as caught:
        place(country, region)
    assert caught.type is ValueError
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_unknown_place_is_an_interval():
    """Without a place there is no figure, and the interval covers most grids."""
    nowhere = place()
    found = intensity(nowhere)
    assert (nowhere.country, nowhere.label, found.place) == (None, None, None)
    assert found.kg_per_kwh is None
    assert found.year is None
    assert 0.02 < found.low_kg_per_kwh < 0.05
    assert 0.7 < found.high_kg_per_kwh < 0.8
    assert "5th to 95th percentile" in found.source
    inside = [
        found.low_kg_per_kwh <= intensity(place(code)).kg_per_kwh <= found.high_kg_per_kwh
        for code in carbon._countries()
    ]
    assert sum(inside) / len(inside) == pytest.approx(0.9, abs=0.01)


def test_row_without_figure_is_an_interval(monkeypatch):
    """A country whose row has no carbon intensity has an interval only."""
    monkeypatch.setitem(carbon._countries()["DEU"], "carbon_intensity", None)
    assert intensity(place("DEU")).kg_per_kwh is None


def test_country_without_figure_is_an_interval():
    """Liechtenstein is not in the table: its name is known, its figure is not."""
    found = intensity(place("LIE"))
    assert found.kg_per_kwh is None
    assert found.place == "Liechtenstein"
    assert "no figure for Liechtenstein" in found.source


def configure(folder, text):
    """Write a configuration file of CodeCarbon."""
    (folder / ".codecarbon.config").write_text(f"[codecarbon]\n{text}\n")


def test_configuration_of_codecarbon_counts(monkeypatch, tmp_path):
    """The local file overrides the home file, the environment both, and arguments all."""
    local = tmp_path / "project"
    local.mkdir()
    monkeypatch.chdir(local)
    configure(tmp_path, "country_iso_code = POL\nlog_level = ERROR")
    assert place().country == "POL"
    assert "configuration" in intensity(place()).source
    configure(local, "country_iso_code = CAN\nregion = Quebec")
    assert (place().country, place().region) == ("CAN", "quebec")
    monkeypatch.setenv("CODECARBON_COUNTRY_ISO_CODE", "FRA")
    monkeypatch.setenv("CODECARBON_REGION", "")
    assert place().country == "FRA"
    assert place("IND").country == "IND"


def test_no_home_and_no_working_directory(monkeypatch, tmp_path):
    """A user id without a home directory, as in containers: there is no file to read."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda _: {}["no such user"])
    assert place() == Place()
    monkeypatch.setenv("CODECARBON_COUNTRY_ISO_CODE", "FRA")
    assert place().country == "FRA"


def test_region_that_codecarbon_would_ignore(tmp_path):
    """A region without figures is ignored, and the origin of the place says so."""
    configure(tmp_path, "country_iso_code = DEU\nregion = bavaria")
    found = intensity(place())
    assert found.place == "Germany"
    assert "left out" in found.source


@pytest.mark.parametrize("text", ["country_iso_code = NOPE", "api_key = 50%off"])
def test_broken_configuration_is_refused(tmp_path, text):
    """An invalid configuration is an error that names it."""
    configure(tmp_path, text)
    with pytest.raises(ValueError, match="CodeCarbon's configuration"):
        place()


CLEAN = Intensity(
    kg_per_kwh=0.5, low_kg_per_kwh=0.4, high_kg_per_kwh=0.6, place="Somewhere", source="test"
)


def test_emissions_are_energy_times_intensity():
    """10 kWh at PUE 1.5 and 0.5 kg/kWh are 7.5 kg; the ends of the intervals are multiplied."""
    energy = Energy(energy_j=10 * KWH_J, stderr_j=1.2 / 1.96 * KWH_J, systematic_j=1.6 * KWH_J)
    found = emissions(energy, CLEAN, pue=1.5)
    assert found.kg == pytest.approx(7.5)
    assert found.low_kg == pytest.approx((10 - 2.0) * 1.5 * 0.4)
    assert found.high_kg == pytest.approx((10 + 2.0) * 1.5 * 0.6)


def test_energy_error_never_makes_less_than_nothing():
    """The lower end for a small energy with a large error is 0."""
    energy = Energy(energy_j=1.0 * KWH_J, systematic_j=5.0 * KWH_J)
    assert emissions(energy, CLEAN).low_kg == 0.0
    assert emissions(energy, CLEAN).high_kg == pytest.approx(6 * 0.6)


def test_unknown_place_still_bounds_the_emissions():
    """1 kWh at an unknown place has no figure, but an interval from 0.02 to 0.8 kg."""
    found = emissions(Energy(energy_j=KWH_J), intensity(place()))
    assert found.kg is None
    assert 0.02 < found.low_kg < found.high_kg < 0.8


def test_unknown_energy_is_unknown_emissions():
    """Unknown energy has unknown emissions; a measured zero has zero emissions."""
    unknown = emissions(Energy(energy_j=None), CLEAN)
    assert (unknown.kg, unknown.low_kg, unknown.high_kg) == (None, None, None)
    assert emissions(Energy(energy_j=0.0), CLEAN).kg == 0.0


@pytest.mark.parametrize("pue", [0.9, 0.0, -1.0, float("nan")])
def test_impossible_pue_is_refused(pue):
    """A PUE below 1 is refused."""
    with pytest.raises(ValueError, match="pue"):
        emissions(Energy(energy_j=1.0), CLEAN, pue=pue)


def test_it_works_without_pycountry(monkeypatch):
    """CodeCarbon 2 does not install pycountry: codes and names of its table still work."""
    monkeypatch.setitem(sys.modules, "pycountry", None)
    for function in (carbon._english_names, carbon._country_names):
        function.cache_clear()
    try:
        assert place("DEU").country == place("Germany").country == "DEU"
        with pytest.raises(ValueError, match="country is not known"):
            place("Liechtenstein")
    finally:
        for function in (carbon._english_names, carbon._country_names):
            function.cache_clear()


def test_it_leaves_no_trace(tmp_path):
    """In a fresh process: no output, no file, no connection; importing loads no CodeCarbon."""
    code = (
        "import socket, sys\n"
        "def refuse(*_): raise AssertionError('network')\n"
        "socket.socket.connect = refuse\n"
        "from energy_callbacks.accounting.metrics import carbon\n"
        "assert not {'codecarbon', 'pandas', 'pycountry'} & set(sys.modules)\n"
        "carbon.intensity(carbon.place('USA', 'texas')); carbon.intensity(carbon.place())\n"
        "assert not {'codecarbon', 'pandas'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(version("codecarbon") != "3.3.2", reason="constants of CodeCarbon 3.3.2")
def test_the_range_without_codecarbon_is_that_of_its_table(monkeypatch):
    """An unknown place has the same intensity in an installation without CodeCarbon."""
    with_tables = intensity(Place())

    def countries():
        raise MissingExtraError("codecarbon")

    monkeypatch.setattr(carbon, "_countries", countries)
    without = intensity(Place())
    assert without.low_kg_per_kwh == pytest.approx(with_tables.low_kg_per_kwh, rel=1e-6)
    assert without.high_kg_per_kwh == pytest.approx(with_tables.high_kg_per_kwh, rel=1e-6)
    assert without.source == with_tables.source

"""Arguments come before the environment, the environment before files, files before defaults."""

import os
import pickle
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.callback import meter_from
from energy_callbacks.core.config import (
    DISABLED_VARIABLE,
    NO_COMMAND_VARIABLE,
    RUN_DIR_VARIABLE,
    settings_in_use,
)

# A value of each setting in a file, in the environment (as text and as value), and as argument.
EVERYWHERE: dict[str, tuple[Any, str, Any, Any]] = {
    "report_dir": ("/in/file", "/in/environment", "/in/environment", "argument"),
    "country": ("DEU", "FRA", "FRA", "POL"),
    "carbon_intensity": (100, "200", 200.0, 300),
    "pue": (1.1, "1.2", 1.2, 1.3),
    "price_per_kwh": (0.1, "0.2", 0.2, 0.3),
    "currency": ("EUR", "USD", "USD", "PLN"),
    "devices": ([0], "1,GPU-4e81", [1, "GPU-4e81"], "all"),
    "machine_power": ("ipmi", "auto", "auto", "ipmi"),
    "sample_interval_s": (0.1, "0.2", 0.2, 0.3),
    "raw_readings": (True, "no", False, True),
    "step_events": (True, "0", False, True),
    "phase_events": (False, "1", True, False),
    "max_energy_wh": (1, "2", 2.0, 3),
    "max_emissions_g": (1, "2", 2.0, 3),
    "power_limit": (
        {"max_slowdown": 0.1}, "eta=0.5, allow_changes=no", {"eta": 0.5, "allow_changes": False},
        {"objective": "min_energy"},
    ),
    "record_command": (False, "on", True, False),
    "run_name": ("file", "123", "123", "argument"),
    "tag_prefix": ("file/", "environment/", "environment/", "argument/"),
    "tags": ({"a": "file"}, "a=environment", {"a": "environment"}, {"a": "argument"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without settings around it."""
    for name in [name for name in os.environ if name.startswith("ENERGY_CALLBACKS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def callback_meter(**settings: Any) -> EnergyMeter:
    """The meter of a callback with these settings; all frameworks construct it in this way."""
    return meter_from(settings, own=())


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def write(folder: Path, **settings: Any) -> Path:
    """Write a settings file."""
    path = folder / "energy_callbacks.toml"
    path.write_text("".join(f"{name} = {toml(value)}\n" for name, value in settings.items()))
    return path


def test_each_setting_is_tested() -> None:
    """``region`` needs a country, and has a test of its own."""
    assert {*EVERYWHERE, "region"} == {one.name for one in fields(EnergyConfig) if one.init}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_the_order_of_precedence(project: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting: default, then file, then environment, then argument; and its origin."""
    in_file, text, in_environment, argument = EVERYWHERE[name]
    default = getattr(EnergyConfig(), name)

    def found(**arguments: Any) -> tuple[Any, str]:
        config = EnergyConfig(**arguments)
        return getattr(config, name), config.origins[name]

    assert found() == (default, "default")
    path = write(project, **{name: in_file})
    assert found() == (in_file, str(path))
    variable = f"ENERGY_CALLBACKS_{name.upper()}"
    monkeypatch.setenv(variable, text)
    assert found() == (in_environment, f"environment variable {variable}")
    assert type(found()[0]) is type(in_environment)
    assert found(**{name: argument}) == (argument, "argument")
    monkeypatch.setenv(variable, " ")
    assert found() == (in_file, str(path))


def test_an_argument_that_is_the_default_is_an_argument(project: Path) -> None:
    """``pue=1.0`` in the code wins over the file; ``None`` is no argument."""
    write(project, pue=1.5, tags={"a": "b"}, country="DEU")
    config = EnergyConfig(pue=1.0, country=None, tags={})
    assert (config.pue, config.country, config.tags) == (1.0, "DEU", {})


def test_the_location_comes_from_one_source(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Country, region and carbon intensity of different sources are not mixed."""
    write(project, country="USA", region="Texas", carbon_intensity=300, pue=1.2)
    config = EnergyConfig()
    assert (config.country, config.region, config.carbon_intensity) == ("USA", "Texas", 300)
    config = EnergyConfig(country="DEU")
    assert (config.country, config.region, config.carbon_intensity) == ("DEU", None, None)
    assert config.pue == 1.2
    monkeypatch.setenv("ENERGY_CALLBACKS_CARBON_INTENSITY", "50")
    config = EnergyConfig()
    assert (config.country, config.region, config.carbon_intensity) == (None, None, 50.0)


def test_paths_in_a_file_are_relative_to_it(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other paths are relative to the working directory, as in an argument."""
    write(project, report_dir="runs", carbon_intensity="grid/hourly.csv")
    inner = project / "src"
    inner.mkdir()
    monkeypatch.chdir(inner)
    config = EnergyConfig()
    assert config.report_dir == str(project / "runs")
    assert config.carbon_intensity == str(project / "grid" / "hourly.csv")
    write(project, report_dir="~/runs")
    assert EnergyConfig().report_dir == "~/runs"
    monkeypatch.setenv("ENERGY_CALLBACKS_REPORT_DIR", "here")
    assert EnergyConfig().report_dir == "here"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"contry": "DEU"}, "contry = 'DEU' is not a setting; did you mean country?"),
        ({"x": 1}, "x = 1 is not a setting; the settings are report_dir, country, "),
        ({"pue": "high"}, "pue must be a number, got 'high'"),
        ({"pue": 0.5}, "pue must lie between 1 and 10, got 0.5"),
        ({"country": 49}, "country must be a word, got 49"),
        ({"currency": "euro"}, "currency must be a code of three capital letters"),
        ({"tags": "a"}, "tags must be a dict"),
        ({"devices": "gpu"}, "devices must be"),
        ({"carbon_intensity": 0.38}, "got 0.38; if this is in kg, pass 380"),
    ],
)  # fmt: skip
def test_a_wrong_setting_in_a_file_is_refused_with_file_key_and_value(
    project: Path, settings: dict[str, Any], message: str
) -> None:
    """At the construction of the settings, of a meter and of a callback."""
    path = write(project, **settings)
    for construct in (EnergyConfig, EnergyMeter, callback_meter):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            construct()
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("CONTRY", "DEU",
         "ENERGY_CALLBACKS_CONTRY=DEU is not a setting; did you mean ENERGY_CALLBACKS_COUNTRY?"),
        ("DISABLE", "1", "is not a setting; did you mean ENERGY_CALLBACKS_DISABLED?"),
        ("country", "DEU", "is not a setting; did you mean ENERGY_CALLBACKS_COUNTRY?"),
        ("PUE", "high",
         "environment variable ENERGY_CALLBACKS_PUE: pue must be a number, got 'high'"),
        ("RAW_READINGS", "perhaps", "must be True or False, got 'perhaps'"),
        ("DEVICES", "0,,1", "a list of indices, UUIDs and PCI addresses, got '0,,1'"),
    ],
)  # fmt: skip
def test_a_wrong_setting_in_the_environment_is_refused_with_its_variable(
    variable: str, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown variables with our prefix are refused, too."""
    monkeypatch.setenv(f"ENERGY_CALLBACKS_{variable}", text)
    with pytest.raises(ValueError, match=re.escape(message)):
        EnergyConfig()


def test_a_place_that_is_unknown_is_refused_with_its_source(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The meter looks it up at construction."""
    path = write(project, country="Atlantis")
    with pytest.raises(ValueError, match=f"^{path}: country is not known: got 'Atlantis'"):
        EnergyMeter()
    monkeypatch.setenv("ENERGY_CALLBACKS_COUNTRY", "Lyonesse")
    with pytest.raises(
        ValueError, match=r"^environment variable ENERGY_CALLBACKS_COUNTRY: country"
    ):
        callback_meter()
    with pytest.raises(ValueError, match=r"^country is not known: got 'Lemuria'"):
        callback_meter(country="Lemuria")


def test_a_disabled_package_reads_no_settings(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training with a wrong file can be started with ``ENERGY_CALLBACKS_DISABLED=1``."""
    write(project, contry="DEU")
    monkeypatch.setenv("ENERGY_CALLBACKS_PUE", "high")
    monkeypatch.setenv(DISABLED_VARIABLE, "1")
    assert EnergyConfig().pue == 1.0


def test_callbacks_and_meters_use_all_sources(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their keyword arguments are the arguments."""
    write(project, country="DEU", price_per_kwh=0.3, tags={"a": "b"})
    monkeypatch.setenv("ENERGY_CALLBACKS_CURRENCY", "EUR")
    for config in (
        callback_meter(price_per_kwh=0.2, tags=None).config,
        EnergyMeter(config=EnergyConfig(price_per_kwh=0.2)).config,
    ):
        found = (config.country, config.price_per_kwh, config.currency, config.tags)
        assert found == ("DEU", 0.2, "EUR", {"a": "b"})
    callback_meter(meter=EnergyMeter())  # settings of the file are no arguments


def test_copies_have_the_values_that_were_found(project: Path) -> None:
    """A pickle on another machine and a changed copy do not look again."""
    path = write(project, country="DEU", pue=1.5)
    config = EnergyConfig(run_name="a")
    stored = pickle.dumps(config)
    path.unlink()
    assert pickle.loads(stored) == config
    assert pickle.loads(stored).origins == config.origins
    changed = replace(config, run_name="b")
    assert (changed.country, changed.pue, changed.run_name) == ("DEU", 1.5, "b")


def test_the_settings_in_use_have_their_origins(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For ``energy-callbacks doctor``; some variables have precedence over arguments."""
    path = write(project, country="DEU")
    monkeypatch.setenv("ENERGY_CALLBACKS_PUE", "1.2")
    found = settings_in_use(EnergyConfig(report_dir="here"))
    assert found["country"] == ("DEU", str(path))
    assert found["pue"] == (1.2, "environment variable ENERGY_CALLBACKS_PUE")
    assert found["devices"] == ("auto", "default")
    assert found["report_dir"] == (Path("here"), "argument")
    assert found["record_command"] == (True, "default")
    monkeypatch.setenv(RUN_DIR_VARIABLE, "there")
    monkeypatch.setenv(NO_COMMAND_VARIABLE, "1")
    found = settings_in_use(EnergyConfig(report_dir="here"))
    assert found["report_dir"] == (Path("there"), f"environment variable {RUN_DIR_VARIABLE}")
    assert found["record_command"] == (False, f"environment variable {NO_COMMAND_VARIABLE}")

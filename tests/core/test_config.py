"""Invalid settings are refused at construction."""

import dataclasses
import math
import pickle
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.core.config import (
    DISABLED_VARIABLE,
    RUN_DIR_VARIABLE,
    EnergyConfig,
    is_disabled,
)

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"sample_interval_s": -1.0}, ValueError, r"sample_interval_s must lie between 0.05 and 1"),
    ({"sample_interval_s": 0.0}, ValueError, "got 0.0"),
    ({"sample_interval_s": math.nan}, ValueError, "got nan"),
    ({"sample_interval_s": math.inf}, ValueError, "got inf"),
    ({"sample_interval_s": "fast"}, TypeError, "must be a number, got 'fast'"),
    ({"sample_interval_s": True}, TypeError, "got True"),
    ({"sample_interval_s": None}, TypeError, "got None"),
    ({"step_events": 1}, TypeError, "step_events must be True or False, got 1"),
    ({"pue": 0.9}, ValueError, r"pue must lie between 1 and 10, got 0.9"),
    ({"pue": math.nan}, ValueError, "pue"),
    ({"pue": "1.2"}, TypeError, "pue must be a number"),
    ({"price_per_kwh": -0.1}, ValueError, "price_per_kwh"),
    ({"price_per_kwh": math.inf}, ValueError, "price_per_kwh"),
    ({"price_per_kwh": "30 ct"}, TypeError, "price_per_kwh"),
    ({"currency": "euro"}, ValueError, r"currency must be .*ISO 4217.*got 'euro'; write 'EUR'"),
    ({"currency": "eur"}, ValueError, "got 'eur'"),
    ({"currency": 978}, TypeError, "currency must be a code of three letters"),
    ({"carbon_intensity": -1}, ValueError, "carbon_intensity must lie between 0 and 3000, got -1"),
    ({"carbon_intensity": 1e6}, ValueError, "carbon_intensity must lie"),
    ({"carbon_intensity": math.nan}, ValueError, "carbon_intensity must lie"),
    ({"carbon_intensity": 0.38}, ValueError, "if this is in kg, pass 380"),
    ({"carbon_intensity": True}, TypeError, "gCO2e/kWh or the path of a CSV file, got True"),
    ({"carbon_intensity": [380]}, TypeError, r"got \[380"),
    ({"region": "Texas"}, ValueError, r"region='Texas' needs a country; add country='USA'"),
    ({"devices": [-1]}, ValueError, r"must not be negative, got -1; 'energy-callbacks doctor'"),
    ({"devices": []}, ValueError, r"contains no GPU; leave it out"),
    ({"machine_power": "bmc"}, ValueError, "must be 'auto', 'acpi' or 'ipmi', got 'bmc'"),
    ({"devices": "gpu"}, ValueError, r"got 'gpu'; write devices=\[0\] for one card"),
    ({"devices": 0}, ValueError, r"got 0; write devices=\[0\]"),
    ({"devices": 5}, ValueError, r"got 5; write devices=\[5\] for one card"),
    ({"devices": b"0"}, ValueError, "devices must be"),
    ({"devices": {0}}, ValueError, "devices must be"),
    ({"record_command": "no"}, TypeError, "record_command must be True or False, got 'no'"),
    ({"devices": None}, ValueError, "got None"),
    ({"devices": [0.5]}, TypeError, "got 0.5"),
    ({"devices": [True]}, TypeError, "got True"),
    ({"devices": [None]}, TypeError, "got None"),
    ({"report_dir": 7}, TypeError, "report_dir must be a path, got 7"),
    ({"country": 49}, TypeError, "country must be a word, got 49"),
    ({"run_name": 1}, TypeError, "run_name must be a word, got 1"),
    ({"raw_readings": "yes"}, TypeError, "raw_readings must be True or False, got 'yes'"),
    ({"tags": ["a"]}, TypeError, r"tags must be a dict.*got \['a'\]"),
    ({"tags": "a"}, TypeError, "tags must be a dict"),
]


@pytest.mark.parametrize(("settings", "kind", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_setting_is_refused_with_what_it_got_and_what_to_do(
    settings: dict[str, Any], kind: type[Exception], message: str
) -> None:
    """Construction raises; the message names the setting and the value."""
    with pytest.raises(kind, match=message):
        EnergyConfig(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sample_interval_s": 0.05, "pue": 1, "price_per_kwh": 0},
        {"devices": "all"},
        {"carbon_intensity": 0, "currency": "EUR"},
        {"carbon_intensity": Path("hourly.csv")},
        {"devices": [0, 3]},
        {"devices": ("GPU-4e81", 1)},
        {"country": "USA", "region": "Texas"},
        {"report_dir": Path("runs"), "run_name": "x", "tags": {"team": "a"}},
    ],
    ids=str,
)
def test_a_right_setting_is_kept(settings: dict[str, Any]) -> None:
    """Valid settings are kept unchanged, also in a pickle, and cannot be modified."""
    config = EnergyConfig(**settings)
    assert {name: getattr(config, name) for name in settings} == settings
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        config.pue = 2.0  # type: ignore[misc]


def test_the_folder_of_a_parent_comes_before_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder in the environment has precedence over ``report_dir``, unless it is empty."""
    monkeypatch.delenv(RUN_DIR_VARIABLE, raising=False)
    assert EnergyConfig().run_folder is None
    assert EnergyConfig(report_dir="mine").run_folder == Path("mine")
    monkeypatch.setenv(RUN_DIR_VARIABLE, "parents")
    assert EnergyConfig(report_dir="mine").run_folder == Path("parents")
    monkeypatch.setenv(RUN_DIR_VARIABLE, "")
    assert EnergyConfig(report_dir="mine").run_folder == Path("mine")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, False), ("", False), ("0", False), ("false", False), ("No", False), (" 0 ", False),
     ("1", True), ("true", True), ("yes", True), ("on", True)],
)  # fmt: skip
def test_the_switch_understands_words(
    value: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every value except an empty one, 0, false and no disables the package."""
    monkeypatch.delenv(DISABLED_VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(DISABLED_VARIABLE, value)
    assert is_disabled() is expected

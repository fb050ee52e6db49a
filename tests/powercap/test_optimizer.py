"""The arguments of the optimizer are checked at construction, wherever they come from."""

import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.powercap import PowerLimitOptimizer


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_slowdown": 0.1, "eta": 0.5}, "one objective, got max_slowdown and eta; pass one"),
        ({"max_slowdown": -0.1}, "max_slowdown must be between 0 and 10, got -0.1"),
        ({"eta": 1.5}, "eta must be between 0 and 1, got 1.5"),
        ({"cap_w": 0.0}, "cap_w must be positive, got 0"),
        ({"cap_w": float("nan")}, "cap_w must be at least 0, got nan"),
        ({"objective": "fast"}, "objective must be 'min_energy', got 'fast'"),
        ({"knob": "volume"}, "knob must be one of 'limit', 'clock', 'duty', got 'volume'"),
        ({"knob": "duty"}, "knob='duty' lowers the mean power and needs cap_w= or schedule="),
        ({"schedule": "missing.csv"}, "missing.csv"),
        ({"window_steps": 0}, "window_steps must be at least 1, got 0"),
        ({"actuator": "nvm"}, "actuator must be one of nvml, zeusd, nvidia-smi, hwmon, duty-cycle"),
    ],
)
def test_a_wrong_argument_is_refused(arguments: dict[str, Any], message: str) -> None:
    """The error names the argument and its value."""
    with pytest.raises(ValueError, match=re.escape(message)):
        PowerLimitOptimizer(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"allow_changes": "yes"}, "allow_changes must be True or False, got 'yes'"),
        ({"allow_changes": 1}, "allow_changes must be True or False, got 1"),
        ({"max_slowdown": "5 %"}, "max_slowdown must be a number, got '5 %'"),
    ],
)
def test_a_wrong_type_is_refused(arguments: dict[str, Any], message: str) -> None:
    """Consent is a boolean, so that no other value is taken for it."""
    with pytest.raises(TypeError, match=re.escape(message)):
        PowerLimitOptimizer(**arguments)


def test_the_default_is_a_slowdown_of_five_percent_without_consent() -> None:
    """An optimizer without arguments changes nothing."""
    optimizer = PowerLimitOptimizer()
    assert (optimizer.max_slowdown, optimizer.allow_changes) == (0.05, False)
    assert str(optimizer) == "max_slowdown=0.05"


def test_it_can_be_pickled() -> None:
    """For spawned ranks."""
    optimizer = PowerLimitOptimizer(eta=0.3, knob="clock", allow_changes=True)
    assert pickle.loads(pickle.dumps(optimizer)) == optimizer
    callback = GpuEnergyCallback(power_limit=optimizer)
    assert pickle.loads(pickle.dumps(callback))._meter.config.power_limit == optimizer


def test_the_settings_file_has_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of arguments; errors name the file."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "energy_callbacks.toml"
    path.write_text("power_limit = { eta = 0.5, allow_changes = true }\n")
    expected = PowerLimitOptimizer(eta=0.5, allow_changes=True)
    assert EnergyMeter()._power_control == expected
    path.write_text("power_limit = { eta = 5 }\n")
    with pytest.raises(ValueError, match=f"^{path}: eta must be between 0 and 1, got 5"):
        EnergyMeter()
    path.write_text("power_limit = { etta = 0.5 }\n")
    with pytest.raises(ValueError, match=f"^{path}: .*etta"):
        EnergyMeter()


@pytest.mark.parametrize("value", [0.8, "max", PowerLimitOptimizer])
def test_other_objects_are_refused(value: object) -> None:
    """The class instead of an object, too."""
    with pytest.raises(TypeError, match=re.escape("power_limit must be PowerLimitOptimizer(...)")):
        EnergyConfig(power_limit=value)

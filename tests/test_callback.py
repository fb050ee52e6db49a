"""What the callbacks of all frameworks share."""

from dataclasses import fields
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.callback import SETTINGS, EnergyCallback, meter_from
from energy_callbacks.core.config import ConfigSettings


class Ours(EnergyCallback):
    """A callback of a fictitious framework."""

    framework_name = "Sandcastle"

    def __init__(self) -> None:
        self._meter = EnergyMeter()

    @property
    def weather(self) -> float:
        """A property that raises."""
        raise AttributeError("no barometer")


def test_a_hook_of_another_framework_names_all_doors() -> None:
    """The error of a callback in the wrong framework names the right import."""
    with pytest.raises(AttributeError) as caught:
        Ours().on_step_begin()
    message = str(caught.value)
    assert caught.value.obj is None, "otherwise the interpreter proposes a hook of this framework"
    assert "its methods are report and wait_for_report" in message
    assert "of Sandcastle has no 'on_step_begin'" in message
    for door in ("lightning", "keras", "huggingface"):
        assert f"energy_callbacks.{door}" in message


def test_a_property_that_fails_says_what_it_said() -> None:
    """The error of an existing property is shown unchanged."""
    with pytest.raises(AttributeError, match=r"^no barometer$"):
        _ = Ours().weather


def test_a_question_whether_a_hook_is_there_is_answered() -> None:
    """``hasattr`` works for existing and missing hooks."""
    assert not hasattr(Ours(), "on_step_begin")


def test_the_settings_are_those_of_the_configuration() -> None:
    """They have the same names and types, so that callbacks and meters share one list."""
    types = {one.name: one.type for one in fields(EnergyConfig) if one.init}
    assert set(SETTINGS) == types.keys() | {"profilers", "meter"}
    assert {**ConfigSettings.__annotations__, "tags": types["tags"]} == types


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"run_nam": "a"}, "no setting 'run_nam'; did you mean 'run_name'"),
        ({"tokens_fun": len}, "did you mean 'tokens_fn'"),
        ({"length_fn": len}, "no setting 'length_fn'; did you mean 'tokens_fn'"),
        ({"profile": ()}, "no setting 'profile'; did you mean 'profilers'"),
        ({"tokens_per_sample": 1.0}, "did you mean 'tokens_fn'"),
        ({"xyz": 1}, "no setting 'xyz'; it has tokens_fn, report_dir, country"),
    ],
)
def test_an_unknown_setting_is_refused(settings: Any, message: str) -> None:
    """The message has the new name, a similar name, or all names."""
    with pytest.raises(TypeError, match=message):
        meter_from(settings, own=("tokens_fn",))


def test_a_setting_that_is_none_has_its_default() -> None:
    """Also where ``None`` is no value of the setting, as for ``pue``."""
    assert meter_from({"tags": None, "pue": None}, own=()).config == EnergyConfig()  # type: ignore[typeddict-item]


@pytest.mark.parametrize("others", [{"country": "DEU"}, {"profilers": ["kernels"]}])
def test_a_meter_comes_without_other_settings(others: Any) -> None:
    """The message names the settings that cannot be combined with a meter."""
    with pytest.raises(ValueError, match=f"meter= has its own settings, but {next(iter(others))}"):
        meter_from({"meter": EnergyMeter(), **others}, own=())


def test_a_meter_may_come_with_empty_settings() -> None:
    """``None`` and empty lists count as no settings."""
    meter = EnergyMeter()
    assert meter_from({"meter": meter, "country": None, "profilers": ()}, own=()) is meter

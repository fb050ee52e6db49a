"""What the callbacks of all frameworks share."""

from dataclasses import fields
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.callback import SETTINGS, EnergyCallback, meter_from


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
    """They have the same types; ``raw_readings`` is only for ``EnergyMeter``."""
    ours = set(SETTINGS) - {"profile", "meter"}
    assert ours == {one.name for one in fields(EnergyConfig)} - {"raw_readings"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"run_nam": "a"}, "no setting 'run_nam'; did you mean 'run_name'"),
        ({"length_fun": len}, "did you mean 'tokens_fn'"),
        ({"xyz": 1}, "no setting 'xyz'; it has tokens_fn, report_dir, country"),
    ],
)
def test_an_unknown_setting_is_refused(settings: Any, message: str) -> None:
    """The message has a similar name, or all names."""
    with pytest.raises(TypeError, match=message):
        meter_from(settings, own=("tokens_fn",))


def test_no_tags_are_no_labels() -> None:
    """``None`` means no tags."""
    assert meter_from({"tags": None}, own=()).config == EnergyConfig()

"""Values of settings are checked against the range of the card."""

import pytest

from energy_callbacks.powercap.settings import KnobRange, Setting

LIMITS = KnobRange(knob="limit", lowest=100.0, highest=400.0, present=300.0, default=400.0)
CLOCKS = KnobRange(
    knob="clock", lowest=210.0, highest=1410.0, present=None, default=None, steps=(210.0, 1410.0)
)


@pytest.mark.parametrize("value", [99.9, 400.1, float("nan")])
def test_values_outside_the_range_are_refused(value: float) -> None:
    """A limit below the lowest or above the highest, or NaN, raises an error with the range."""
    with pytest.raises(ValueError, match="limit must be between 100 and 400 W, got"):
        LIMITS.check(value)


def test_only_values_of_the_card_are_accepted() -> None:
    """A clock that the card does not have raises an error that names the nearest one."""
    CLOCKS.check(1410.0)
    with pytest.raises(ValueError, match="got 1000 MHz; the nearest is 1410 MHz"):
        CLOCKS.check(1000.0)


def test_only_locks_can_end() -> None:
    """``None`` ends the lock of a clock; a limit needs a value."""
    CLOCKS.check(None)
    with pytest.raises(ValueError, match="limit needs a value, got None"):
        LIMITS.check(None)


def test_every_limit_in_the_range_is_accepted() -> None:
    """Limits are continuous, both ends included."""
    for value in (100.0, 250.5, 400.0):
        LIMITS.check(value)
    assert LIMITS.nearest(500.0) == 400.0


def test_a_setting_names_its_unit() -> None:
    """Messages show a setting with its unit."""
    assert str(Setting(knob="memory_clock", value=2619.0)) == "memory clock 2619 MHz"
    assert str(Setting(knob="duty", value=0.5)) == "duty 0.5"

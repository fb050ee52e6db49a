"""The saving compares windows at two settings."""

import math

import pytest

from energy_callbacks.powercap.results import measured_effect
from energy_callbacks.powercap.search.trial import Trial


def trial(value: float, step_s: float, step_j: float, share: float = 0.01) -> Trial:
    """A window whose time and energy have the same relative standard error."""
    return Trial(
        value=value,
        step_s=step_s,
        step_j=step_j,
        step_s_stderr=share * step_s,
        step_j_stderr=share * step_j,
    )


def test_slowdown_and_saving_have_the_errors_of_both_windows() -> None:
    """0.104 s for 0.1 s and 80 J for 100 J, each with an error of 1 %."""
    slowdown, saving = measured_effect([trial(400.0, 0.1, 100.0)], [trial(300.0, 0.104, 80.0)])
    assert slowdown.value == pytest.approx(0.04)
    assert saving.value == pytest.approx(0.2)
    error = 1.96 * 0.8 * math.hypot(0.01, 0.01)
    assert (saving.low, saving.high) == pytest.approx((0.2 - error, 0.2 + error))


def test_many_windows_do_not_average_out_their_errors() -> None:
    """Errors from edges of phases are the same in all windows."""
    _, one = measured_effect([trial(400.0, 0.1, 100.0)], [trial(300.0, 0.1, 80.0)])
    _, many = measured_effect([trial(400.0, 0.1, 100.0)] * 9, [trial(300.0, 0.1, 80.0)] * 9)
    assert many.high == pytest.approx(one.high)


def test_scatter_counts_if_it_is_larger() -> None:
    """Windows with a stated error of 0.01 % that differ by 10 %."""
    found = [trial(400.0, 0.1, step_j, 1e-4) for step_j in (90.0, 100.0, 110.0)]
    _, saving = measured_effect(found, [trial(300.0, 0.1, 80.0, 1e-4)])
    assert saving.high - saving.low > 0.1


def test_the_setting_found_saves_nothing() -> None:
    """It is the chosen one if no other is better."""
    found = [trial(400.0, 0.1, 100.0)]
    slowdown, saving = measured_effect(found, found)
    assert (slowdown.low, saving.high) == (0.0, 0.0)

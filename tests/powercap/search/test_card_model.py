"""The card model: limits of what a setting can do."""

import numpy as np
import pytest

from energy_callbacks.powercap.search.card_model import PARAMETERS, CardModel, model_of
from energy_callbacks.powercap.settings import Knob
from tests.powercap.search.simulated import LIMITS, settings

NORMALS = np.random.default_rng(1).normal(size=(200, PARAMETERS))


@pytest.mark.parametrize(
    ("knob", "low", "high"),
    [("limit", 100.0, 300.0), ("clock", 210.0, 1980.0), ("duty", 0.1, 1.0)],
)
def test_time_falls_and_power_rises_with_the_setting(knob: Knob, low: float, high: float) -> None:
    """Of all random cards."""
    model = CardModel(settings(knob, low, high), 300.0)
    log_s, log_j = model.log_curves(NORMALS, np.linspace(low, high, 50))
    assert np.diff(log_s, axis=1).max() < 1e-12
    assert np.diff(log_j - log_s, axis=1).min() > -1e-12


def test_a_limit_is_kept_above_the_lowest_clock() -> None:
    """The mean power is at most the limit, times the card's gain, if the clock can be lowered."""
    mean = np.zeros((1, PARAMETERS))
    values = np.linspace(300.0, 700.0, 20)
    log_s, log_j = CardModel(LIMITS, 700.0).log_curves(mean, values)
    assert np.all(700.0 * np.exp(log_j - log_s)[0] <= values)


def test_a_duty_cycle_stretches_the_step() -> None:
    """At half of the time, a step takes twice as long."""
    duty = CardModel(settings("duty", 0.1, 1.0), 300.0)
    log_s, _ = duty.log_curves(NORMALS, np.array([0.5, 1.0]))
    assert log_s[:, 0] - log_s[:, 1] == pytest.approx(np.full(200, np.log(2.0)))


def test_the_scale_of_power_is_the_highest_limit_of_all_cards() -> None:
    """Without limits, it follows from the first window."""
    assert model_of(LIMITS, cards=4, power_w=1.0).scale_w == 2800.0
    clock = settings("clock", 210.0, 1980.0)
    assert model_of(clock, cards=4, power_w=300.0).scale_w == 400.0

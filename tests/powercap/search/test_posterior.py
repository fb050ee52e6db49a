"""Curves that agree with the windows."""

import numpy as np
import pytest

from energy_callbacks.powercap.search.card_model import CardModel
from energy_callbacks.powercap.search.posterior import drawn_curves
from tests.powercap.search.simulated import CARD_W, LIMITS, Card

VALUES = np.array([200.0, 350.0, 500.0, 700.0])


def test_curves_pass_near_the_windows_and_spread_elsewhere() -> None:
    """Within their errors at the windows; the spread far from them is larger."""
    card = Card(LIMITS)
    windows = [card.window(value) for value in (700.0, 500.0)]
    curves = drawn_curves(CardModel(LIMITS, CARD_W), windows, VALUES, found=3)
    assert curves.step_s[:, 3].mean() == pytest.approx(windows[0].step_s, rel=0.01)
    assert curves.step_j[:, 2].mean() == pytest.approx(windows[1].step_j, rel=0.01)
    spreads = np.log(curves.step_s).std(axis=0)
    assert spreads[0] > 5.0 * spreads[2]


def test_a_window_without_a_stated_error_is_not_exact() -> None:
    """Its error is at least 0.2 %, so that the search does not trust one window too much."""
    card = Card(LIMITS)
    exact = [card.truth(700.0)]
    curves = drawn_curves(CardModel(LIMITS, CARD_W), exact, VALUES, found=3)
    assert 0.001 < np.log(curves.step_s[:, 3]).std() < 0.004


def test_the_same_windows_give_the_same_curves() -> None:
    """All ranks come to the same answer."""
    windows = [Card(LIMITS).window(700.0)]
    model = CardModel(LIMITS, CARD_W)
    first, second = (drawn_curves(model, windows, VALUES, found=3) for _ in range(2))
    assert np.array_equal(first.step_j, second.step_j)

"""Exposures agree with integrals of what a sensor shows of a jump."""

import numpy as np
import pytest

from energy_callbacks.sensing.estimation.exposure import Exposure, Shape
from tests.sensing.estimation.steps_of_power import after_jump

T_S = np.cumsum(np.random.default_rng(0).uniform(0.005, 0.05, 40)) - 0.4
FINE_S = np.arange(-3.0, 3.0, 1e-5)
POWER_W = (FINE_S >= 0.0).astype(float)
WINDOWS_S = [(0.1, 0.0), (0.0, 0.1), (0.025, 0.1), (1.0, 0.1)]


def trapezia(shown_w: np.ndarray, response_s: float = 0.0) -> np.ndarray:
    """Energies as ``PowerIntervals`` computes them from readings."""
    mean_w = (shown_w[1:] + shown_w[:-1]) / 2.0
    return mean_w * np.diff(T_S) + response_s * np.diff(shown_w)


def blurred(power_w: np.ndarray, width_s: float) -> np.ndarray:
    """Mean over a window around each moment, by cumulative sums."""
    count = round(width_s / 1e-5)
    if not count:
        return power_w
    sums = np.concatenate([[0.0], np.cumsum(power_w)])
    places = np.arange(len(power_w))
    low, high = (np.clip(places + half, 0, len(power_w)) for half in (-count // 2, count // 2))
    return (sums[high] - sums[low]) / np.maximum(high - low, 1)


def test_counters_have_the_time_after_the_edge() -> None:
    """Numerically: the share of each interval in which power is 1 W."""
    energy_j = np.interp(T_S, FINE_S, np.cumsum(POWER_W) * 1e-5)
    found_s = after_jump(Exposure(Shape(is_exact=True)), T_S)
    assert found_s == pytest.approx(np.diff(energy_j), abs=2e-5)


@pytest.mark.parametrize(("window_s", "period_s"), WINDOWS_S)
def test_gauges_average_over_window_and_age(window_s: float, period_s: float) -> None:
    """A value belongs to its window, and is up to a period old at an unrelated moment."""
    shown_w = np.interp(T_S, FINE_S, blurred(blurred(POWER_W, window_s), period_s))
    exposure = Exposure(Shape(is_exact=False, window_s=window_s, period_s=period_s))
    assert after_jump(exposure, T_S) == pytest.approx(trapezia(shown_w), abs=2e-5)


@pytest.mark.parametrize("response_s", [0.008, 0.015, 0.02])
def test_filters_may_respond_faster_or_slower_than_assumed(response_s: float) -> None:
    """The filter is integrated in steps; energies are computed with 15 ms in all cases."""
    shown, state_w = np.empty_like(POWER_W), 0.0
    keep = np.exp(-1e-5 / response_s)
    for place, power_w in enumerate(POWER_W.tolist()):
        state_w = power_w + (state_w - power_w) * keep
        shown[place] = state_w
    energies_j = trapezia(np.interp(T_S, FINE_S, shown), 0.015)
    shape = Shape(is_exact=False, response_s=response_s, assumed_response_s=0.015)
    assert after_jump(Exposure(shape), T_S) == pytest.approx(energies_j, abs=2e-5)


@pytest.mark.parametrize(
    "shape",
    [
        Shape(is_exact=False, window_s=1.0, period_s=0.1),
        Shape(is_exact=False, response_s=0.02, assumed_response_s=0.015),
    ],
)
def test_readings_depend_on_edges_within_reach_only(shape: Shape) -> None:
    """Before ``ahead_s`` nothing of the new power is seen, after ``reach_s`` nothing else."""
    exposure = Exposure(shape)
    before_s = np.array([-5.0, -1.0, 0.0]) - exposure.ahead_s
    after_s = np.array([0.0, 1.0, 5.0]) + exposure.reach_s
    assert after_jump(exposure, before_s) == pytest.approx([0.0, 0.0], abs=1e-9)
    assert after_jump(exposure, after_s) == pytest.approx([1.0, 4.0], rel=1e-3)


def test_exposures_of_slivers_are_small() -> None:
    """An interval of 1 ns, as left by two readings at almost the same time, has no weight."""
    since_s = np.array([0.003, 0.00319, 0.00319 + 1e-9, 0.02])
    shape = Shape(is_exact=False, response_s=0.015, assumed_response_s=0.015)
    assert abs(after_jump(Exposure(shape), since_s)[1]) < 2e-9

"""The causes of residuals, found by their autocovariance."""

import numpy as np
import pytest

from energy_callbacks.profiling.phases.residual_noise import Causes, causes
from energy_callbacks.sensing.estimation.series import Array

COUNT, SPACING_S = 3000, 0.02
NONE_SHARED = np.zeros(0)


def white(dice: np.random.Generator) -> Array:
    """White noise of variance 1."""
    return dice.standard_normal(COUNT)


def lasting(dice: np.random.Generator, time_s: float) -> Array:
    """Noise of variance 1 that lasts: each value is a share of the one before, and a change."""
    kept, values = np.exp(-SPACING_S / time_s), [dice.standard_normal()]
    for change in dice.standard_normal(COUNT - 1):
        values.append(kept * values[-1] + np.sqrt(1.0 - kept**2) * change)
    return np.array(values)


def found(values: Array, shared_w2: Array = NONE_SHARED) -> Causes:
    """The causes of values without their mean."""
    return causes(values - values.mean(), shared_w2, SPACING_S)


def error_of_mean(one: Causes) -> float:
    """The standard error of the mean by white and lasting noise."""
    weights = np.full((1, COUNT), 1.0 / COUNT)
    return float(np.sqrt(one.white_w2 / COUNT + one.lasting(weights)[0]))


def test_white_noise_does_not_last() -> None:
    """Of white noise, the standard error of the mean is that of independent values."""
    errors = [error_of_mean(found(white(np.random.default_rng(seed)))) for seed in range(10)]
    assert np.median(errors) == pytest.approx(1.0 / np.sqrt(COUNT), rel=0.25)


@pytest.mark.parametrize("time_s", [0.15, 0.6, 2.0])
def test_the_error_of_a_mean_includes_noise_that_lasts(time_s: float) -> None:
    """The standard error of the mean is that of T / (2 tau) independent values."""
    dice = [np.random.default_rng(seed) for seed in range(20)]
    errors = [error_of_mean(found(lasting(one, time_s) + white(one))) for one in dice]
    expected = np.sqrt(2.0 * time_s / (COUNT * SPACING_S))
    assert np.median(errors) == pytest.approx(expected, rel=0.25)


def test_power_that_varies_from_step_to_step_is_not_noise() -> None:
    """What readings share because they see the same step counts as unevenness of the steps."""
    dice = np.random.default_rng(1)
    steps = np.repeat(dice.standard_normal(COUNT // 5), 5)  # five readings in each step
    shared_w2 = np.arange(5, 0, -1) / 5.0
    one = found(steps + 0.5 * white(dice), shared_w2)
    assert one.unevenness == pytest.approx(1.0, rel=0.15)
    assert one.white_w2 == pytest.approx(0.25, rel=0.2)
    assert one.lasting_w2[0] < 0.1


def test_readings_of_a_perfect_fit_have_no_noise() -> None:
    """Residuals of zero have no causes, and the error of their mean is zero."""
    one = found(np.zeros(COUNT))
    assert error_of_mean(one) == 0.0
    assert one.samples == COUNT


def test_few_readings_are_enough() -> None:
    """Ten readings, fewer than the groups of lags, have finite causes."""
    one = causes(np.tile([1.0, -1.0], 5), np.zeros(0), SPACING_S)
    assert np.isfinite(one.white_w2)
    assert np.isfinite(one.lasting_w2).all()

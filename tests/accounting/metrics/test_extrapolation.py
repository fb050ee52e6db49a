"""Steps are extrapolated with their drift, and intervals allow for what the sample cannot show."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from energy_callbacks.accounting.metrics.extrapolation import extrapolated

# The sample is nine parts of 10 steps of a run of 1000, the first 10 of which are left out.
PARTS = np.linspace(0.01, 0.1, 10)
REST = 900


def sampled(joules: NDArray[np.floating]) -> tuple[float, float, float]:
    """Return the forecast mean, its error, and the true mean, for 1000 steps."""
    parts = [float(joules[start : start + 10].sum()) for start in range(10, 100, 10)]
    mean, share = extrapolated(parts, [10] * 9, REST)
    return mean, mean * share, float(joules[100:].mean())


def noise(seed: int, memory: float) -> NDArray[np.floating]:
    """Noise of variance 1 whose correlation decays over a share of the run."""
    dice, kept = np.random.default_rng(seed), float(np.exp(-1.0 / (1000.0 * memory)))
    found = dice.normal(size=1000)
    for i in range(1, 1000):
        found[i] = kept * found[i - 1] + (1.0 - kept**2) ** 0.5 * found[i]
    return found


def test_constant_steps_stay_constant() -> None:
    """The error is about 2 % even without noise, because a drift may still begin."""
    mean, error, truth = sampled(np.full(1000, 30.0))
    assert mean == pytest.approx(truth)
    assert 0.005 < error / truth < 0.03


@pytest.mark.parametrize("change", [0.5, -0.5])
def test_drift_continues(change: float) -> None:
    """A rise or fall by 50 % over the run is extrapolated; the interval contains that it stops."""
    mean, error, truth = sampled(30.0 * (1.0 + change * np.linspace(0.0, 1.0, 1000)))
    assert mean == pytest.approx(truth, rel=0.01)
    assert abs(mean - 30.0 * (1.0 + 0.1 * change)) < error


def test_drift_that_has_ended_is_not_extrapolated() -> None:
    """A change that decays within the sample gives the final value."""
    mean, error, truth = sampled(30.0 * (1.0 - 0.3 * np.exp(-np.linspace(0.0, 1.0, 1000) / 0.03)))
    assert mean == pytest.approx(truth, rel=0.02)
    assert abs(mean - truth) < error < 0.1 * truth


def test_parts_of_unlike_length() -> None:
    """Times are counted in steps: parts with few and many steps show the same drift."""
    steps = [4, 16, 4, 16, 10, 10, 4, 16, 10]
    ends = np.cumsum([10, *steps])
    joules = 30.0 * (1.0 + 0.5 * (np.arange(1000) + 0.5) / 1000)
    parts = [float(joules[a:b].sum()) for a, b in pairwise(ends)]
    mean, _ = extrapolated(parts, steps, REST)
    assert mean == pytest.approx(joules[100:].mean(), rel=0.01)


@pytest.mark.parametrize("memory", [1 / 20, 1 / 6, 1 / 2])
def test_correlated_noise_is_no_drift(memory: float) -> None:
    """Noise with a memory of half the sample or more: the interval holds in at least 85 %."""
    held = []
    for seed in range(150):
        mean, error, truth = sampled(30.0 * (1.0 + 0.05 * noise(seed, memory)))
        held.append(abs(mean - truth) <= error)
    assert np.mean(held) >= 0.85


def test_noise_that_hides_any_drift() -> None:
    """With 100 % of noise per step, the mean of the sample is forecast with a useful error."""
    for seed in range(50):
        dice = np.random.default_rng(seed)
        mean, error, _ = sampled(30.0 * dice.gamma(1.0, size=1000))
        assert 0.12 < error / mean < 1.0


def test_energy_is_not_negative() -> None:
    """Steps whose energy falls by half within the sample."""
    mean, share = extrapolated([10.0 - i for i in range(9)], [1] * 9, 100)
    assert mean > 0.0
    assert share <= 1.0
    assert extrapolated([0.0] * 9, [1] * 9, 100) == (0.0, 0.0)

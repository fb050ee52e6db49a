"""Estimates of power, throughput and noise."""

import math

import numpy as np
import pytest

from energy_callbacks.inference.control.candidates import candidates, partitions
from energy_callbacks.inference.control.estimate import Estimates, Mean, Noise, Power
from energy_callbacks.inference.control.levels import levels
from tests.inference.control.law import LawModel, LawPlant, problem

_IDLE_W = 50.0
_NOISE = 0.003**2


def _power() -> Power:
    return Power(_IDLE_W, np.ones(2), np.diag([0.2**2, 0.1**2]))


def test_both_factors_are_found_from_two_levels() -> None:
    """Power of waiting tenants is 1.2 times, that of work 0.9 times the prediction."""
    power, rng = _power(), np.random.default_rng(0)
    for predicted_w, level in ((200.0, 10), (80.0, 2)) * 20:
        true_w = 1.2 * _IDLE_W + 0.9 * (predicted_w - _IDLE_W)
        power.add(level, true_w * (1.0 + 0.003 * rng.standard_normal()), predicted_w, _NOISE)
    means_w, variances = power.at(np.array([100.0, 150.0, 200.0]))
    assert means_w == pytest.approx([105.0, 150.0, 195.0], rel=0.01)
    assert (variances > 0.0).all()


def test_a_jump_of_the_load_is_followed_in_one_window() -> None:
    """After 30 equal windows, the power rises by 20 %: the estimate has most of it at once."""
    power = _power()
    for _ in range(30):
        power.add(5, 150.0, 150.0, _NOISE)
    power.add(5, 180.0, 150.0, _NOISE)
    mean_w, _ = power.at(np.array([150.0]))
    assert mean_w[0] > 175.0


def test_uncertainty_grows_with_the_distance_from_what_was_measured() -> None:
    """At 150 W the power is measured; at 100 W the form of the model may be wrong."""
    power = _power()
    for _ in range(30):
        power.add(5, 150.0, 150.0, _NOISE)
    _, variances = power.at(np.array([150.0, 140.0, 100.0]))
    assert variances[0] < variances[1] < variances[2]


def test_a_level_that_was_measured_above_the_cap_is_remembered_for_a_minute() -> None:
    """Level 7 had 155 W; the cap is 150 W. After 60 windows it may be tried again."""
    power = _power()
    power.add(7, 155.0, 149.0, _NOISE)
    power.add(6, 140.0, 145.0, _NOISE)
    assert power.lowest_above(150.0, 2.33, np.full(9, _NOISE)) == 7
    for _ in range(60):
        power.add(6, 140.0, 145.0, _NOISE)
    assert power.lowest_above(150.0, 2.33, np.full(9, _NOISE)) is None


def test_another_power_at_a_level_makes_older_ones_void() -> None:
    """The load fell: what was measured at other levels before says nothing any more."""
    power = _power()
    power.add(7, 155.0, 149.0, _NOISE)
    power.add(6, 148.0, 145.0, _NOISE)
    power.add(6, 120.0, 145.0, _NOISE)
    assert power.lowest_above(150.0, 2.33, np.full(9, _NOISE)) is None


@pytest.mark.parametrize("sigma", [0.002, 0.01, 0.03])
@pytest.mark.parametrize("moves_w", [0.0, 3.0])
def test_the_noise_is_found_from_windows(sigma: float, moves_w: float) -> None:
    """From 200 windows, the noise is within 30 %, also if the level changes in each window."""
    noise, power, rng = Noise(), _power(), np.random.default_rng(1)
    for number in range(200):
        predicted_w = 150.0 + moves_w * (number % 2)
        measured_w = predicted_w * (1.0 + sigma * float(rng.standard_normal()))
        noise.add(power.add(number % 2, measured_w, predicted_w, noise.variance))
    assert noise.deviation == pytest.approx(sigma, rel=0.3)


def test_noise_that_was_expected_too_large_is_forgotten() -> None:
    """Tenants that pause are expected to have 3 %; with 0.3 %, less than 1 % is left after 20."""
    noise, power, rng = Noise(0.03), _power(), np.random.default_rng(1)
    for _ in range(20):
        measured_w = 150.0 * (1.0 + 0.003 * float(rng.standard_normal()))
        noise.add(power.add(0, measured_w, 150.0, noise.variance))
    assert noise.deviation < 0.01


def test_slow_changes_of_the_load_are_noise() -> None:
    """The load wanders by 5 % within 8 windows; neighbours differ by half of that."""
    noise, power, rng = Noise(), _power(), np.random.default_rng(1)
    load, memory = 0.0, math.exp(-1.0 / 8.0)
    for _ in range(200):
        load = memory * load + 0.05 * math.sqrt(1.0 - memory**2) * float(rng.standard_normal())
        noise.add(power.add(0, 150.0 * math.exp(load), 150.0, noise.variance))
    assert noise.deviation > 0.025


def test_a_mean_begins_with_its_first_value() -> None:
    """The start counts only before the first value."""
    mean = Mean(5.0)
    mean.add(1.0)
    assert mean.value == 1.0
    mean.add(2.0)
    assert mean.value == 1.5


def _estimates() -> Estimates:
    choices = levels(LawPlant().abilities)
    found = partitions(problem(), LawModel(), choices)
    return Estimates(candidates(problem(), LawModel(), choices, found))


def test_near_partitions_are_expected_to_be_alike() -> None:
    """One is 30 % slower than predicted: near ones are expected to be, far ones by half of it."""
    estimates = _estimates()
    known = estimates.of(0)
    known.rate.add(math.log(0.7))
    estimates.add(0, known)
    _, biases, errors = estimates.everywhere()
    assert biases[0] == pytest.approx(math.log(0.7))
    assert biases.max() == pytest.approx(0.5 * math.log(0.7), rel=0.2)
    assert errors[0] == 0.0
    assert errors.max() == pytest.approx(math.sqrt(0.75), rel=0.05)


def test_without_windows_the_predictor_counts() -> None:
    """Factors are 1, biases 0, and errors those of the predictor."""
    factors, biases, errors = _estimates().everywhere()
    assert (factors == 1.0).all()
    assert (biases == 0.0).all()
    assert (errors == 1.0).all()

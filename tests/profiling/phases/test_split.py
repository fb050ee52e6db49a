"""Tests of the split of readings over phases."""

from dataclasses import replace

import numpy as np
import pytest

from energy_callbacks.profiling.phases.departures import _log_determinant
from energy_callbacks.profiling.phases.errors import PhaseSplit
from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings
from energy_callbacks.profiling.phases.split import Refusal, split
from tests.benchmarks import phases as lab
from tests.benchmarks.common.step_plants import trial as other_trial

NAMES = ("forward", "backward")


def two_phases(steps=600, *, noise_w=0.0, period_s=0.021, jitter=0.1):
    """Simulate phases of 40 and 60 ms at 100 and 400 W, read by an instant sensor."""
    rng = np.random.default_rng(7)
    widths_s = np.tile([0.04, 0.06], steps) * (1.0 + jitter * rng.standard_normal(2 * steps))
    edges_s = np.concatenate(([0.0], np.cumsum(widths_s)))
    labels = np.tile([0, 1], steps)
    t_s = np.arange(0.0, edges_s[-1], period_s)
    at = np.clip(np.searchsorted(edges_s, t_s, "right") - 1, 0, len(labels) - 1)
    power_w = np.array([100.0, 400.0])[labels[at]] + noise_w * rng.standard_normal(len(t_s))
    spans = Spans(edges_s=edges_s, labels=labels, count=2)
    return spans, Readings(t_s=t_s, power_w=power_w, lag_s=0.0, response_s=0.0)


def test_without_noise_it_is_the_truth():
    """Both powers are right to 0.5 W, with small errors."""
    found = split(*two_phases(), NAMES, 600)
    assert isinstance(found, PhaseSplit)
    np.testing.assert_allclose(found.power_w, [100.0, 400.0], atol=0.5)
    assert (found.error_w < 3.0).all()
    assert found.lag_s == pytest.approx(0.0, abs=2e-3)


def test_more_noise_is_less_sure():
    """Intervals grow with the noise."""
    quiet, loud = (split(*two_phases(noise_w=noise_w), NAMES, 600) for noise_w in (5.0, 50.0))
    assert isinstance(quiet, PhaseSplit)
    assert isinstance(loud, PhaseSplit)
    assert (loud.error_w > 4.0 * quiet.error_w).all()


def test_readings_outside_phases_do_not_count():
    """A validation of ten seconds at 900 W has no effect."""
    spans, readings = two_phases()
    middle = len(spans.labels) // 2
    gap_s = 10.0
    start_s = spans.edges_s[middle]
    edges_s = np.insert(spans.edges_s, middle + 1, start_s + gap_s)
    edges_s[middle + 2 :] += gap_s
    labels = np.insert(spans.labels, middle, -1)
    late = readings.t_s >= start_s
    during_s = np.arange(start_s, start_s + gap_s, 0.021)
    t_s = np.concatenate((readings.t_s[~late], during_s, readings.t_s[late] + gap_s))
    power_w = np.concatenate(
        (readings.power_w[~late], np.full(len(during_s), 900.0), readings.power_w[late])
    )
    found = split(
        Spans(edges_s=edges_s, labels=labels, count=2),
        replace(readings, t_s=t_s, power_w=power_w),
        NAMES,
        600,
    )
    assert isinstance(found, PhaseSplit)
    np.testing.assert_allclose(found.power_w, [100.0, 400.0], atol=1.0)


@pytest.mark.parametrize(("steps", "why"), [(10, "10 steps are too few"), (60, "too few readings")])
def test_too_little_is_refused(steps, why):
    """Ten steps, or six seconds, are refused."""
    found = split(*two_phases(steps), NAMES, steps)
    assert isinstance(found, Refusal)
    assert why in found.why


def test_a_mean_over_a_second_is_refused():
    """A mean over a second, as of NVML on Hopper, cannot distinguish the phases."""
    spans, readings = two_phases(jitter=0.02)
    kernel = np.ones(48) / 48.0
    smooth_w = np.convolve(readings.power_w, kernel)[: len(readings.t_s)]
    noise_w = 2.0 * np.random.default_rng(1).standard_normal(len(smooth_w))
    window_s = np.full(len(smooth_w), 48 * 0.021)
    found = split(
        spans, replace(readings, power_w=smooth_w + noise_w, window_s=window_s), NAMES, 600
    )
    assert isinstance(found, Refusal)
    assert "has an error of" in found.why


def test_three_periods_of_the_sensor_are_refused():
    """Readings at three places of the step cannot distinguish the phases."""
    one = lab.trial(0.060, 0.0, np.random.default_rng(0))
    found = split(one.spans, one.readings, lab.NAMES, one.steps)
    assert isinstance(found, Refusal)
    assert "on only 3 positions within the step" in found.why
    assert "varied length" in found.help


def test_four_phases_of_a_slow_sensor():
    """The true powers are within the intervals if a step has twenty sensor periods."""
    one = lab.trial(0.400, 0.05, np.random.default_rng(3))
    found = split(one.spans, one.readings, lab.NAMES, one.steps)
    assert isinstance(found, PhaseSplit)
    truth_w = one.truth_j / one.spans.times_s()
    assert (np.abs(found.power_w - truth_w) < 1.5 * found.error_w).all()
    np.testing.assert_allclose(found.power_w, truth_w, rtol=0.05)
    assert found.response_s == pytest.approx(0.015, abs=2e-3)
    assert found.fitted_mean_w == pytest.approx(found.mean_w, rel=1e-3)


def test_a_phase_that_no_reading_shows_is_named():
    """If the sensor is lost before a phase occurs, its power is not known."""
    spans, readings = two_phases(noise_w=5.0)
    labels = spans.labels.copy()
    labels[-120::2] = 2
    is_early = readings.t_s < 0.85 * spans.edges_s[-1]
    early = replace(readings, t_s=readings.t_s[is_early], power_w=readings.power_w[is_early])
    found = split(replace(spans, labels=labels, count=3), early, (*NAMES, "late"), 600)
    assert isinstance(found, Refusal)
    assert found.why == "no reading of the sensor shows late"


@pytest.mark.filterwarnings("error")
def test_a_singular_matrix_has_no_warning():
    """A phase that the fit has made too short to see has an element of zero."""
    curvature = np.array([[0.0, -1e-310, -1e-310], [-1e-310, 1.0, 0.8], [-1e-310, 0.8, 1.0]])
    assert _log_determinant(curvature) == -np.inf


def test_no_phase_has_negative_power():
    """A phase without power stays at zero in spite of noise."""
    rng = np.random.default_rng(2)
    spans, readings = two_phases()
    is_first = readings.power_w < 200.0
    power_w = np.where(is_first, 0.0, 400.0) + 20.0 * rng.standard_normal(len(is_first))
    found = split(spans, replace(readings, power_w=power_w), NAMES, 600)
    assert isinstance(found, PhaseSplit)
    assert (found.power_w >= 0.0).all()


def test_shuffled_names_are_refused():
    """Readings that do not follow the phases are refused, whatever their mean is."""
    one = lab.trial(0.120, 0.05, np.random.default_rng(4))
    labels = np.random.default_rng(5).permutation(one.spans.labels)
    found = split(replace(one.spans, labels=labels), one.readings, lab.NAMES, one.steps)
    assert isinstance(found, Refusal)
    assert found.why == "the readings do not change with the phases"


def test_edges_that_are_off_are_in_the_interval():
    """Edges 1 to 5 ms off are fitted: each energy is inside its interval."""
    one = other_trial(lab.FORMS["edges"], 0.33, 0.05, np.random.default_rng(6))
    found = split(one.spans, one.readings, lab.OTHER_NAMES, one.steps)
    assert isinstance(found, PhaseSplit)
    truth_w = one.truth_j / one.spans.times_s()
    assert (np.abs(found.power_w - truth_w) < found.error_w).all()


def test_noise_that_lasts_is_in_the_interval():
    """Noise of the sensor that lasts for seconds is not taken for power that varies."""
    form = list(lab.FORMS).index("sensor noise")
    dice = np.random.default_rng([4242, 19, form])
    one = other_trial(lab.FORMS["sensor noise"], 0.33, 0.05, dice)
    found = split(one.spans, one.readings, lab.OTHER_NAMES, one.steps)
    assert isinstance(found, PhaseSplit)
    truth_w = one.truth_j / one.spans.times_s()
    assert (np.abs(found.power_w - truth_w) < found.error_w).all()


@pytest.mark.parametrize("seed", [0, 3, 5, 7])
def test_a_sum_of_phases_is_fitted_with_a_power_for_each(seed):
    """The last phase of a step and the first are reported as one, although their powers differ."""
    rng = np.random.default_rng([23, seed])
    one = other_trial(lab.FORMS["ramps"], 0.15, 0.0, rng)
    group_of = np.array([0, 1, 0])
    found = split(one.spans, one.readings, NAMES, one.steps, group_of)
    assert isinstance(found, PhaseSplit)
    truth_w = np.bincount(group_of, one.truth_j) / np.bincount(group_of, one.spans.times_s())
    assert (np.abs(found.power_w - truth_w) <= found.error_w).all()

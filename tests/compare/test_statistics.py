"""Intervals and p-values of few runs, compared with closed forms."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from energy_callbacks.compare.statistics import (
    Blocks,
    difference,
    holm,
    ratio_of_blocks,
    ratio_of_runs,
)

OLD = [100.0, 102.0, 99.0, 101.0, 98.5]
NEW = [95.0, 94.0, 96.5, 95.5, 93.0]


def test_the_interval_of_runs_is_about_that_of_welch():
    """The interval is close to Student's t with Welch's degrees of freedom."""
    found = ratio_of_runs(OLD, NEW)
    welch = stats.ttest_ind(np.log(NEW), np.log(OLD), equal_var=False)
    low, high = np.exp(welch.confidence_interval(0.95))
    assert found.value == pytest.approx(math.exp(np.log(NEW).mean() - np.log(OLD).mean()))
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))
    assert found.p == pytest.approx(welch.pvalue, abs=3e-4)


def test_the_interval_of_pairs_is_about_that_of_student():
    """A drift that both runs of a pair share cancels."""
    drift = np.exp(np.linspace(0.0, 0.3, 5))
    found = ratio_of_runs(OLD * drift, NEW * drift, in_pairs=True)
    logs = np.log(NEW) - np.log(OLD)
    low, high = np.exp(stats.t.interval(0.95, 4, logs.mean(), stats.sem(logs)))
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))
    without = ratio_of_runs(OLD * drift, NEW * drift)
    assert without.high - without.low > 5.0 * (found.high - found.low)


def test_what_is_detectable_is_found_in_four_of_five_cases():
    """A test at 5 % finds the detectable change in about 80 % of cases."""
    dice = np.random.default_rng(1)
    said = [ratio_of_runs(*np.exp(dice.normal(0.0, 0.02, (2, 5)))).detectable for _ in range(100)]
    change = float(np.mean(said))
    found = 0
    for _ in range(300):
        sides = np.exp(dice.normal(0.0, 0.02, size=(2, 5)))
        found += ratio_of_runs(sides[0], sides[1] * (1.0 + change)).p < 0.05
    assert 0.72 < found / 300 < 0.88


def test_runs_that_are_all_alike_leave_no_doubt():
    """Groups without spread, such as equal memory, give exact results."""
    same = ratio_of_runs([5.0, 5.0, 5.0], [5.0, 5.0])
    assert (same.value, same.low, same.high, same.p) == (1.0, 1.0, 1.0, 1.0)
    # Means of equal logarithms differ in their last bit where their numbers do.
    for size in (40e9, 0.1, 7.3):
        found = ratio_of_runs([size] * 2, [size] * 3)
        assert (found.low, found.high, found.p) == (1.0, 1.0, 1.0)
    unlike = ratio_of_runs([5.0, 5.0, 5.0], [10.0, 10.0])
    assert (unlike.low, unlike.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert unlike.p < 1e-3


def test_one_run_tells_nothing_of_how_runs_differ():
    """Single runs have no interval."""
    assert ratio_of_runs([1.0], [2.0, 2.1]) is None
    assert ratio_of_runs([1.0], [2.0], in_pairs=True) is None
    assert difference([1.0, 2.0], [3.0], in_pairs=False) is None


def test_two_runs_a_side_are_told_and_say_how_little_they_know():
    """Two runs a side give an interval of twelve standard errors on each side."""
    found = ratio_of_runs([100.0, 104.0], [95.0, 99.0])
    assert 0.0 < found.low < 0.85
    assert 1.05 < found.high < math.inf


@given(
    st.lists(st.floats(0.1, 1e6), min_size=2, max_size=6),
    st.lists(st.floats(0.1, 1e6), min_size=2, max_size=6),
)
def test_a_ratio_lies_in_its_interval_and_all_is_finite(old, new):
    """The interval contains the ratio and is finite for all values."""
    found = ratio_of_runs(old, new)
    # Of two values the median of the resamples is their mean; of three nearly.
    assert found.low <= found.value * (1 + 1e-9)
    assert found.high >= found.value * (1 - 1e-9)
    assert all(map(math.isfinite, (found.low, found.high, found.p, found.detectable)))
    assert 0.0 < found.p <= 1.0


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8))
def test_holm_never_lowers_a_value_and_keeps_their_order(p_values):
    """The smallest p-value is multiplied by the number of p-values."""
    adjusted = holm(p_values)
    assert all(a >= p for a, p in zip(adjusted, p_values, strict=True))
    order = np.argsort(p_values)
    assert list(np.array(adjusted)[order]) == sorted(adjusted)
    assert min(adjusted) == pytest.approx(min(min(p_values) * len(p_values), 1.0))


def test_blocks_hold_the_ratio_of_two_runs_whose_steps_resemble_their_neighbours():
    """Intervals of 15 s blocks have about their nominal coverage for noise with 3 s memory."""
    dice = np.random.default_rng(2)

    def run(level: float) -> Blocks:
        noise = dice.normal(0.0, 0.05, size=300)
        for i in range(1, 300):
            noise[i] += 0.7 * noise[i - 1]
        work = dice.integers(90, 110, size=300).astype(float)
        joules = work * level * (1.0 + noise)
        return Blocks(
            amount=joules.reshape(20, 15).sum(axis=1), work=work.reshape(20, 15).sum(axis=1)
        )

    found = [ratio_of_blocks(run(2.0), run(1.9)) for _ in range(150)]
    held = np.mean([one.low <= 0.95 <= one.high for one in found])
    assert 0.88 <= held <= 0.99
    assert np.median([one.high - one.low for one in found]) < 0.06


@pytest.mark.parametrize("in_pairs", [False, True])
def test_a_difference_may_be_of_values_below_zero(in_pairs):
    """Differences also work for negative values of a metric."""
    found = difference([-1.0, -1.1, -0.9], [-2.0, -2.05, -1.95], in_pairs=in_pairs)
    assert found[0] < -1.0 < found[1] < -0.6


@pytest.mark.parametrize(("value", "count"), [(0.1, 2), (0.1, 6), (0.7, 7)])
def test_equal_metrics_have_no_difference(value, count):
    """Rounding errors do not make runs better or worse: with ``margin=0``, they are as good."""
    assert difference([value] * 3, [value] * count, in_pairs=False) == (0.0, 0.0)

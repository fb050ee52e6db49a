"""Tests of the shares of phases in readings, against sums by definition."""

import numpy as np
import pytest

from energy_callbacks.profiling.phases.exposure import Spans

RNG = np.random.default_rng(5)


def spans(widths_s, labels, count):
    """Return consecutive spans from 10 s on."""
    return Spans(edges_s=10.0 + np.cumsum([0.0, *widths_s]), labels=np.array(labels), count=count)


def brute(found, t_s, response_s, phase):
    """Return the filter's output in closed form, summed over the spans of a phase."""
    total = 0.0
    for start, end, label in zip(found.edges_s[:-1], found.edges_s[1:], found.labels, strict=True):
        if label == phase and start < t_s:
            total += np.exp(-(t_s - min(end, t_s)) / response_s) - np.exp(
                -(t_s - start) / response_s
            )
    return total


@pytest.mark.parametrize("response_s", [0.001, 0.015, 0.08])
def test_points_behind_a_filter(response_s):
    """Shares are exact, also with a span of a thousand time constants."""
    widths_s = RNG.uniform(0.001, 0.05, 300)
    widths_s[150] = 60.0
    labels = RNG.integers(-1, 3, 300)
    found = spans(widths_s, labels, 3)
    t_s = np.sort(RNG.uniform(10.0, found.edges_s[-1], 200))
    seen = found.exposures(t_s, response_s)
    truth = [[brute(found, t, response_s, phase) for phase in range(3)] for t in t_s]
    np.testing.assert_allclose(seen, truth, atol=1e-9)


def test_means_over_windows():
    """A mean over a window is the mean of the points in it."""
    found = spans([0.01, 0.02, 0.03] * 40, [0, 1, 2] * 40, 3)
    t_s, window_s = np.array([11.0, 11.7, 12.2]), np.array([0.1, 0.025, 0.5])
    seen = found.exposures(t_s, 0.015, window_s)
    for row, t, width_s in zip(seen, t_s, window_s, strict=True):
        inside_s = t - width_s + (np.arange(40_000) + 0.5) / 40_000 * width_s
        np.testing.assert_allclose(row, found.exposures(inside_s, 0.015).mean(axis=0), atol=1e-6)


def test_all_shares_are_one_where_phases_fill_the_time():
    """After the initial transient, shares of consecutive phases sum to one."""
    found = spans([0.01, 0.02] * 500, [0, 1] * 500, 2)
    seen = found.exposures(np.linspace(12.0, 24.0, 50), 0.02)
    np.testing.assert_allclose(seen.sum(axis=1), 1.0, atol=1e-9)


def test_times_of_phases():
    """Seconds are counted by phase; time outside phases counts for none."""
    found = spans([1.0, 2.0, 4.0, 8.0], [0, -1, 1, 0], 2)
    np.testing.assert_allclose(found.times_s(), [9.0, 4.0])
    np.testing.assert_allclose(found.known_s(np.array([10.0]), np.array([14.0])), [2.0])

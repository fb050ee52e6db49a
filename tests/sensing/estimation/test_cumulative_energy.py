"""Knots of cumulative energy: queries between, outside and long after them."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks.sensing.estimation.cumulative_energy import JUMP, CumulativeEnergy
from energy_callbacks.sensing.estimation.power_intervals import (
    AREA,
    BEND,
    EDGE,
    END,
    INSIDE,
    NOISE,
    SEEN,
    START,
    WIDTH,
)


def intervals(*spans: tuple[float, float, float]) -> np.ndarray:
    """Rows of (start, end, watts), seen, at constant power."""
    rows = np.zeros((len(spans), WIDTH))
    for row, (start_s, end_s, power_w) in zip(rows, spans, strict=True):
        row[[START, END, AREA, SEEN]] = start_s, end_s, power_w * (end_s - start_s), end_s - start_s
    return rows


def knots_of(*spans: tuple[float, float, float]) -> CumulativeEnergy:
    """Knots along these spans."""
    knots = CumulativeEnergy(keep_s=600.0)
    knots.append(knots.following(intervals(*spans), 1.0, "power"))
    return knots


def test_energy_between_knots_is_interpolated() -> None:
    """Half of an interval has half of its energy at constant power."""
    knots = knots_of((0.0, 1.0, 100.0), (1.0, 3.0, 200.0))
    assert knots.energy(0.5, 2.0, 0.0).energy_j == pytest.approx(250.0, rel=1e-12)


def test_outside_the_knots_nothing_was_seen() -> None:
    """A window beyond the knots is unknown; one that overlaps them is covered in part."""
    knots = knots_of((0.0, 1.0, 100.0))
    assert knots.energy(-2.0, -1.0, 0.0).energy_j is None
    assert knots.energy(1.0, 2.0, 0.0).energy_j is None
    assert knots.energy(0.5, 1.5, 0.0).coverage == pytest.approx(0.5, rel=1e-12)
    assert CumulativeEnergy(keep_s=1.0).energy(0.0, 1.0, 0.0).energy_j is None


@given(
    start_s=st.floats(0.0, 1e5),
    hole_s=st.floats(1.0, 1e4),
    inside=st.tuples(st.floats(0.0, 0.5), st.floats(0.51, 1.0)),
)
def test_a_window_inside_a_hole_is_unknown(
    start_s: float, hole_s: float, inside: tuple[float, float]
) -> None:
    """A window inside a gap of any length is unknown, not 0 J."""
    first_s, last_s = start_s + 0.3, start_s + 0.3 + hole_s
    knots = knots_of((start_s, first_s, 100.0))
    knots.append(knots.following(intervals((last_s, last_s + 0.7, 100.0)), 1.0, "power"))
    low_s, high_s = (first_s + share * hole_s for share in inside)
    assert knots.energy(low_s, min(high_s, last_s), 0.0).energy_j is None


def test_a_hole_between_intervals_stays_unseen() -> None:
    """Intervals that do not continue from the last knot leave a gap without energy."""
    knots = knots_of((0.0, 1.0, 100.0))
    knots.append(knots.following(intervals((3.0, 4.0, 100.0)), 1.0, "power"))
    assert knots.energy(1.5, 2.5, 0.0).energy_j is None
    assert knots.energy(0.0, 4.0, 0.0).energy_j == pytest.approx(200.0, rel=1e-12)
    assert knots.energy(0.0, 4.0, 0.0).coverage == pytest.approx(0.5, rel=1e-12)


def test_the_weakest_method_names_the_window() -> None:
    """A window over both methods reports ``power``; others report their own method."""
    knots = CumulativeEnergy(keep_s=600.0)
    knots.append(knots.following(intervals((0.0, 1.0, 1.0)), 1.0, "counter+samples"))
    knots.append(knots.following(intervals((1.0, 2.0, 1.0)), 1.0, "power"))
    knots.append(knots.following(intervals((2.0, 3.0, 1.0)), 1.0, "counter+samples"))
    found = [
        knots.energy(a, b, 0.0).method for a, b in [(0, 1), (0.5, 1.5), (1, 2), (2, 3), (0, 3)]
    ]
    assert found == ["counter+samples", "power", "power", "counter+samples", "power"]


def long_knots(keep_s: float, until_s: int) -> CumulativeEnergy:
    """Power that changes every 0.1 s, thinned as it grows."""
    knots = CumulativeEnergy(keep_s)
    random = np.random.default_rng(0)
    for second in range(until_s):
        edges = second + np.arange(11) / 10.0
        spans = zip(edges[:-1], edges[1:], random.uniform(50.0, 700.0, 10), strict=True)
        knots.append(knots.following(intervals(*spans), 1.0, "power"))
        knots.compact(len(knots))
    return knots


def test_thinning_keeps_full_resolution_of_the_newest_and_one_knot_a_second_before() -> None:
    """Old knots are thinned from ten per second to one; the newest keep full resolution."""
    knots = long_knots(60.0, 900)
    times_s = knots.rows()[:, 0]
    assert np.all(np.diff(times_s) > 0.0)
    assert np.sum(times_s > 840.0) == 600
    assert np.sum(times_s < 700.0) < 710
    assert len(knots) < 840 + 10 * (60 + 61)


def test_thinning_keeps_the_total_and_what_lies_between_its_knots() -> None:
    """Energy between kept knots is the same before and after thinning, to 1e-12."""
    fresh, thinned = long_knots(1e9, 400), long_knots(60.0, 400)
    assert len(thinned) < len(fresh)
    kept_s = thinned.rows()[:, 0]
    for start_s, end_s in [(0.0, 400.0), (kept_s[10], kept_s[11]), (kept_s[33], kept_s[210])]:
        expected = fresh.energy(start_s, end_s, 0.0)
        found = thinned.energy(start_s, end_s, 0.0)
        assert found.energy_j == pytest.approx(expected.energy_j, rel=1e-12)
        assert found.coverage == 1.0


@pytest.mark.parametrize("pause_s", [70, 85, 200])
def test_a_pause_longer_than_knots_are_kept(pause_s: int) -> None:
    """The process was suspended: there is nothing to thin at first, and no energy is lost."""
    knots = CumulativeEnergy(60.0)
    seconds = [*range(30), *range(30 + pause_s, 300 + pause_s)]
    for second in seconds:
        edges = second + np.arange(11) / 10.0
        knots.append(
            knots.following(intervals(*((a, b, 50.0) for a, b in pairwise(edges))), 1.0, "power")
        )
        knots.compact(len(knots))
    found = knots.energy(0.0, 300.0 + pause_s, 0.0)
    assert found.energy_j == pytest.approx(50.0 * 300.0)
    assert found.coverage == pytest.approx(300.0 / (300.0 + pause_s))
    assert len(knots) < 1200


def test_thinning_twice_forgets_no_pin() -> None:
    """A pinned moment inside a second is kept by all later thinning."""
    fresh, knots = long_knots(1e9, 300), CumulativeEnergy(60.0)
    knots.pin(5.03)
    knots.pin(20.25)
    knots.append(fresh.rows().copy())
    rows = knots.rows().copy()
    knots.truncate(1300)
    for first in range(1300, 3000, 100):
        knots.append(rows[first : first + 100])
        knots.compact(len(knots))
    expected_j = fresh.energy(5.03, 20.25, 0.0).energy_j
    assert knots.energy(5.03, 20.25, 0.0).energy_j == pytest.approx(expected_j, rel=1e-12)
    assert knots.energy(5.03, 20.35, 0.0).edge_j > 0.0


def test_thinning_says_how_far_off_it_may_be() -> None:
    """Inside a thinned second the stated error covers the lost detail in 90 % of windows."""
    fresh, thinned = long_knots(1e9, 400), long_knots(60.0, 400)
    starts_s = np.random.default_rng(1).uniform(1.0, 250.0, 300)
    off_j, stated_j = [], []
    for start_s in starts_s:
        truth, found = (k.energy(start_s, start_s + 2.5, 0.0) for k in (fresh, thinned))
        off_j.append(abs(found.energy_j - truth.energy_j))
        stated_j.append(found.error_j)
    assert np.mean(np.array(off_j) <= stated_j) >= 0.9
    assert np.median(stated_j) < 8.0 * np.median(off_j)


def test_pins_inside_one_long_interval_are_thinned_well() -> None:
    """Two pins inside one interval of a slow counter keep finite figures."""
    knots = CumulativeEnergy(keep_s=60.0)
    knots.pin(33.0)
    knots.pin(34.5)
    for start_s in range(0, 400, 10):
        knots.append(knots.following(intervals((start_s, start_s + 10.0, 50.0)), 1.0, "counter"))
        knots.compact(len(knots))
    energy = knots.energy(33.0, 34.5, 0.0)
    assert energy.energy_j == pytest.approx(75.0, rel=1e-12)
    assert energy.method == "counter"
    assert np.all(np.isfinite(knots.rows()[:, [1, 2, 4, 5, 6, 7, 8]]))


def test_inside_an_interval_the_error_is_that_of_a_bridge() -> None:
    """An edge at the share x of an interval of scale 10 J has the variance 100 x (1 - x)."""
    rows = intervals((0.0, 1.0, 100.0), (1.0, 2.0, 100.0))
    rows[:, INSIDE] = 10.0
    knots = CumulativeEnergy(keep_s=600.0)
    knots.append(knots.following(rows, 1.0, "power"))
    for share in (0.1, 0.5, 0.9):
        expected_j = np.sqrt(100.0 * share * (1.0 - share))
        found = knots.energy(0.0, share, 0.0)
        assert found.edge_j == pytest.approx(1.96 * expected_j, rel=1e-12)
        assert found.stderr_j == 0.0
    assert knots.energy(0.0, 2.0, 0.0).error_j == 0.0


def test_power_that_jumps_inside_an_interval() -> None:
    """From 100 W to 400 W at three quarters of 1 s: the energy rises along two lines."""
    rows = intervals((0.0, 1.0, 175.0), (1.0, 2.0, 400.0))
    rows[0, BEND] = 300.0
    knots = CumulativeEnergy(keep_s=600.0)
    found = knots.following(rows, 1.0, "counter")
    found[1, JUMP] = 0.75
    knots.append(found)
    for end_s, expected_j in ((0.25, 25.0), (0.75, 75.0), (0.9, 135.0), (1.0, 175.0)):
        assert knots.energy(0.0, end_s, 0.0).energy_j == pytest.approx(expected_j, rel=1e-6)


def test_an_edge_adds_its_own_error_and_leaves_none_behind() -> None:
    """Edge variances of 9 and 16 give 1.96 times 5 J; a window with other ends has none."""
    rows = intervals(*((float(t), t + 1.0, 100.0) for t in range(4)))
    rows[1, EDGE], rows[2, EDGE] = 9.0, 16.0
    knots = CumulativeEnergy(keep_s=600.0)
    knots.append(knots.following(rows, 1.0, "power"))
    found = knots.energy(1.5, 2.5, 0.0)
    assert found.edge_j == pytest.approx(1.96 * 5.0, rel=1e-12)
    assert found.stderr_j == 0.0
    assert knots.energy(0.5, 3.5, 0.0).error_j == 0.0


def test_noise_is_random_and_edges_are_not() -> None:
    """Noise of variance 4 is 2 J of standard error; both give the interval in quadrature."""
    rows = intervals(*((float(t), t + 1.0, 100.0) for t in range(4)))
    rows[2, NOISE], rows[1, EDGE], rows[3, EDGE] = 4.0, 9.0, 16.0
    knots = CumulativeEnergy(keep_s=600.0)
    knots.append(knots.following(rows, 1.0, "power"))
    found = knots.energy(1.5, 3.5, 0.0)
    assert found.stderr_j == pytest.approx(2.0)
    assert found.edge_j == pytest.approx(1.96 * 5.0)
    assert found.error_j == pytest.approx(1.96 * math.sqrt(4.0 + 9.0 + 16.0))


def test_between_anchors_the_error_is_held_at_both_ends() -> None:
    """Two intervals of variance 4 between anchors of variance 1: 1 at these, 3 in the middle."""
    knots = CumulativeEnergy(keep_s=600.0)
    for start_s in (0.0, 2.0, 4.0):
        rows = intervals((start_s, start_s + 1.0, 100.0), (start_s + 1.0, start_s + 2.0, 100.0))
        rows[:, NOISE] = 4.0
        following = knots.following(rows, 1.0, "counter+samples")
        knots.set_bridge(following, 1.0)
        knots.append(following)
    assert knots.energy(2.0, 6.0, 0.0).stderr_j == pytest.approx(np.sqrt(1.0 + 1.0))
    assert knots.energy(1.0, 5.0, 0.0).stderr_j == pytest.approx(np.sqrt(3.0 + 3.0))
    assert knots.energy(3.0, 4.0, 0.0).stderr_j == pytest.approx(np.sqrt(4.0))

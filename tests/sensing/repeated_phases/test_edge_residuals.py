"""Energy of the same sign that a fit leaves at the edges of one kind."""

import numpy as np
import pytest

from energy_callbacks.sensing.repeated_phases.edge_residuals import left_at_edges_j
from energy_callbacks.sensing.repeated_phases.phase_sums import PhaseSums
from energy_callbacks.sensing.repeated_phases.recent_intervals import RecentIntervals
from tests.sensing.estimation.steps_of_power import COUNTER, counted, repeated, summed

REPEATS = 20
WIDTH_S = 0.1
LEVELS_W = np.array([400.0, 100.0])


def left_j(sums: PhaseSums) -> np.ndarray:
    """What the true powers leave without a delay."""
    recent = RecentIntervals(sums)
    left = recent.energy_j - LEVELS_W @ recent.exposed(sums.exposures_for(sums.no_delay))
    found = left_at_edges_j(recent, sums.exposures, left, 0.0, sums.mean_width_s, errors=[3.0])
    return found[0]


def test_late_edges_of_one_kind_leave_their_energy() -> None:
    """Phase 1 begins 50 ms late: 15 J at each of its edges, and nothing at the others."""
    late_s = 0.05 * (1.0 - np.arange(2 * REPEATS) % 2)
    what = repeated(1.0, 0.6, REPEATS, delays_s=late_s)
    found_j = left_j(summed(what, COUNTER, *counted(what, WIDTH_S)))

    assert found_j[0, 1] == pytest.approx(300.0 * 0.05, rel=0.1)
    assert found_j[1, 0] == pytest.approx(0.0, abs=0.5)
    assert found_j[0, 0] == found_j[1, 1] == 0.0


def test_edges_without_a_delay_leave_nothing() -> None:
    """The fit explains all intervals."""
    what = repeated(1.0, 0.6, REPEATS)
    assert left_j(summed(what, COUNTER, *counted(what, WIDTH_S))) == pytest.approx(0.0, abs=0.5)


def test_noise_is_not_significant() -> None:
    """Energy of both signs, 15 J at a standard deviation, is no shift of the edges."""
    what = repeated(1.0, 0.6, REPEATS)
    t_s, energy_j = counted(what, WIDTH_S)
    noise_j = np.random.default_rng(0).normal(0.0, 15.0, len(energy_j))
    assert left_j(summed(what, COUNTER, t_s, energy_j + noise_j)).max() <= 2.0


def test_three_edges_are_too_few() -> None:
    """The scatter of three edges is not known well enough."""
    what = repeated(1.0, 0.6, 3, delays_s=0.05 * (1.0 - np.arange(6) % 2))
    assert left_j(summed(what, COUNTER, *counted(what, WIDTH_S))).max() == 0.0

"""Noise of what a fit of phases leaves in the newest intervals."""

import numpy as np
import pytest

from energy_callbacks.sensing.repeated_phases.fit_noise import is_mixed, noise_of, unexplained
from energy_callbacks.sensing.repeated_phases.phase_sums import PhaseSums
from energy_callbacks.sensing.repeated_phases.recent_intervals import RecentIntervals
from tests.sensing.estimation.steps_of_power import FILTER, repeated, sampled, summed

LEVELS_W = np.array([400.0, 100.0])


def fitted(stairs_w: float = 0.0) -> tuple[PhaseSums, RecentIntervals, np.ndarray, np.ndarray]:
    """Phases of known power, which varies by ``stairs_w`` from sample to sample; what is left."""
    what = repeated(1.0, 0.5, 20)
    t_s, energy_j = sampled(what, 0.02, 0.015)
    varying_w = np.random.default_rng(0).normal(0.0, stairs_w, len(energy_j))
    sums = summed(what, FILTER, t_s, energy_j + varying_w * np.diff(t_s))
    recent = RecentIntervals(sums)
    exposed = recent.exposed(sums.exposures_for(sums.no_delay))
    return sums, recent, exposed, recent.energy_j - LEVELS_W @ exposed


def test_a_fit_that_explains_all_changes_leaves_no_share() -> None:
    """Power changes at edges only: less than a thousandth of the squared changes is left."""
    assert unexplained(*fitted()).max() < 1e-3


def test_power_that_varies_inside_of_phases_is_left() -> None:
    """Its density is the variance of the power times the width of an interval."""
    noise = noise_of(*fitted(30.0))
    assert noise.by_phase == pytest.approx([30.0**2 * 0.02] * 2, rel=0.3)
    assert unexplained(*fitted(30.0)).min() > 0.1


def test_values_that_are_read_at_other_times_leave_all() -> None:
    """Their exposures are only known in the mean, so the fit does not explain single changes."""
    sums, *others = fitted()
    sums.is_synchronous = False
    assert unexplained(sums, *others).tolist() == [1.0, 1.0]


def test_intervals_near_an_edge_are_mixed() -> None:
    """Two samples around each edge, and those that the response of the sensor still reaches."""
    _, recent, exposed, _ = fitted()
    per_edge = is_mixed(recent, exposed).sum() / recent.changes.sum()
    assert 2.0 <= per_edge <= 6.0

"""Arrays over the newest intervals agree with the stretches that they are computed from."""

import numpy as np
import pytest

from energy_callbacks.sensing.estimation.exposure import Shape
from energy_callbacks.sensing.repeated_phases.phase_sums import PhaseSums
from energy_callbacks.sensing.repeated_phases.recent_intervals import RecentIntervals
from tests.sensing.estimation.steps_of_power import (
    COUNTER,
    FILTER,
    counted,
    repeated,
    sampled,
    summed,
)

WHAT = repeated(0.9, 0.3, 12)
SHAPES = pytest.mark.parametrize("shape", [COUNTER, FILTER], ids=["counter", "samples"])


def sums_of(shape: Shape) -> PhaseSums:
    """Sums over a training, some of whose stretches have no edge."""
    readings = counted(WHAT, 0.05) if shape.is_exact else sampled(WHAT, 0.02, 0.015)
    return summed(WHAT, shape, *readings, batch=8)


@SHAPES
def test_exposures_are_those_of_the_grid(shape: Shape) -> None:
    """A candidate that is a mean of two delays of the grid has the mean of their exposures."""
    sums = sums_of(shape)
    stretches = list(sums.recent)
    assert any(not len(one.edges) for one in stretches)
    assert any(len(one.edges) for one in stretches)
    weights = np.zeros(len(sums.rates))
    weights[[7, 20]] = 0.25, 0.75
    expected = np.concatenate([weights @ sums.exposed(one) for one in stretches], axis=-1)
    found = RecentIntervals(sums).exposed(sums.exposures_for(weights))
    assert found == pytest.approx(expected, abs=1e-5)


@SHAPES
def test_changes_and_places(shape: Shape) -> None:
    """Each edge inside the intervals counts once, and stretches keep their order."""
    sums = sums_of(shape)
    recent = RecentIntervals(sums)
    assert recent.changes.tolist() == sums.changes.tolist()
    assert (recent.place == 0).sum() == len(list(sums.recent))
    assert recent.width_s.sum() == pytest.approx(sums.known_s)


def test_energy_near_an_edge_that_two_stretches_share() -> None:
    """It counts as one edge: the square of its energy is that of the sum."""
    sums = sums_of(COUNTER)
    recent = RecentIntervals(sums)
    ones_j = np.ones(len(recent.width_s))
    energy_j, squares = recent.near_edges(sums.exposures, 0.0, 0.1, ones_j)
    # 0.2 s are 4 intervals of 50 ms, for each of 12 edges of each kind.
    assert energy_j[0, 1] == pytest.approx(4.0 * 12, rel=0.02)
    assert squares[0, 1] == pytest.approx(16.0 * 12, rel=0.04)

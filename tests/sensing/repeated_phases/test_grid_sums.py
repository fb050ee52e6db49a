"""Fits of powers to sums over a grid, compared with fits to the intervals themselves."""

from itertools import combinations

import numpy as np
import pytest

from energy_callbacks.sensing.repeated_phases.grid_sums import LEAST_RIDGE_S, GridSums

PHASES, POINTS, INTERVALS = 3, 70, 40
MEAN_W = 250.0
RANDOM = np.random.default_rng(0)
WIDTH_S = RANDOM.uniform(0.05, 0.15, INTERVALS)
ENERGY_J = WIDTH_S * RANDOM.uniform(100.0, 400.0, INTERVALS)
SHARES = RANDOM.dirichlet(np.ones(PHASES), (POINTS, INTERVALS))
EXPOSED_S = np.moveaxis(SHARES, -1, 0) * WIDTH_S  # (P, G, N)
# Readings have seen each phase for a longer or shorter time than it took.
DURATIONS_S = EXPOSED_S.sum(axis=-1).T * RANDOM.uniform(0.9, 1.1, PHASES)
DURATIONS_S *= WIDTH_S.sum() / DURATIONS_S.sum(axis=1, keepdims=True)


def sums() -> GridSums:
    """The sums over all intervals."""
    found = GridSums(POINTS)
    found.count = PHASES
    found.square = float((ENERGY_J**2 / WIDTH_S).sum())
    found.exposed_s = EXPOSED_S.sum(axis=-1).T
    found.durations_s = DURATIONS_S
    found.rates = (EXPOSED_S @ (ENERGY_J / WIDTH_S)).T
    for p, q in combinations(range(PHASES), 2):
        found.products[p, q] = EXPOSED_S[p] / WIDTH_S @ EXPOSED_S[q].T
    return found


def weights(count: int, first: int, last: int) -> np.ndarray:
    """Weights of the points from ``first`` to before ``last`` that sum to 1."""
    drawn = np.zeros((count, POINTS))
    drawn[:, first:last] = RANDOM.dirichlet(np.ones(last - first), count)
    return drawn


@pytest.mark.parametrize(
    ("count", "first", "last"),
    [(1, 0, 1), (1, POINTS - 1, POINTS), (7, 12, 31), (900, 0, POINTS), (900, 5, 9)],
)
def test_fits_are_those_to_the_intervals(count: int, first: int, last: int) -> None:
    """Whichever points have weights, and in however many pieces the candidates are fitted."""
    drawn = weights(count, first, last)
    found = sums().fits(drawn, LEAST_RIDGE_S, MEAN_W)

    root_s = np.sqrt(WIDTH_S)
    for place in {0, count // 2, count - 1}:
        exposed_s = np.einsum("g,pgn->pn", drawn[place], EXPOSED_S)
        levels_w, misfit, *_ = np.linalg.lstsq((exposed_s / root_s).T, ENERGY_J / root_s)
        assert found.products[place] == pytest.approx(exposed_s / WIDTH_S @ exposed_s.T)
        assert found.levels_w[place] == pytest.approx(levels_w, rel=1e-3)
        assert found.misfit[place] == pytest.approx(misfit[0], rel=1e-3)
        left_j = ENERGY_J - levels_w @ exposed_s
        durations_s = drawn[place] @ DURATIONS_S
        expected_j = levels_w * durations_s + exposed_s @ (left_j / WIDTH_S)
        expected_j += durations_s * (ENERGY_J.sum() - expected_j.sum()) / durations_s.sum()
        assert found.energy_j[place] == pytest.approx(expected_j, rel=1e-3)
        assert found.energy_j[place].sum() == pytest.approx(ENERGY_J.sum())

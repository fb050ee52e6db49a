"""Weights of candidates reproduce exposures that are not in the grid."""

import numpy as np
import pytest

from energy_callbacks.sensing.estimation.edge_delays import (
    RESPONSES,
    Candidates,
    coarse,
    delays_s,
)
from energy_callbacks.sensing.estimation.exposure import Exposure, Shape

T_S = np.arange(-0.3, 0.6, 0.02) + 0.0031
WIDTH_S = 0.02


def one(response: float, delay_s: float, blur_s: float, responses: int) -> Candidates:
    """A single candidate."""
    return Candidates(
        response=np.array([response]),
        delay_s=np.array([delay_s]),
        blur_s=np.array([blur_s]),
        measure=np.ones(1),
        shortest_s=1.0,
        responses=responses,
    )


def shape(response: float) -> Shape:
    """A filter, or a counter without a response."""
    if not response:
        return Shape(is_exact=True)
    return Shape(is_exact=False, response_s=0.015 * response, assumed_response_s=0.015)


def exposures(response: float, delay_s: float) -> np.ndarray:
    """Exposures to the time after the edge."""
    return Exposure(shape(response)).after_jump(T_S - delay_s)


def grid(responses: int) -> np.ndarray:
    """Exposures at each point of the grid."""
    shares = RESPONSES if responses > 1 else (0.0,)
    return np.array([exposures(one, delay) for one in shares for delay in delays_s(responses)])


@pytest.mark.parametrize("response", [0.0, 0.7, 0.85, 1.0, 1.21])
def test_delays_and_responses_between_the_points_of_the_grid(response: float) -> None:
    """Interpolation is off by up to 10 % of an interval near an edge, and right on average."""
    responses = len(RESPONSES) if response else 1
    delays = np.linspace(-0.0199, 0.2249, 200)
    weights = np.concatenate(
        [one(response or 1.0, delay_s, 0.0, responses).weights for delay_s in delays]
    )
    assert weights.sum(axis=1) == pytest.approx(1.0)
    off_s = weights @ grid(responses) - [exposures(response, delay_s) for delay_s in delays]
    # An edge is a kink in the readings, which interpolation rounds off.
    assert np.abs(off_s).max() < (0.1 if response else 0.02) * WIDTH_S
    assert np.abs(off_s).mean() < 0.002 * WIDTH_S
    assert np.abs(off_s.mean(axis=0)).max() < 0.002 * WIDTH_S


@pytest.mark.parametrize("blur_s", [0.01, 0.05, 0.12])
@pytest.mark.parametrize("response", [0.0, 1.0])
def test_distributions_of_delays_are_uniform(blur_s: float, response: float) -> None:
    """The mean over many delays."""
    responses = len(RESPONSES) if response else 1
    found_s = (one(response or 1.0, 0.1, blur_s, responses).weights @ grid(responses))[0]
    many_s = 0.1 + blur_s * (np.linspace(0.0, 1.0, 400, endpoint=False) + 1 / 800 - 0.5)
    true_s = np.mean([exposures(response, delay_s) for delay_s in many_s], axis=0)
    assert found_s == pytest.approx(true_s, abs=0.02 * WIDTH_S)


@pytest.mark.parametrize("responses", [1, len(RESPONSES)])
@pytest.mark.parametrize("shortest_s", [0.03, 0.3])
def test_candidates_are_possible(responses: int, shortest_s: float) -> None:
    """All delays are in the grid, and edges keep their order; also after refinement."""
    found = coarse(responses, shortest_s)
    for _ in range(3):
        assert len(found.delay_s)
        assert (found.blur_s <= shortest_s + 1e-9).all()
        assert (found.delay_s - found.blur_s / 2.0 >= 2 * delays_s(1)[0] - 1e-9).all()
        assert (found.delay_s + found.blur_s / 2.0 <= delays_s(1)[-1] + 1e-9).all()
        found = found.finer(np.abs(found.delay_s - 0.05) * 1e3)


def test_refinement_approaches_the_lowest_cost() -> None:
    """The costs are those of a delay of 61.7 ms, which is not in the first grid."""
    found = coarse(1, 1.0)
    for _ in range(3):
        found = found.finer(((found.delay_s - 0.0617) / 1e-4) ** 2 + (found.blur_s / 1e-3) ** 2)
    best = np.abs(found.delay_s - 0.0617).min()
    assert best < 1e-4


def test_shares_are_probabilities() -> None:
    """They sum to 1, also for costs that are so large that their exponentials are 0."""
    found = coarse(1, 1.0)
    shares = found.shares(1e6 + 1e5 * np.arange(len(found.delay_s)))
    assert shares.sum() == pytest.approx(1.0)
    assert np.isfinite(shares).all()
    assert shares.argmax() == 0

"""Weights of candidates reproduce exposures that are not in the grid."""

import numpy as np
import pytest

from energy_callbacks.sensing.estimation.exposure import Exposure, Shape
from energy_callbacks.sensing.repeated_phases.edge_delays import Candidates, coarse, delays_s
from tests.sensing.estimation.steps_of_power import after_jump

T_S = np.arange(-0.3, 0.6, 0.02) + 0.0031
WIDTH_S = 0.02
RESPONSE_S = 0.015


def weights(response: float, delays_s: np.ndarray, blur_s: float) -> np.ndarray:
    """Weights of candidates; without a response for 0."""
    ones = np.ones(len(delays_s))
    candidates = Candidates(
        response=(response or 1.0) * ones,
        delay_s=delays_s,
        blur_s=blur_s * ones,
        measure=ones,
        shortest_s=1.0,
        response_s=RESPONSE_S if response else 0.0,
    )
    return candidates.weights


def exposures(response: float, delay_s: float) -> np.ndarray:
    """Exposures to the time after the edge."""
    if not response:
        return after_jump(Exposure(Shape(is_exact=True)), T_S - delay_s)
    shape = Shape(is_exact=False, response_s=RESPONSE_S * response, assumed_response_s=RESPONSE_S)
    return after_jump(Exposure(shape), T_S - delay_s)


def grid(response: float) -> np.ndarray:
    """Exposures at each delay of the grid, for the assumed response."""
    assumed, delays = float(response > 0.0), delays_s(RESPONSE_S if response else 0.0)
    return np.array([exposures(assumed, delay_s) for delay_s in delays])


@pytest.mark.parametrize("response", [0.0, 0.7, 0.85, 1.0, 1.21, 1.4])
def test_delays_and_responses_other_than_those_of_the_grid(response: float) -> None:
    """Interpolation is off by up to 10 % of an interval near an edge, and right on average."""
    delays = np.linspace(-0.0199, 0.2249, 200)
    found = weights(response, delays, 0.0)
    assert found.sum(axis=1) == pytest.approx(1.0)
    off_s = found @ grid(response) - [exposures(response, delay_s) for delay_s in delays]
    # An edge is a kink in the readings, which interpolation rounds off.
    assert np.abs(off_s).max() < (0.1 if response else 0.02) * WIDTH_S
    assert np.abs(off_s).mean() < 0.002 * WIDTH_S
    assert np.abs(off_s.mean(axis=0)).max() < 0.002 * WIDTH_S


@pytest.mark.parametrize("blur_s", [0.01, 0.05, 0.12])
@pytest.mark.parametrize("response", [0.0, 0.7, 1.0, 1.4])
def test_distributions_of_delays_are_uniform(blur_s: float, response: float) -> None:
    """The mean over many delays."""
    [found] = weights(response, np.array([0.1]), blur_s) @ grid(response)
    many_s = 0.1 + blur_s * (np.linspace(0.0, 1.0, 400, endpoint=False) + 1 / 800 - 0.5)
    true_s = np.mean([exposures(response, delay_s) for delay_s in many_s], axis=0)
    assert found == pytest.approx(true_s, abs=0.02 * WIDTH_S)


@pytest.mark.parametrize("response_s", [0.0, RESPONSE_S])
@pytest.mark.parametrize("shortest_s", [0.03, 0.3])
def test_candidates_are_possible(response_s: float, shortest_s: float) -> None:
    """All delays are in the grid, and edges keep their order; also after refinement."""
    found = coarse(response_s, shortest_s, is_measured=False)
    for _ in range(3):
        assert len(found.delay_s)
        assert (found.blur_s <= shortest_s + 1e-9).all()
        assert (found.delay_s - found.blur_s / 2.0 >= 2 * delays_s(0.0)[0] - 1e-9).all()
        assert (found.delay_s + found.blur_s / 2.0 <= delays_s(0.0)[-1] + 1e-9).all()
        found = found.finer(np.abs(found.delay_s - 0.05) * 1e3)


def test_refinement_approaches_the_lowest_cost() -> None:
    """The costs are those of a delay of 61.7 ms, which is not in the first grid."""
    found = coarse(0.0, 1.0, is_measured=False)
    for _ in range(3):
        found = found.finer(((found.delay_s - 0.0617) / 1e-4) ** 2 + (found.blur_s / 1e-3) ** 2)
    best = np.abs(found.delay_s - 0.0617).min()
    assert best < 1e-4


def test_shares_are_probabilities() -> None:
    """They sum to 1, also for costs that are so large that their exponentials are 0."""
    found = coarse(0.0, 1.0, is_measured=False)
    shares = found.shares(1e6 + 1e5 * np.arange(len(found.delay_s)))
    assert shares.sum() == pytest.approx(1.0)
    assert np.isfinite(shares).all()
    assert shares.argmax() == 0

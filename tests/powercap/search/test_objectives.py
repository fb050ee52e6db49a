"""Objectives: costs, constraints and losses."""

import numpy as np
import pytest

from energy_callbacks.powercap.search.objectives import (
    MaxSlowdown,
    MinEnergy,
    Objective,
    PowerCap,
    ZeusCost,
    losses,
    regrets,
)
from energy_callbacks.powercap.search.posterior import Curves

# Settings 100, 200 and 300 W; the found one is 300 W.
CURVES = Curves(
    np.array([100.0, 200.0, 300.0]),
    2,
    np.array([[2.0, 1.04, 1.0]]),
    np.array([[190.0, 180.0, 200.0]]),
)


@pytest.mark.parametrize(
    ("objective", "best"),
    [
        (MaxSlowdown(0.05), 1),
        (MaxSlowdown(0.01), 2),
        (MinEnergy(), 1),
        (ZeusCost(0.0, 300.0), 2),
        (ZeusCost(1.0, 300.0), 1),
        (PowerCap(180.0), 1),
        (PowerCap(100.0), 0),
        (PowerCap(50.0), 0),  # no setting meets it: the one nearest to it
    ],
)
def test_the_best_setting_has_no_loss(objective: Objective, best: int) -> None:
    """Its loss is 0 and it meets the constraint as well as any."""
    found, excesses = losses(objective, CURVES)
    assert found[0, best] == pytest.approx(0.0)
    assert excesses[0, best] <= 0.0
    assert regrets(objective, CURVES)[0].argmin() == best


def test_an_excess_counts_three_times() -> None:
    """4 % slower than allowed is as bad as 9 % of cost, if 1 % is allowed."""
    assert regrets(MaxSlowdown(0.01), CURVES)[0, 1] == pytest.approx(0.09)

"""Curves between the sizes that were tried."""

import numpy as np
import pytest

from energy_callbacks.core.records import Energy
from energy_callbacks.tuning.search.choice import Choice
from energy_callbacks.tuning.search.costs import is_known, rms, with_spread
from energy_callbacks.tuning.search.curve import drawn_curves
from energy_callbacks.tuning.search.trial import Trial

SIZES = [1, 4, 16, 64, 256, 1024, 4096]
AT = [1, 10, 100, 1000, 4096]


def drawn(cost, noise=0.0, seed=0):
    """Return curves through trials of ``SIZES``, and the true costs at ``AT``."""
    dice = np.random.default_rng(seed)
    costs = cost(np.array(SIZES, float)) * np.exp(noise * dice.normal(size=len(SIZES)))
    curves = drawn_curves(SIZES, costs, np.full(len(SIZES), noise), AT).costs
    return curves, np.log(cost(np.array(AT, float)))


@pytest.mark.parametrize(
    "cost",
    [
        lambda b: 2.0 + 0.05 * b,
        lambda b: np.sqrt(4.0 + (0.05 * b) ** 2),
        lambda b: (2.0 + 0.05 * b) * (1.0 + 0.4 * b / (b + 1000.0)),
        lambda b: 2.0 * np.ones_like(b),
        lambda b: 0.05 * b,
    ],
)
def test_family_is_found_again(cost):
    """A sum, a soft maximum, a decline, only launches, only work: within 1 %."""
    curves, truth = drawn(cost)
    assert np.abs(np.median(curves, axis=0) - truth).max() < 0.01


def test_curves_go_through_the_points_where_the_family_is_wrong():
    """A jump of 30 % at 256: curves go through the trials, and are uncertain between them."""
    curves, truth = drawn(lambda b: (2.0 + 0.05 * b) * np.where(b >= 256, 1.3, 1.0), 0.003)
    assert abs(np.median(curves[:, 0]) - truth[0]) < 0.02
    assert abs(np.median(curves[:, -1]) - truth[-1]) < 0.02
    smooth, _ = drawn(lambda b: 2.0 + 0.05 * b, 0.003)
    assert curves[:, 2].std() > 3.0 * smooth[:, 2].std()


def test_spread_of_curves_covers_the_truth():
    """In 20 draws of 3 % noise most true values are within two standard deviations."""
    away = []
    for seed in range(20):
        curves, truth = drawn(lambda b: 2.0 + 0.05 * b, 0.03, seed)
        away.append((curves.mean(axis=0) - truth) / curves.std(axis=0))
    assert 0.85 < (np.abs(away) < 2.0).mean() <= 1.0
    assert 0.5 < np.std(away) < 1.5
    alone = drawn_curves([64], np.array([2.0]), np.array([0.2]), [64]).costs
    assert alone.std() == pytest.approx(0.2, rel=0.2)


def test_same_trials_give_the_same_curves():
    """The random seed is fixed, so a resumed search continues in the same way."""
    first, _ = drawn(lambda b: 2.0 + 0.05 * b, 0.03)
    again, _ = drawn(lambda b: 2.0 + 0.05 * b, 0.03)
    np.testing.assert_array_equal(first, again)


def test_knee_is_where_the_closed_form_has_it():
    """For 1 + b / 20 up to 4096 the knee is 0.97 L r / (r + 0.03 L) = 554.8."""
    trials = [Trial(size=b, steps=1, duration_s=1.0 + b / 20.0) for b in [*SIZES, 512, 600]]
    choice = Choice(trials, 0.0, range(1, 4097), 4096)
    truth = 0.97 * 4096 * 20 / (20 + 0.03 * 4096)
    assert choice.knee(0.03) == pytest.approx(truth, rel=0.1)
    size, loss, error = choice.knee_that_ran(0.03)
    assert size == 512
    assert loss == pytest.approx(1.0 - (512 / 532) / (4096 / 4116), abs=0.005)
    assert error < 0.01
    assert choice.best == 4096
    assert choice.gain == 0.0


def repeated(spread, seed=0):
    """Return trials of ``SIZES``, each twice, that state 0.1 % and differ by ``spread``."""
    dice = np.random.default_rng(seed)
    return [
        Trial(size=b, steps=1, duration_s=t_s, stderr_s=0.001 * t_s)
        for b in SIZES * 2
        for t_s in [(1.0 + b / 20.0) * np.exp(spread * dice.normal())]
    ]


@pytest.mark.parametrize("spread", [0.003, 0.01, 0.03, 0.08])
def test_variance_between_trials_is_found(spread):
    """Trials that state 0.1 % and scatter by up to 8 % get errors of about that size."""
    found = [with_spread(repeated(spread, seed))[0].time_error for seed in range(5)]
    assert rms(np.array(found)) == pytest.approx(spread, rel=0.4)


def test_variance_between_trials_is_found_without_repeats():
    """Seven sizes that lie beside the curve by 3 % show it, and a smooth curve shows none."""
    rough = with_spread(repeated(0.03)[: len(SIZES)])
    smooth = with_spread(repeated(0.0)[: len(SIZES)])
    assert 0.015 < rough[0].time_error < 0.06
    assert smooth[0].time_error < 0.01


def test_variance_of_energy_is_its_own():
    """Time is the same in all trials and energy is not; unknown energy stays unknown."""
    told = [
        Trial(size=b, steps=1, duration_s=1.0 + b / 20.0, energy=Energy(energy_j=j * (20.0 + b)))
        for b in SIZES
        for j in (1.0, 1.1)
    ]
    *found, unknown, full = with_spread(
        [*told, Trial(size=2, steps=1, duration_s=1.1), Trial(size=9, status="out_of_memory")]
    )
    assert all(trial.time_error < 0.01 for trial in found)
    assert all(0.03 < trial.energy_error < 0.1 for trial in found)
    assert unknown.j_per_sample is None
    assert full == Trial(size=9, status="out_of_memory")


def test_energy_counts_only_where_it_has_a_weight():
    """A trial without energy is used for time; a trial that did not fit is not used."""
    trial = Trial(size=8, steps=1, duration_s=1.0)
    assert is_known(trial, 0.0)
    assert not is_known(trial, 0.5)
    assert not is_known(Trial(size=8, status="out_of_memory"), 0.0)

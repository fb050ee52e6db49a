"""What the benchmark of the search reads and judges."""

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import power_limit
from tests.benchmarks.common.power_curves import PowerCurve, of_zeus, random_curves

SLOWDOWN = "max slowdown 5 %"


def curve(step_s: list[float], power_w: list[float]) -> PowerCurve:
    """Return a curve over the limits of a V100."""
    limits_w = np.arange(100.0, 251.0, 25.0)
    return PowerCurve(
        group="V100",
        name="8",
        limits_w=limits_w,
        step_s=np.array(step_s),
        power_w=np.array(power_w),
    )


STEP_S = [2.0, 1.5, 1.2, 1.1, 1.04, 1.02, 1.0]
POWER_W = [100.0, 120.0, 145.0, 165.0, 185.0, 205.0, 220.0]


def test_curves_of_zeus_are_grouped_by_card_and_network(tmp_path: Path) -> None:
    """Batch sizes are the curves of a group; limits are in ascending order."""
    head = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
    rows = [
        f"a,net,{size},adam,{limit},{300 / limit},{limit}\n"
        for size in (8, 16)
        for limit in (250, 100, 175)
    ]
    for name in ("v100", "a40"):
        (tmp_path / f"summary_power_{name}.csv").write_text(head + "".join(rows))
    found = list(of_zeus(tmp_path))
    assert [(one.group, one.name) for one in found] == [
        ("V100 a net adam", "8"),
        ("V100 a net adam", "16"),
        ("A40 a net adam", "8"),
        ("A40 a net adam", "16"),
    ]
    assert found[0].limits_w.tolist() == [100.0, 175.0, 250.0]
    assert found[0].step_s.tolist() == [3.0, 300 / 175, 1.2]


def test_truth_passes_through_the_points() -> None:
    """Monotone points stay as they are; others become monotone."""
    same = curve(STEP_S, POWER_W).monotone()
    truth = same.at(same.limits_w)
    assert truth.step_s[0] == pytest.approx(STEP_S)
    assert truth.step_j[0] / truth.step_s[0] == pytest.approx(POWER_W)
    noisy = curve([*STEP_S[:-1], 1.04], POWER_W).monotone()
    assert np.diff(noisy.step_s).max() <= 0.0


def test_random_curves_depend_on_the_seed_alone() -> None:
    """Held-out seeds give other curves."""
    first, again, other = (list(random_curves(2, seed)) for seed in (1, 1, 2))
    assert np.array_equal(first[0].step_s, again[0].step_s)
    assert not np.array_equal(first[0].step_s, other[0].step_s)


def test_zeus_measures_all_limits_and_takes_the_lowest_that_is_fast_enough() -> None:
    """Seven windows; the truth between the limits is not searched."""
    found = power_limit.zeus(curve(STEP_S, POWER_W), SLOWDOWN, 1e-9)
    assert (found.chosen_w, found.windows) == (200.0, 7)
    assert found.excess < 0.0
    assert found.loss > 0.0
    spent = np.multiply(STEP_S, POWER_W).sum() / POWER_W[-1]
    assert found.energy == pytest.approx(spent)


def test_our_search_is_judged_by_the_truth() -> None:
    """Nearly without noise it is within 2 % in four windows, and its intervals hold."""
    found = power_limit.ours(curve(STEP_S, POWER_W), SLOWDOWN, 1e-3)
    assert found.windows == 4
    assert found.loss < 0.02
    assert found.excess < 0.005
    assert found.held == 1.0


def test_a_limit_that_is_too_slow_is_a_miss() -> None:
    """Half a point above the largest slowdown is allowed, more is not, whatever it saves."""
    card = power_limit.Card(curve(STEP_S, POWER_W), 0.01)
    outcomes = [
        card.outcome("ours", curve(STEP_S, POWER_W), SLOWDOWN, limit_w)
        for limit_w in (175.0, 250.0)
    ]
    assert outcomes[0].loss < 0.0
    assert not any(one.is_within for one in outcomes)
    found = power_limit.row("name", SLOWDOWN, outcomes)
    assert (found.within, found.over) == (0.0, 0.5)
    missed = [bar.name for bar in power_limit.judged(found) if not bar.is_met]
    assert f"name, {SLOWDOWN}: share within 1 %" in missed

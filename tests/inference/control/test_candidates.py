"""Partitions with their predictions at all levels."""

import numpy as np
import pytest

from energy_callbacks.inference.control.candidates import Candidates, candidates, partitions
from energy_callbacks.inference.control.levels import levels
from energy_callbacks.inference.control.protocols import Need
from energy_callbacks.inference.planner.problem import Footprint, Problem
from tests.inference.control.law import LawModel, LawPlant, power_w, problem


def _table(asked: Problem, *can: Need) -> Candidates:
    choices = levels(LawPlant(frozenset(can)).abilities)
    return candidates(asked, LawModel(), choices, partitions(asked, LawModel(), choices))


def test_power_and_throughput_between_anchors_are_those_of_the_model() -> None:
    """At each of 81 clocks, interpolated values are within 2 % of the law."""
    table = _table(problem(), "clock")
    model = LawModel()
    for row, tenants in enumerate(table.partitions):
        wanted = [level.configuration(tenants) for level in table.levels]
        assert table.powers_w[row] == pytest.approx([power_w(one) for one in wanted], rel=0.02)
        rates = [model.predict(one).throughput_per_s.value for one in wanted]
        assert np.exp(table.rates[row]) == pytest.approx(rates, rel=0.02)


def test_duties_scale_work_and_its_power() -> None:
    """At a duty of 40 %, throughput is 40 %, and so is the power above that of waiting."""
    table = _table(problem(), "duty")
    at = next(at for at, one in enumerate(table.levels) if one.duty == 0.4)
    assert np.exp(table.rates[:, at]) == pytest.approx(0.4 * np.exp(table.rates[:, -1]))
    work_w = table.powers_w - table.idle_w
    assert work_w[:, at] == pytest.approx(0.4 * work_w[:, -1])


def test_one_model_has_all_numbers_of_equal_tenants() -> None:
    """Shares of 25, 50 and 100 % with three batches: 4 + 2 + 1 numbers of each."""
    assert len(_table(problem(), "clock").partitions) == 7 * 3


def test_partitions_beyond_other_limits_are_left_out() -> None:
    """With memory for two tenants, there are at most two."""
    asked = problem(memory_gib=2.5, footprints={"net": Footprint(1.0, 0.0)})
    assert max(map(len, _table(asked, "clock").partitions)) == 2


def test_without_any_partition_within_the_limits_the_message_says_so() -> None:
    """The memory does not suffice for one tenant."""
    asked = problem(memory_gib=0.5, footprints={"net": Footprint(1.0, 0.0)})
    with pytest.raises(ValueError, match=r"none of 21 partitions .* lower rates"):
        _table(asked, "clock")


def test_levels_that_are_too_slow_are_not_chosen() -> None:
    """A latency limit of 50 ms excludes low clocks of batch 64, whose rates are then tiny."""
    table = _table(problem(max_latencies_ms={"net": 50.0}), "clock")
    at = [
        len(one) == 1 and one[0].batch == 64 and one[0].share_pct == 100 for one in table.partitions
    ]
    row = table.rates[at.index(True)]
    assert row[0] < -100.0
    assert row[-1] > 0.0


def test_partitions_that_differ_in_batches_have_the_same_processes() -> None:
    """Each number of processes with a share occurs with three batches."""
    _, counts = np.unique(_table(problem(), "clock").processes, return_counts=True)
    assert counts.tolist() == [3] * 7


def test_several_models_have_the_plans_of_several_caps() -> None:
    """With minimum rates of two models, each partition has both."""
    asked = Problem(
        models=("net", "other"),
        shares_pct=(25, 50),
        batches=(4, 16, 64),
        min_rates_per_s={"net": 50.0, "other": 50.0},
    )
    table = _table(asked, "clock")
    assert len(table.partitions) > 3
    for tenants in table.partitions:
        assert {one.model for one in tenants} == {"net", "other"}

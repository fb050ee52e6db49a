"""Refusals name the limit that binds, and the value that it would need to have."""

from typing import Any

import pytest

from energy_callbacks.inference.planner.plan import Infeasible, Plan
from energy_callbacks.inference.planner.problem import Footprint, GpuSetting, Problem
from energy_callbacks.inference.planner.search import plan
from tests.inference.planner.synthetic import SyntheticGpu, Workload

GPU = SyntheticGpu(
    workloads={
        "a": Workload(fixed_ms=2.0, per_sample=10.0, offset=5.0, sample_j=0.05),
        "b": Workload(fixed_ms=1.0, per_sample=4.0, offset=5.0, sample_j=0.02, waste_w=5.0),
    },
    static_w={None: 60.0},
)


def refused(**changes: Any) -> Infeasible:
    """Return the refusal of a problem with two models; fail if there is a plan."""
    given = {
        "models": ("a", "b"),
        "batches": (4, 16, 64),
        "shares_pct": (10, 25, 50, 100),
    } | changes
    found = plan(Problem(**given), GPU, additive=GPU)
    assert isinstance(found, Infeasible), found
    return found


def needed_works(found: Infeasible, **changes: Any) -> bool:
    """Return whether a plan exists if the limit has the needed value."""
    given = {
        "models": ("a", "b"),
        "batches": (4, 16, 64),
        "shares_pct": (10, 25, 50, 100),
    } | changes
    return isinstance(plan(Problem(**given), GPU, additive=GPU), Plan)


def test_a_cap_below_the_least_power_is_named() -> None:
    """The refusal names the power cap and the least power, at which a plan exists."""
    found = refused(cap_w=62.0)
    assert (found.limit, found.allowed) == ("power cap", 62.0)
    assert found.needed is not None
    assert "least power possible is" in found.text()
    assert needed_works(found, cap_w=found.needed * 1.0001)
    assert not needed_works(found, cap_w=found.needed * 0.999)


def test_70_w_on_an_a100_names_the_cap() -> None:
    """At its clocks as they are, an A100 needs more than 70 W for any tenant (defect 13).

    The static power is the published one of an A100 at 1410 MHz, 49 W, with the least published
    base power of a running model, 22 W; the model itself is synthetic.
    """
    load = Workload(fixed_ms=3.0, per_sample=10.0, offset=5.0, sample_j=0.02)
    a100 = SyntheticGpu(workloads={"mnasnet": load}, static_w={None: 49.0 + 22.0})
    problem = Problem(models=("mnasnet",), cap_w=70.0, batches=(4, 32))
    found = plan(problem, a100)
    assert isinstance(found, Infeasible)
    single = [GpuSetting().configuration([one]) for one in problem.tenants()]
    least_w = min(one.power_w.high for one in a100.predict_many(single))
    assert found.limit == "power cap"
    assert found.needed == pytest.approx(least_w / (1 - problem.sensor_error_pct / 100), rel=1e-6)
    assert "the power cap is 70 W, but the least power possible is" in found.text()


def test_a_rate_that_is_too_high_is_named() -> None:
    """The refusal names the rate, and the highest that is possible."""
    found = refused(min_rates_per_s={"a": 1e5})
    assert found.limit == "minimum rate of a"
    assert found.needed is not None
    assert needed_works(found, min_rates_per_s={"a": found.needed * 0.9999})
    assert not needed_works(found, min_rates_per_s={"a": found.needed * 1.001})


def test_a_latency_that_is_too_short_is_named() -> None:
    """The refusal names the latency, and the shortest that is possible."""
    found = refused(max_latencies_ms={"a": 0.5}, min_rates_per_s={"a": 10.0})
    assert found.limit == "maximum latency of a"
    assert found.needed is not None
    limits = {"min_rates_per_s": {"a": 10.0}}
    assert needed_works(found, max_latencies_ms={"a": found.needed}, **limits)
    assert not needed_works(found, max_latencies_ms={"a": found.needed * 0.999}, **limits)


def test_a_model_that_no_plan_can_have_is_possible_at_most_0_times() -> None:
    """Its latency leaves out all its tenants, so that its rate is 0, which is printed as 0."""
    found = refused(max_latencies_ms={"a": 0.5}, min_rates_per_s={"a": 10.0})
    assert "minimum rate of a is 10 samples/s, but at most 0 samples/s are" in found.text()


def test_too_little_memory_is_named() -> None:
    """The refusal names the memory and what is needed."""
    footprints = {"a": Footprint(2.0, 0.1), "b": Footprint(1.0, 0.5)}
    found = refused(memory_gib=1.0, footprints=footprints)
    assert (found.limit, found.needed) == ("memory", pytest.approx(2.4))


def test_limits_that_exclude_each_other_are_listed() -> None:
    """If no single limit is to blame, all are listed."""
    found = refused(cap_w=61.0, min_rates_per_s={"a": 1e5, "b": 1e5})
    assert found.limit == ""
    assert "power cap, minimum rate of a, minimum rate of b" in found.text()
    assert found.as_json()["limit"] == ""

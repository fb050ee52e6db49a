"""Plans of additive models are compared with all plans; others with what the predictor says."""

from dataclasses import replace
from random import Random

import pytest
from scipy.optimize import OptimizeResult

from energy_callbacks.inference.planner import greedy, milp
from energy_callbacks.inference.planner.additive import systems
from energy_callbacks.inference.planner.approximation import Approximation
from energy_callbacks.inference.planner.plan import Infeasible, Plan
from energy_callbacks.inference.planner.problem import Footprint, GpuSetting, Problem
from energy_callbacks.inference.planner.search import METHODS, plan
from energy_callbacks.inference.records import Configuration, Interval, Prediction, Tenant
from tests.inference.planner.synthetic import (
    SyntheticGpu,
    Workload,
    best_by_trying,
    every_plan,
    random_gpu,
    small_problem,
)

CLOCKS = (600.0, 1000.0, 1410.0)
CLOCK = (GpuSetting(sm_mhz=1410.0),)


def planned(problem: Problem, gpu: SyntheticGpu, method: str = "auto", **options: object) -> Plan:
    """Return a plan; fail if there is none."""
    found = plan(problem, gpu, method=method, **options)  # type: ignore[arg-type]
    assert isinstance(found, Plan), found
    return found


@pytest.mark.parametrize("seed", range(30))
def test_the_plan_is_the_best_of_all_plans(seed: int) -> None:
    """The plan of an additive model is as good as the best of all plans, or both are refusals."""
    chance = Random(seed)
    gpu = random_gpu(chance, chance.randint(1, 3), CLOCKS[: chance.randint(1, 3)])
    problem = small_problem(chance, gpu)
    best, found = best_by_trying(problem, gpu), plan(problem, gpu, additive=gpu)
    if best is None:
        assert isinstance(found, Infeasible)
    else:
        assert isinstance(found, Plan)
        assert found.value == pytest.approx(best, rel=1e-9)
        assert found.gap == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_no_plan_is_below_greedy_or_above_the_cap(seed: int) -> None:
    """With all shares and batches, the plan is at least as good as greedy's, which keeps the cap.

    Defect 5 of the published planner: a clock between two steps leaves the power above the cap.
    """
    chance = Random(100 + seed)
    gpu = random_gpu(chance, 1 + seed % 3, CLOCKS)
    problem = Problem(
        models=tuple(gpu.workloads),
        cap_w=chance.uniform(110.0, 250.0),
        settings=tuple(GpuSetting(sm_mhz=clock) for clock in CLOCKS),
    )
    best, by_greedy = (planned(problem, gpu, m, additive=gpu) for m in ("auto", "greedy"))
    assert problem.cap_w is not None
    assert best.value >= by_greedy.value * (1.0 - 1e-9)
    assert best.others["greedy"] == pytest.approx(by_greedy.value)
    for one in (best, by_greedy):
        assert one.configuration.sm_mhz in CLOCKS
        high_w = one.prediction.power_w.high + problem.sensor_error_w
        assert high_w <= problem.cap_w * (1.0 + 1e-9)


def test_greedy_refuses_tenants_that_lose_throughput() -> None:
    """A second tenant that slows the first more than it adds is refused (defect 3)."""
    load = Workload(fixed_ms=5.0, per_sample=0.01, offset=10.0, sample_j=0.01)
    gpu = SyntheticGpu(workloads={"a": load}, static_w={None: 30.0}, contention=0.3)
    problem = Problem(models=("a",), cap_w=300.0, shares_pct=(50, 100), batches=(8,))
    pairs = [systems(problem, gpu, one) for one in problem.settings]
    found = greedy.solve(pairs)
    assert found is not None
    assert len(found.tenants) == 1


def test_greedy_gives_out_left_shares_only_within_the_cap() -> None:
    """Shares that are left go to tenants only if the larger tenants keep the cap (defect 4)."""
    for seed in range(20):
        chance = Random(seed)
        gpu = random_gpu(chance, 2, (1410.0,))
        problem = Problem(
            models=("a", "b"),
            cap_w=chance.uniform(80.0, 150.0),
            settings=(GpuSetting(sm_mhz=1410.0),),
            shares_pct=tuple(range(5, 101, 5)),
            batches=(8, 32),
        )
        pairs = [systems(problem, gpu, one) for one in problem.settings]
        found = greedy.solve(pairs)
        if found is not None:
            assert problem.cap_w is not None
            high_w = gpu.predict(found).power_w.high + problem.sensor_error_w
            assert high_w <= problem.cap_w
            assert sum(one.share_pct for one in found.tenants) <= 100.0


@pytest.mark.parametrize("objective", ["throughput", "energy"])
def test_a_model_that_is_not_additive_is_searched(objective: str) -> None:
    """If contention grows with the tenants, the plan is near the best of all plans, and below.

    The plan is allowed by the predictor itself, and the bound is not exceeded by any plan.
    """
    for seed in range(4):
        chance = Random(200 + seed)
        gpu = random_gpu(chance, 2, (1000.0, 1410.0), bend=0.15)
        problem = Problem(
            models=("a", "b"),
            cap_w=chance.uniform(100.0, 200.0),
            settings=(GpuSetting(sm_mhz=1000.0), GpuSetting(sm_mhz=1410.0)),
            shares_pct=(20, 40, 60),
            batches=(4, 16, 64),
            objective=objective,  # type: ignore[arg-type]
            footprints={"a": (0.0, 0.0), "b": (0.0, 0.0)},  # type: ignore[dict-item]
        )
        best, found = best_by_trying(problem, gpu), planned(problem, gpu)
        assert best is not None
        assert found.value == pytest.approx(best, rel=0.02)
        assert "additive" in found.bound_reason
        loss = found.value - best if objective == "energy" else best - found.value
        assert loss >= -1e-9 * best
        past = found.bound - best if objective == "energy" else best - found.bound
        assert past <= 1e-9 * best


def test_methods_return_their_own_plans() -> None:
    """Each method returns its own plan; the others' values stand beside it."""
    gpu = random_gpu(Random(5), 1, CLOCKS)
    settings = tuple(GpuSetting(sm_mhz=clock) for clock in CLOCKS)
    problem = Problem(models=("a",), cap_w=150.0, settings=settings, batches=(8, 32))
    for method in METHODS[1:]:
        found = planned(problem, gpu, method, additive=gpu)
        assert found.method == method
        assert "greedy" in {found.method, *found.others}
    with pytest.raises(ValueError, match="must be one of auto, milp"):
        plan(problem, gpu, method="magic")


def test_the_approximation_of_an_additive_model_is_exact() -> None:
    """Predictions of full and single packings are enough to recover an additive model."""
    chance = Random(3)
    gpu = random_gpu(chance, 2, CLOCKS)
    problem = Problem(
        models=("a", "b"),
        cap_w=180.0,
        settings=tuple(GpuSetting(sm_mhz=clock) for clock in CLOCKS),
        shares_pct=(10, 25, 50, 100),
        batches=(8, 32),
    )
    assert Approximation(gpu).deviation(problem) < 0.03
    exact, approximate = planned(problem, gpu, additive=gpu), planned(problem, gpu)
    assert approximate.value == pytest.approx(exact.value, rel=0.01)


def test_one_kind_of_tenant_is_compared_with_the_predictor() -> None:
    """With one model, share and batch, contention is found, and the best number of tenants."""
    gpu = random_gpu(Random(200), 1, (1410.0,), bend=0.15)
    for cap_w in (100.0, 130.0, 160.0):
        problem = Problem(
            models=("a",),
            cap_w=cap_w,
            settings=(GpuSetting(sm_mhz=1410.0),),
            shares_pct=(10,),
            batches=(16,),
            footprints={"a": Footprint(0.0)},
        )
        assert Approximation(gpu).deviation(problem) > 0.02
        best, found = best_by_trying(problem, gpu), planned(problem, gpu)
        assert found.value == pytest.approx(best)


def test_mixed_plans_keep_the_margin_of_their_own_interval() -> None:
    """The margin is that of the interval predicted for the plan (defect 8).

    A predictor may be less certain of mixed tenants than of equal ones, which were measured.
    """

    class Unsure(SyntheticGpu):
        def predict(self, configuration) -> Prediction:  # type: ignore[no-untyped-def]
            found = super().predict(configuration)
            is_mixed = len({one.model for one in configuration.tenants}) > 1
            high_w = found.power_w.value * (1.2 if is_mixed else 1.01)
            power_w = found.power_w._replace(high=high_w)
            return Prediction(
                throughput_per_s=found.throughput_per_s,
                power_w=power_w,
                tenant_throughputs_per_s=found.tenant_throughputs_per_s,
                tenant_latencies_ms=found.tenant_latencies_ms,
            )

    made = random_gpu(Random(4), 2, (1410.0,))
    gpu = Unsure(workloads=made.workloads, static_w=made.static_w)
    problem = Problem(
        models=("a", "b"),
        cap_w=200.0,
        settings=(GpuSetting(sm_mhz=1410.0),),
        batches=(8, 32),
        min_rates_per_s={"a": 50.0, "b": 50.0},
    )
    found = planned(problem, gpu)
    assert found.prediction.power_w.value * 1.2 + problem.sensor_error_w <= 200.0 + 1e-6


def test_a_plan_better_than_its_bound_is_not_called_proven() -> None:
    """Where different tenants speed each other up, the assumptions of the bound do not hold."""

    class Helped(SyntheticGpu):
        def predict(self, configuration) -> Prediction:  # type: ignore[no-untyped-def]
            found = super().predict(configuration)
            factor = 1.5 if len({one.model for one in configuration.tenants}) > 1 else 1.0
            each = [
                Interval(*(factor * one for one in rate)) for rate in found.tenant_throughputs_per_s
            ]
            return replace(
                found,
                throughput_per_s=Interval(*map(sum, zip(*each, strict=True))),
                tenant_throughputs_per_s=tuple(each),
            )

    made = random_gpu(Random(4), 2, (1410.0,))
    gpu = Helped(workloads=made.workloads, static_w=made.static_w)
    found = planned(
        Problem(
            models=("a", "b"),
            settings=(GpuSetting(sm_mhz=1410.0),),
            shares_pct=(50,),
            batches=(32,),
            weights={name: 1.0 / gpu.full_throughput(name) for name in ("a", "b")},
        ),
        gpu,
    )
    assert {one.model for one in found.configuration.tenants} == {"a", "b"}
    assert found.bound_reason.startswith("not proven, because the plan is better")


def test_a_solver_without_a_bound_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """If HiGHS stops before it has a bound, the bound is the linear relaxation."""
    gpu = random_gpu(Random(6), 2, (1410.0,))
    problem = Problem(models=("a", "b"), cap_w=110.0, settings=(GpuSetting(sm_mhz=1410.0),))
    pairs = [systems(problem, gpu, one) for one in problem.settings]
    stopped = OptimizeResult(status=1, x=None, mip_dual_bound=None)
    monkeypatch.setattr("scipy.optimize.milp", lambda *_, **__: stopped)
    found = milp.solve(pairs, "throughput")
    assert found is not None
    assert found.bound == pytest.approx(milp.relaxed(pairs, "throughput"))
    assert found.bound > found.value


def test_a_clock_is_left_out_only_if_nothing_there_is_better() -> None:
    """The best plan over all clocks is the best of the plans of each clock alone."""
    chance = Random(8)
    gpu = random_gpu(chance, 2, CLOCKS)
    problem = Problem(
        models=("a", "b"),
        cap_w=150.0,
        settings=tuple(GpuSetting(sm_mhz=clock) for clock in CLOCKS),
        batches=(8, 32),
    )
    pairs = [systems(problem, gpu, one) for one in problem.settings]
    for objective in ("throughput", "energy"):
        whole = milp.solve(pairs, objective)  # type: ignore[arg-type]
        each = [milp.solve([pair], objective) for pair in pairs]  # type: ignore[arg-type]
        values = [one.value for one in each if one is not None]
        assert whole is not None
        best = max(values) if objective == "throughput" else min(values)
        assert whole.value == pytest.approx(best)


def test_every_plan_of_the_tests_fits() -> None:
    """The enumeration of the tests yields each allowed set of shares once for each setting."""
    problem = Problem(models=("a",), shares_pct=(40, 60), batches=(1,))
    shares = sorted(tuple(t.share_pct for t in one.tenants) for one in every_plan(problem))
    assert shares == [(40,), (40, 40), (40, 60), (60,)]


def test_the_best_measured_configuration_is_chosen() -> None:
    """It is within all limits and choices, although other plans and configurations are better."""
    gpu = random_gpu(Random(5), 2, (1410.0,))
    slow, fast, other_batch, other_model = (
        Configuration(tenants=(Tenant(model=model, share_pct=share, batch=batch),), sm_mhz=1410.0)
        for model, share, batch in (("a", 10, 4), ("a", 50, 4), ("a", 50, 64), ("b", 50, 4))
    )
    choices = {"models": ("a",), "shares_pct": (10, 50), "batches": (4,), "settings": CLOCK}
    measured = [slow, fast, other_batch, other_model, replace(fast, sm_mhz=1000.0)]
    found = plan(Problem(**choices), gpu, additive=gpu, measured=measured)
    assert isinstance(found, Plan)
    assert (found.configuration, found.method) == (fast, "measurement")
    assert found.gap > 0.0  # a second tenant has room

    between_w = (gpu.predict(slow).power_w.high + gpu.predict(fast).power_w.value) / 2.0
    capped = plan(Problem(cap_w=between_w, **choices), gpu, additive=gpu, measured=measured)
    assert isinstance(capped, Plan)
    assert capped.configuration == slow


def test_measured_configurations_that_may_not_run_are_refused() -> None:
    """The refusal names what to do, because a plan that was not measured may exist."""
    gpu = random_gpu(Random(5), 2, (1410.0,))
    measured = [Configuration(tenants=(Tenant(model="a", share_pct=50, batch=4),), sm_mhz=1410.0)]
    problem = Problem(models=("a",), batches=(16,), settings=CLOCK)
    found = plan(problem, gpu, additive=gpu, measured=measured)
    assert isinstance(found, Infeasible)
    assert "no measured configuration has only the given models" in found.message
    with pytest.raises(ValueError, match="without a method, got 'milp'"):
        plan(problem, gpu, additive=gpu, measured=measured, method="milp")

"""The published controllers."""

from dataclasses import replace
from itertools import pairwise

import pytest

from energy_callbacks.inference.control.batchdvfs import BatchDvfs
from energy_callbacks.inference.control.controllers import CONTROLLERS, create
from energy_callbacks.inference.control.directcap import DirectCap
from energy_callbacks.inference.control.loop import CapSchedule, run, share_above
from energy_callbacks.inference.control.morak import Morak
from energy_callbacks.inference.control.pctodl import PctoDl
from energy_callbacks.inference.control.powercap import PowerLimit
from energy_callbacks.inference.control.protocols import Controller, OperatingPoint, Window
from energy_callbacks.inference.planner.problem import Footprint
from energy_callbacks.inference.records import Configuration
from tests.inference.control.law import CLOCKS, LawModel, LawPlant, problem, tenants

_CAP_W = 150.0


def _run(
    controller: Controller, plant: LawPlant, windows: int, *caps: tuple[float, float]
) -> list[tuple[Window, float]]:
    return list(run(controller, plant, CapSchedule(caps or ((0.0, _CAP_W),)), windows=windows))


def _clocks(found: list[tuple[Window, float]]) -> list[float]:
    return [window.point.configuration.sm_mhz or 0.0 for window, _ in found]


def _changes(values: list[float]) -> int:
    return sum(one != other for one, other in pairwise(values))


def _window(point: OperatingPoint, power_w: float, at_s: float = 0.0) -> Window:
    return Window(
        start_s=at_s,
        end_s=at_s + 1.0,
        point=point,
        is_steady=True,
        power_mean_w=power_w,
        power_max_w=power_w,
        throughput_per_s=1.0,
    )


@pytest.mark.parametrize("name", list(CONTROLLERS))
def test_every_controller_holds_a_cap_after_a_minute(name: str) -> None:
    """With the noise of a sensor, the mean power of 30 windows is not above the cap by 2 %."""
    controller = create(name, problem(), LawModel())
    found = _run(controller, LawPlant(noise=0.002), 90)[60:]
    assert controller.name == name
    assert sum(window.power_mean_w for window, _ in found) / len(found) <= 1.02 * _CAP_W
    assert found[-1][0].throughput_per_s > 500.0


@pytest.mark.parametrize("name", list(CONTROLLERS))
def test_every_controller_says_how_it_works_without_its_needs(name: str) -> None:
    """On a plant that can change nothing, controllers with given tenants are degraded openly."""
    controller = create(name, problem(), LawModel(), partition=tenants(2))
    point = controller.start(_CAP_W, LawPlant(frozenset()).abilities)
    assert controller.needs
    assert "change" in controller.degraded
    assert point.configuration.sm_mhz is None
    assert point.configuration.power_limit_w is None
    assert controller.step(_window(point, 500.0)).configuration == point.configuration


@pytest.mark.parametrize("clocks", [(1000.0,), (210.0, 400.0)])
@pytest.mark.parametrize("name", list(CONTROLLERS))
def test_every_controller_works_with_few_or_low_clocks(
    name: str, clocks: tuple[float, ...]
) -> None:
    """With one clock there is no slope; clocks below 500 MHz are below the published floor."""
    abilities = LawPlant().abilities
    known = replace(abilities.ranges["clock"], lowest=clocks[0], highest=clocks[-1], steps=clocks)
    few = replace(abilities, ranges={**abilities.ranges, "clock": known})
    controller = create(name, problem(), LawModel())
    point = controller.start(_CAP_W, few)
    for power_w in (100.0, 149.0, 500.0):
        point = controller.step(_window(point, power_w))
    assert point.configuration.tenants
    assert point.configuration.sm_mhz in (None, *clocks)


@pytest.mark.parametrize("name", list(CONTROLLERS))
def test_given_tenants_keep_their_models_and_shares(name: str) -> None:
    """The "same partition" of the benchmark: only batches may differ."""
    kept = tenants(3)
    found = _run(create(name, problem(), LawModel(), partition=kept), LawPlant(), 20)
    for window, _ in found:
        used = window.point.configuration.tenants
        assert [(t.model, t.share_pct) for t in used] == [(t.model, t.share_pct) for t in kept]


def test_an_unknown_name_is_refused() -> None:
    """The message lists the names."""
    with pytest.raises(ValueError, match="choose from model, pctodl"):
        create("pid", problem(), LawModel())


def test_pctodl_as_published_never_rests() -> None:
    """Defect 11 is reproduced: in 100 windows without noise, the clock changes in each one."""
    found = _run(PctoDl(problem(), LawModel(), faithful=True), LawPlant(), 140)[40:]
    assert _changes(_clocks(found)) == 99


def test_pctodl_mended_rests() -> None:
    """Defect 11 is mended: in 100 windows without noise, the clock does not change."""
    found = _run(PctoDl(problem(), LawModel()), LawPlant(), 140)[40:]
    assert _changes(_clocks(found)) == 0
    assert share_above(found) == 0.0


def test_pctodl_mended_controls_the_mean() -> None:
    """Defect 12 is mended: readings 10 % above the mean lower the published clock alone."""
    ends = {
        faithful: _clocks(
            _run(PctoDl(problem(), LawModel(), faithful=faithful), LawPlant(peak=1.1), 40)
        )[-1]
        for faithful in (False, True)
    }
    plain = _clocks(_run(PctoDl(problem(), LawModel()), LawPlant(), 40))[-1]
    assert ends[False] == plain
    assert ends[True] < plain - 30.0


def test_pctodl_mended_rounds_clocks_down() -> None:
    """Defect 5 is mended: the first clock is not above the inverse of its law."""
    controller = PctoDl(problem(), LawModel(), partition=tenants(4))
    point = controller.start(100.0, LawPlant().abilities)
    low_w, high_w = (
        LawModel().predict(Configuration(tenants=tenants(4), sm_mhz=mhz)).power_w.value
        for mhz in (CLOCKS[0], CLOCKS[-1])
    )
    wanted = 300.0 + 1200.0 * ((100.0 - low_w) / (high_w - low_w)) ** (1.0 / 1.2)
    assert point.configuration.sm_mhz == max(mhz for mhz in CLOCKS if mhz <= wanted)


def test_pctodl_plans_again_for_another_cap() -> None:
    """Of two caps, each has the tenants of its own greedy plan."""
    found = _run(PctoDl(problem(), LawModel()), LawPlant(), 40, (0.0, 70.0), (20.0, 200.0))
    assert found[0][0].point.configuration.tenants != found[-1][0].point.configuration.tenants


def test_pctodl_without_a_plan_for_a_new_cap_keeps_its_tenants() -> None:
    """At 20 W there is no plan: the tenants stay at the lowest clock, and ``degraded`` says so."""
    controller = PctoDl(problem(), LawModel())
    found = _run(controller, LawPlant(), 40, (0.0, _CAP_W), (20.0, 20.0))
    assert found[-1][0].point.configuration.tenants == found[0][0].point.configuration.tenants
    assert _clocks(found)[-1] == CLOCKS[0]
    assert "power cap" in controller.degraded
    controller.cap_changed(_CAP_W)
    assert controller.degraded == ""


def test_the_bounds_of_batchdvfs_begin_again_with_another_cap() -> None:
    """Defect 2: after a bisection down to small batches, a higher cap reaches the largest one."""
    controller = BatchDvfs(problem(), LawModel(), law="pctodl")
    found = _run(controller, LawPlant(), 200, (0.0, 70.0), (100.0, 290.0))
    batches = [window.point.configuration.tenants[0].batch for window, _ in found]
    assert batches[99] < 64
    assert batches[-1] > 200


def test_the_authors_law_acts_every_3_s_on_the_highest_power() -> None:
    """Below 80 % of the cap, the batch becomes the middle of it and the largest after 3 windows."""
    controller = BatchDvfs(problem(), LawModel())
    point = controller.start(_CAP_W, LawPlant().abilities)
    batches = []
    for at in range(6):
        point = controller.step(_window(point, 100.0, float(at)))
        batches.append(point.configuration.tenants[0].batch)
    assert batches == [1, 1, 128, 128, 128, 192]


def test_the_authors_law_holds_between_80_and_100_percent_of_the_cap() -> None:
    """At 130 of 150 W nothing changes; one window above the cap halves the batch."""
    controller = BatchDvfs(problem(), LawModel(), partition=tenants(1, 100.0, 200))
    point = controller.start(_CAP_W, LawPlant().abilities)
    powers = [130.0] * 5 + [151.0]
    for at, power_w in enumerate(powers):
        before = point
        point = controller.step(_window(point, power_w, float(at)))
        assert (point == before) == (at < 5)
    assert point.configuration.tenants[0].batch == 100


def test_the_authors_law_has_ten_clocks_and_starts_at_the_sixth() -> None:
    """Ladders of other GPUs are reduced to ten clocks."""
    point = BatchDvfs(problem(), LawModel()).start(_CAP_W, LawPlant().abilities)
    assert point.configuration.sm_mhz == CLOCKS[5 * 80 // 9]


@pytest.mark.parametrize(
    ("name", "memory_gib"), [("morak", 4.0), ("batchdvfs", 2.0), ("powercap", 2.0)]
)
def test_batches_fit_into_the_memory(name: str, memory_gib: float) -> None:
    """With memory for 100 samples of each tenant, no law has a larger batch."""
    limited = problem(memory_gib=memory_gib, footprints={"net": Footprint(1.0, 0.01)})
    found = _run(create(name, limited, LawModel()), LawPlant(), 60, (0.0, 290.0))
    batches = {one.batch for window, _ in found for one in window.point.configuration.tenants}
    assert 60 < max(batches) <= 100


def test_a_law_that_does_not_exist_is_refused() -> None:
    """The message lists the laws."""
    with pytest.raises(ValueError, match="authors, pctodl"):
        BatchDvfs(problem(), LawModel(), law="clipper")  # type: ignore[arg-type]


def test_morak_has_two_tenants_and_increases_the_batch_by_one() -> None:
    """Below the cap, without a latency limit, the batch grows by one sample in each window."""
    controller = Morak(problem(), LawModel())
    point = controller.start(_CAP_W, LawPlant().abilities)
    assert [one.share_pct for one in point.configuration.tenants] == [40.0, 40.0]
    point = controller.step(_window(point, 100.0))
    assert {one.batch for one in point.configuration.tenants} == {97}


@pytest.mark.parametrize(("power_w", "steps"), [(185.0, 10), (170.0, 5), (160.0, 2), (153.5, 1)])
def test_morak_has_larger_steps_farther_from_the_cap(power_w: float, steps: int) -> None:
    """More than 20, 10, 5 or 2 % above the cap, the clock is 10, 5, 2 or 1 steps lower."""
    controller = Morak(problem(), LawModel())
    point = controller.start(_CAP_W, LawPlant().abilities)
    after = controller.step(_window(point, power_w))
    before_mhz, after_mhz = point.configuration.sm_mhz or 0.0, after.configuration.sm_mhz or 0.0
    assert before_mhz - after_mhz == 15.0 * steps


def test_morak_changes_the_clock_if_latencies_are_long() -> None:
    """Above 90 % of the latency limit, the batch stays and the clock rises."""
    controller = Morak(problem(max_latencies_ms={"net": 10.0}), LawModel())
    point = controller.start(_CAP_W, LawPlant().abilities)
    after = controller.step(replace(_window(point, 148.0 * 0.98), latency_p95_ms=9.5))
    assert after.configuration.tenants == point.configuration.tenants
    assert (after.configuration.sm_mhz or 0.0) > (point.configuration.sm_mhz or 0.0)


def test_directcap_sets_the_limit_and_leaves_the_clock() -> None:
    """The plan stays when the cap changes; the limit is the cap."""
    found = _run(DirectCap(problem(), LawModel()), LawPlant(), 40, (0.0, _CAP_W), (20.0, 120.0))
    first, last = found[0][0].point.configuration, found[-1][0].point.configuration
    assert (first.power_limit_w, last.power_limit_w) == (_CAP_W, 120.0)
    assert first.tenants == last.tenants
    assert last.sm_mhz is None


def test_directcap_explores_memory_clocks_after_five_windows_above_the_cap() -> None:
    """It takes one step down, tries all for five windows each, and keeps the fastest below."""
    fast = {5001.0: 1.0, 7001.0: 3.0, 9501.0: 2.0}
    plant = LawPlant(power=lambda t_s: 1.1 if t_s < 5.0 else 1.0)
    plant._rates = lambda one: fast[one.mem_mhz or 0.0]
    found = _run(DirectCap(problem(), LawModel()), plant, 30)
    clocks = [window.point.configuration.mem_mhz for window, _ in found]
    assert clocks[:5] == [9501.0] * 5
    assert clocks[5:20] == [7001.0] * 5 + [5001.0] * 5 + [9501.0] * 5
    assert clocks[20:] == [7001.0] * 10


def test_the_power_limit_alone_is_another_controller_than_directcap() -> None:
    """It needs no plan: one tenant with the largest batch has the whole GPU."""
    point = PowerLimit(problem(), LawModel()).start(_CAP_W, LawPlant().abilities)
    assert point.configuration.tenants == tenants(1, 100.0, 64)
    assert point.configuration.power_limit_w == _CAP_W
    assert point.configuration.mem_mhz is None


def test_a_cap_below_the_lowest_limit_is_reported() -> None:
    """The card accepts 80 W and more: the limit is 80 W, and ``degraded`` says so."""
    controller = PowerLimit(problem(), LawModel())
    point = controller.start(60.0, LawPlant().abilities)
    assert point.configuration.power_limit_w == 80.0
    assert "60 W" in controller.degraded
    controller.cap_changed(150.0)
    assert controller.degraded == ""

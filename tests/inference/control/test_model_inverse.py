"""Our controller, on a plant by a law and on simulated GPUs."""

from dataclasses import replace
from itertools import pairwise

import pytest

from energy_callbacks.inference.control.loop import CapSchedule, run, share_above
from energy_callbacks.inference.control.model_inverse import ModelInverse
from energy_callbacks.inference.control.protocols import Abilities, Need, Window
from energy_callbacks.inference.records import Configuration, MeasuredWindow
from tests.inference.control.law import LawModel, LawPlant, power_w, problem, rate, tenants

_CAP_W = 150.0


def _controller(**options: object) -> ModelInverse:
    return ModelInverse(problem(), LawModel(), **options)  # type: ignore[arg-type]


def _run(
    plant: LawPlant,
    windows: int,
    *caps: tuple[float, float],
    controller: ModelInverse | None = None,
) -> list[tuple[Window, float]]:
    schedule = CapSchedule(caps or ((0.0, _CAP_W),))
    return list(run(controller or _controller(), plant, schedule, windows=windows))


def _highest_w(windows: list[tuple[Window, float]]) -> float:
    return max(window.power_mean_w for window, _ in windows)


def test_the_partition_is_the_one_with_the_most_throughput_below_the_cap() -> None:
    """By the law, work at a low clock needs least power: the largest batch on the whole GPU."""
    last, _ = _run(LawPlant(), 20)[-1]
    assert rate(last.point.configuration) == 20.0 * 100.0 * 64.0 / 80.0


def test_power_above_the_prediction_is_corrected_within_some_windows() -> None:
    """The power is 20 % higher than predicted: at most 3 windows are above, then none."""
    found = _run(LawPlant(power=lambda t_s: 1.2), 40)
    assert sum(window.power_mean_w > _CAP_W for window, _ in found) <= 3
    assert _highest_w(found[5:]) <= _CAP_W
    assert found[-1][0].power_mean_w > 0.96 * _CAP_W


def test_power_below_the_prediction_is_used() -> None:
    """The power is 20 % lower than predicted: it comes within 4 % of the cap, and never above."""
    found = _run(LawPlant(power=lambda t_s: 0.8), 40)
    assert share_above(found) == 0.0
    assert found[-1][0].power_mean_w > 0.96 * _CAP_W


def test_a_window_above_the_cap_lowers_the_clock_at_once() -> None:
    """The power rises by 15 %: the next clock is lower, and 3 windows later the cap holds."""
    found = _run(LawPlant(power=lambda t_s: 1.15 if t_s >= 30.0 else 1.0), 60)
    clocks = [window.point.configuration.sm_mhz or 0.0 for window, _ in found]
    assert found[30][0].power_mean_w > _CAP_W
    assert clocks[31] < clocks[30]
    assert _highest_w(found[33:]) <= _CAP_W


def test_one_window_above_the_cap_lowers_the_clock_even_if_it_is_noise() -> None:
    """With noise of 2 %, one window has 10 % more: the next clock is lower, and it comes back."""
    found = _run(LawPlant(noise=0.02, power=lambda t_s: 1.1 if t_s == 200.0 else 1.0), 400)
    clocks = [window.point.configuration.sm_mhz or 0.0 for window, _ in found]
    assert found[200][0].power_mean_w > _CAP_W
    assert clocks[201] < clocks[200]
    assert clocks[-1] >= clocks[200]


def test_a_lower_cap_holds_from_the_first_window() -> None:
    """Power is known by then: after 150 W, the first window with 110 W is below 110 W."""
    found = _run(LawPlant(noise=0.002), 60, (0.0, _CAP_W), (30.0, 110.0))
    assert found[29][0].power_mean_w > 0.95 * _CAP_W
    assert _highest_w(found[30:]) <= 110.0
    assert found[-1][0].power_mean_w > 0.95 * 110.0


@pytest.mark.parametrize("noise", [0.002, 0.01])
def test_the_margin_is_that_of_the_noise(noise: float) -> None:
    """At most 2 % of 400 windows are above the cap, and the mean is within 3.5 times the noise."""
    found = _run(LawPlant(noise=noise), 400)[10:]
    mean_w = sum(window.power_mean_w for window, _ in found) / len(found)
    assert share_above(found) <= 0.02
    assert mean_w > _CAP_W * (1.0 - 3.5 * noise - 0.02)


def test_the_clock_rests() -> None:
    """Defect 11: without a change, the clock changes at most twice in 200 windows of noise."""
    found = _run(LawPlant(noise=0.003), 260)[60:]
    clocks = [window.point.configuration.sm_mhz for window, _ in found]
    assert sum(one != other for one, other in pairwise(clocks)) <= 2


def test_the_largest_reading_has_no_effect() -> None:
    """Defect 12: readings that are 10 % above the mean of their window change nothing."""
    plain, peaked = (LawPlant(peak=peak) for peak in (1.0, 1.1))
    assert [p for p, _ in _run(plain, 20)][-1].point == [p for p, _ in _run(peaked, 20)][-1].point


def test_no_processes_are_tried_that_promise_a_loss() -> None:
    """Defect 17: others may have the same throughput by the law, with large errors: none starts."""
    controller = ModelInverse(problem(), LawModel(half=0.3))
    found = _run(LawPlant(noise=0.002), 200, controller=controller)
    kinds = {tuple(t.share_pct for t in w.point.configuration.tenants) for w, _ in found}
    assert len(kinds) == 1


def test_a_partition_that_is_slower_than_predicted_is_replaced() -> None:
    """Several tenants have 70 % of the predicted throughput: one tenant replaces them for good."""

    def contended(one: Configuration) -> float:
        return 0.7 if len(one.tenants) > 1 else 1.0

    found = _run(LawPlant(rates=contended), 60)
    counts = [len(window.point.configuration.tenants) for window, _ in found]
    assert counts[0] > 1
    assert set(counts[30:]) == {1}


def test_the_best_measured_partition_stays() -> None:
    """Several tenants are slower the more there are: the fastest of those that were tried stays."""

    def contended(one: Configuration) -> float:
        return 0.8 ** len(one.tenants)

    found = _run(LawPlant(rates=contended), 100)
    counts = [len(window.point.configuration.tenants) for window, _ in found]
    assert len(set(counts[:40])) > 2
    assert set(counts[40:]) == {1}


@pytest.mark.parametrize(
    ("can", "text"),
    [
        ({"partition", "batch", "limit"}, "power limit follows"),
        ({"partition", "batch", "duty"}, "tenants pause"),
        ({"partition", "batch"}, "in steps"),
        ({"partition", "duty"}, "all are 64"),
    ],
)
def test_without_clocks_it_says_what_it_uses_and_holds_the_cap(can: set[Need], text: str) -> None:
    """With limits, with duty, or with partitions alone, the cap holds and ``degraded`` says how."""
    controller = _controller()
    found = _run(LawPlant(frozenset(can), noise=0.002), 60, controller=controller)
    assert text in controller.degraded
    assert share_above(found[10:]) <= 0.02
    assert found[-1][0].throughput_per_s > 780.0


def test_with_all_abilities_nothing_is_degraded() -> None:
    """``degraded`` is empty if everything that is needed can be changed."""
    controller = _controller()
    controller.start(_CAP_W, LawPlant().abilities)
    assert controller.degraded == ""


def test_a_given_partition_is_kept() -> None:
    """With ``partition``, only the level changes."""
    kept = tenants(2, share_pct=25.0, batch=16)
    found = _run(LawPlant(), 60, (0.0, 80.0), (30.0, 65.0), controller=_controller(partition=kept))
    assert {window.point.configuration.tenants for window, _ in found} == {kept}
    assert share_above(found) == 0.0


def test_without_the_ability_to_change_partitions_one_must_be_given() -> None:
    """A controller that cannot change the tenants refuses to guess them."""
    with pytest.raises(ValueError, match="give the tenants"):
        _controller().start(_CAP_W, LawPlant(frozenset({"clock"})).abilities)


def test_a_cap_that_cannot_be_reached_gives_the_lowest_power() -> None:
    """Below 50 W nothing works: duty and clock are the lowest."""
    plant = LawPlant()
    found = _run(plant, 10, (0.0, 40.0))
    assert found[-1][0].point.duty == 0.05
    assert power_w(found[-1][0].point.configuration) < 70.0


def test_other_objectives_are_refused() -> None:
    """A controller maximises throughput; least energy is refused at construction."""
    with pytest.raises(ValueError, match="maximises throughput"):
        ModelInverse(problem(objective="energy"), LawModel())


def _measured(configuration: Configuration, rate_per_s: float, power_w: float) -> MeasuredWindow:
    return MeasuredWindow(
        configuration=configuration,
        source="measured",
        throughput_per_s=rate_per_s,
        power_mean_w=power_w,
    )


def test_partitions_that_were_measured_are_known() -> None:
    """A partition that was twice as fast as predicted is the first one, unless it is too hot."""
    small = Configuration(tenants=tenants(2, 25.0, 16))
    can: frozenset[Need] = frozenset({"partition", "batch"})
    for power, is_chosen in ((0.9 * _CAP_W, True), (1.1 * _CAP_W, False)):
        controller = _controller(measured=[_measured(small, 1e5, power)])
        point = controller.start(_CAP_W, Abilities(can=can))
        assert (point.configuration.tenants == small.tenants) is is_chosen


def test_a_measurement_at_another_limit_says_nothing() -> None:
    """It would be taken for one without a limit."""
    slow = Configuration(tenants=tenants(2, 25.0, 16), power_limit_w=100.0)
    controller = _controller(measured=[_measured(slow, 1e5, 90.0)])
    point = controller.start(_CAP_W, Abilities(can=frozenset({"partition", "batch"})))
    assert point.configuration.tenants != slow.tenants


@pytest.mark.parametrize("share_pct", [25.0, 20.0])
def test_tenants_that_cannot_be_loaded_are_not_asked_for_again(share_pct: float) -> None:
    """It returns to the tenants that go on, or chooses others if these are no candidates."""
    plant, controller = LawPlant(), _controller()
    asked = controller.start(_CAP_W, plant.abilities)
    plant.apply(replace(asked, configuration=Configuration(tenants=tenants(4, share_pct, 4))))
    for _ in range(20):
        window = replace(plant.window(1.0), refused=asked.configuration.tenants)
        point = controller.step(window)
        assert point.configuration.tenants != asked.configuration.tenants
        plant.apply(point)


def test_power_far_above_the_cap_comes_down_in_proportion() -> None:
    """A window with 40 % too much is followed by one that the law predicts below the cap."""
    found = _run(LawPlant(power=lambda t_s: 1.4 if t_s >= 30.0 else 1.0), 60)
    assert found[30][0].power_mean_w > 1.3 * _CAP_W
    assert _highest_w(found[32:]) <= _CAP_W


def test_windows_with_pauses_are_noisier_from_the_start() -> None:
    """Without clocks and limits, 3 % of noise is expected: no early window is above the cap."""
    can: frozenset[Need] = frozenset({"partition", "batch", "duty"})
    fixed = tenants(1, 100.0, 64)
    for seed in range(5):
        plant = LawPlant(can, noise=0.03, seed=seed)
        found = _run(plant, 20, (0.0, 80.0), controller=_controller(partition=fixed))
        assert found[-1][0].point.duty < 1.0
        assert share_above(found[1:]) == 0.0


_PAUSES: frozenset[Need] = frozenset({"partition", "batch", "duty", "budget"})


def test_the_plant_keeps_the_cap_if_only_pauses_can() -> None:
    """Without clocks and limits, each point has the cap as its budget; with clocks, none has."""
    controller = _controller()
    assert controller.start(100.0, Abilities(can=_PAUSES)).budget_w == 100.0
    assert controller.cap_changed(80.0).budget_w == 80.0
    plant = LawPlant(_PAUSES | {"clock"})
    assert controller.start(100.0, plant.abilities).budget_w is None


def test_with_a_budget_the_margin_is_smaller() -> None:
    """Noise of 3 % ends some windows early, instead of a margin of 7 % in all of them."""
    fixed = tenants(1, 100.0, 64)
    found = {}
    for can in (_PAUSES, _PAUSES - {"budget"}):
        plant = LawPlant(can, noise=0.03, seed=1)
        *_, last = _run(plant, 40, (0.0, 80.0), controller=_controller(partition=fixed))
        found["budget" in can] = last[0].point.duty
    assert found[True] > found[False]


def test_windows_that_end_with_a_pause_are_learned_without_it() -> None:
    """A pause of 20 % changes power and throughput of the window, and nothing of the next point."""
    points = []
    for paused in (0.0, 0.2):
        controller = _controller(partition=tenants(1, 100.0, 64))
        point = controller.start(80.0, Abilities(can=_PAUSES))
        for number in range(5):
            work = 1.0 - paused
            window = Window(
                start_s=float(number),
                end_s=number + 1.0,
                point=point,
                is_steady=True,
                power_mean_w=50.0 + work * 160.0 * point.duty,
                power_max_w=210.0,
                throughput_per_s=work * 1600.0 * point.duty,
                paused=paused,
            )
            point = controller.step(window)
        points.append(point)
    assert points[0] == points[1]
    assert points[0].duty < 1.0


def test_power_above_the_cap_is_learned_while_tenants_start() -> None:
    """Such a window is not steady: the next level is lower, and stays lower."""
    controller = _controller(partition=tenants(1, 100.0, 64))
    first = controller.start(_CAP_W, LawPlant().abilities)
    window = Window(
        start_s=0.0,
        end_s=1.0,
        point=first,
        is_steady=False,
        power_mean_w=1.1 * _CAP_W,
        power_max_w=1.1 * _CAP_W,
        throughput_per_s=0.0,
    )
    lower = controller.step(window)
    quiet = replace(window, point=lower, power_mean_w=0.9 * _CAP_W)
    later = controller.step(quiet)
    clocks = [one.configuration.sm_mhz or 0.0 for one in (first, lower, later)]
    assert clocks[1] < clocks[0]
    assert clocks[2] < clocks[0]

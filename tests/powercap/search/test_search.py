"""The search for the best setting, on simulated cards."""

import numpy as np
import pytest

from energy_callbacks.powercap.search.objectives import (
    MaxSlowdown,
    MinEnergy,
    Objective,
    PowerCap,
    ZeusCost,
)
from energy_callbacks.powercap.search.search import PowerSearch
from energy_callbacks.powercap.settings import KnobRange
from tests.powercap.search.simulated import LIMITS, Card, run, settings

ALL_LIMITS = np.arange(200.0, 701.0, 5.0)


def best_cost(card: Card, objective: Objective) -> float:
    """Return the least cost of all limits that meet the constraint."""
    return min(
        cost
        for limit in ALL_LIMITS
        if (cost := cost_of(card, objective, float(limit), slack=0.0)) is not None
    )


def cost_of(card: Card, objective: Objective, limit: float, slack: float = 0.005) -> float | None:
    """Return the true cost of a limit; ``None`` if it exceeds the constraint by over 0.5 points."""
    found, trial = card.truth(700.0), card.truth(limit)
    match objective:
        case MaxSlowdown(fraction=fraction):
            return trial.step_j if trial.step_s / found.step_s <= 1.0 + slack + fraction else None
        case PowerCap(watts=watts):
            return trial.step_s if trial.power_w <= (1.0 + slack) * watts else None
        case ZeusCost(eta=eta, max_power_w=max_power_w):
            return eta * trial.step_j + (1.0 - eta) * max_power_w * trial.step_s
        case _:
            return trial.step_j


@pytest.mark.parametrize(
    "objective", [MaxSlowdown(0.05), MinEnergy(), ZeusCost(0.5, 700.0), PowerCap(400.0)]
)
def test_the_chosen_limit_is_nearly_the_best(objective: Objective) -> None:
    """Its cost is within 2 % of the best, after six windows that begin at the found one."""
    card = Card(LIMITS)
    search = PowerSearch(objective, LIMITS, found=700.0)
    asked = run(search, card)
    assert asked[0] == 700.0
    assert len(asked) == 6
    answer = search.answer()
    cost = cost_of(card, objective, answer.chosen)
    assert cost is not None
    assert cost < 1.02 * best_cost(card, objective)
    assert answer.windows == len(asked)


def test_the_answer_says_what_the_chosen_limit_changes() -> None:
    """The intervals hold the truth."""
    card = Card(LIMITS)
    search = PowerSearch(MaxSlowdown(0.05), LIMITS, found=700.0)
    run(search, card)
    answer = search.answer()
    found, chosen = card.truth(700.0), card.truth(answer.chosen)
    slowdown, saving = chosen.step_s / found.step_s - 1.0, 1.0 - chosen.step_j / found.step_j
    assert answer.slowdown.low < slowdown < answer.slowdown.high
    assert answer.saving.low < saving < answer.saving.high
    assert answer.saving.value > 0.03
    assert [point.value for point in answer.curve] == sorted(p.value for p in answer.curve)
    held = [p.step_j.low <= card.truth(p.value).step_j <= p.step_j.high for p in answer.curve]
    assert np.mean(held) > 0.9


def test_a_setting_without_a_window_near_it_is_predicted() -> None:
    """The interval from the other windows holds the truth."""
    card = Card(LIMITS)
    search, others = (PowerSearch(MaxSlowdown(0.05), LIMITS, found=700.0) for _ in range(2))
    asked = run(search, card)
    chosen = search.answer().chosen
    for value in asked:
        if abs(value / chosen - 1.0) > 0.03:
            others.add(card.window(value))
    [point] = [point for point in others.answer().curve if point.value == chosen]
    assert point.step_j.low < card.truth(chosen).step_j < point.step_j.high


def test_energies_of_several_cards_are_added() -> None:
    """Eight cards have the same best limit as one."""
    chosen = []
    for cards in (1, 8):
        search = PowerSearch(MaxSlowdown(0.05), LIMITS, found=700.0, cards=cards)
        run(search, Card(LIMITS, cards))
        chosen.append(search.answer().chosen)
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    ("knob", "objective", "windows"),
    [
        (settings("limit", 100.0, 250.0), MinEnergy(), 4),
        (settings("limit", 100.0, 300.0), MinEnergy(), 6),
        (settings("clock", 210.0, 1980.0, *np.arange(210.0, 1981.0, 15.0)), MaxSlowdown(0.05), 6),
        (settings("memory_clock", 1593.0, 2619.0, 1593.0, 2619.0), MinEnergy(), 4),
        (settings("duty", 0.2, 1.0), PowerCap(300.0), 6),
    ],
)
def test_every_knob_is_searched(knob: KnobRange, objective: Objective, windows: int) -> None:
    """The number of windows depends on the range, and all settings are allowed ones."""
    search = PowerSearch(objective, knob, found=knob.highest)
    asked = run(search, Card(knob, noise=0.01))
    assert len(asked) == windows
    for value in [*asked, search.answer().chosen]:
        knob.check(value)


def test_a_clock_saves_energy() -> None:
    """At most 5 % slower is a lower clock, with less energy."""
    clocks = settings("clock", 210.0, 1980.0, *np.arange(210.0, 1981.0, 15.0))
    search = PowerSearch(MaxSlowdown(0.05), clocks, found=1980.0)
    run(search, Card(clocks))
    answer = search.answer()
    assert answer.chosen < 1980.0
    assert answer.slowdown.value < 0.055
    assert answer.saving.low > 0.03


def test_duty_cycling_lowers_the_mean_power() -> None:
    """The chosen duty cycle meets the cap, and hardly more."""
    duty = settings("duty", 0.1, 1.0)
    card = Card(duty)
    search = PowerSearch(PowerCap(300.0), duty, found=1.0)
    run(search, card)
    assert 285.0 < card.truth(search.answer().chosen).power_w < 301.5


def test_a_drift_begins_the_search_again() -> None:
    """Earlier windows no longer count."""
    card = Card(LIMITS)
    search = PowerSearch(MinEnergy(), LIMITS, found=700.0)
    search.add(card.window(700.0))
    search.add(card.window(350.0))
    search.reopen(card.window(350.0))
    assert search.answer().windows == 1
    assert search.next_value() is not None


def test_a_search_without_windows_has_no_answer() -> None:
    """It asks for the found setting first."""
    search = PowerSearch(MinEnergy(), LIMITS, found=650.0)
    assert search.next_value() == 650.0
    with pytest.raises(RuntimeError, match="no window"):
        search.answer()

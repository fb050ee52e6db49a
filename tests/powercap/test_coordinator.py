"""What the ranks have measured is combined, and cards that differ are refused."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.coordinator import Decision, cards_of, decision_after, reduced
from energy_callbacks.powercap.exchange import Exchange, FolderExchange, MemoryExchange
from energy_callbacks.powercap.settings import KnobRange


def node(*ranges: KnobRange) -> dict[str, Any]:
    """The record of a leader."""
    return {
        "host": "a",
        "round": 0,
        "highest_w": 700.0 * len(ranges),
        "ranges": {f"GPU-{number}": asdict(one) for number, one in enumerate(ranges)},
    }


def limits(lowest: float = 200.0, highest: float = 700.0, present: float = 700.0) -> KnobRange:
    """The limits of a card."""
    return KnobRange(knob="limit", lowest=lowest, highest=highest, present=present, default=highest)


def clocks(*steps: float) -> KnobRange:
    """The clocks of a card, which are not locked."""
    return KnobRange(
        knob="clock", lowest=steps[0], highest=steps[-1], present=None, default=None, steps=steps
    )


def window(steps: int, duration_s: float, **energy_j: float | None) -> dict[str, Any]:
    """A window of a rank."""
    return {
        "steps": steps,
        "duration_s": duration_s,
        "step_s_stderr": 0.001,
        "energy_j": energy_j,
        "energy_stderr_j": dict.fromkeys(energy_j, 3.0),
    }


def test_the_range_is_what_all_cards_accept() -> None:
    """Two hosts with three cards."""
    cards = cards_of([node(limits(), limits(lowest=250.0)), node(limits(highest=700.0))])
    assert (cards.settings.lowest, cards.settings.highest, cards.found) == (250.0, 700.0, 700.0)
    assert (cards.count, cards.highest_w) == (3, 2100.0)


def test_clocks_that_are_not_locked_count_as_the_highest() -> None:
    """Only clocks that both cards have are used."""
    cards = cards_of([node(clocks(210.0, 1000.0, 1980.0), clocks(210.0, 1005.0, 1980.0))])
    assert cards.settings.steps == (210.0, 1980.0)
    assert cards.found == 1980.0


def test_cards_with_different_limits_are_refused() -> None:
    """The message has the values, and what to do."""
    with pytest.raises(ActuatorError, match=r"different values of limit \(600, 700\); set the sam"):
        cards_of([node(limits(), limits(present=600.0))])


def test_the_slowest_rank_counts_and_energies_are_added() -> None:
    """10 steps in 1 s and 8 steps in 1 s: 0.125 s; 20 J/step and 30 J/step."""
    trial = reduced(300.0, [window(10, 1.0, a=200.0), window(8, 1.0, b=240.0)])
    assert trial is not None
    assert (trial.value, trial.step_s) == (300.0, 0.125)
    assert trial.step_j == pytest.approx(50.0)
    assert trial.step_j_stderr == pytest.approx((0.3**2 + 0.375**2) ** 0.5)


def test_a_shared_card_counts_once() -> None:
    """Two ranks have measured the same card."""
    trial = reduced(300.0, [window(10, 1.0, a=200.0), window(10, 1.0, a=200.0)])
    assert trial is not None
    assert trial.step_j == pytest.approx(20.0)


@pytest.mark.parametrize("energy_j", [None, 0.0])
def test_an_unknown_energy_is_no_trial(energy_j: float | None) -> None:
    """One card without readings is enough."""
    assert reduced(300.0, [window(10, 1.0, a=energy_j)]) is None


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_records_are_replaced_and_found(kind: str, tmp_path: Path) -> None:
    """Each exchange: by the beginning of their names; a decision only if it is newer."""
    exchange: Exchange = MemoryExchange() if kind == "memory" else FolderExchange(tmp_path / "x")
    assert exchange.read("rank-") == {}
    exchange.post("rank-0", {"round": 1})
    exchange.post("rank-0", {"round": 2})
    exchange.post("node-a", {"round": 2})
    assert exchange.read("rank-") == {"rank-0": {"round": 2}}
    decision = Decision(round=3, value=None, why="search")
    exchange.post("decision", asdict(decision))
    assert decision_after(exchange, 2) == decision
    assert decision_after(exchange, 3) is None

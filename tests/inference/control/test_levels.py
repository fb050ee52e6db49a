"""Levels of clock, limit and duty."""

import pytest

from energy_callbacks.inference.control.levels import LEAST_DUTY, Level, levels
from energy_callbacks.inference.control.protocols import Abilities
from tests.inference.control.law import CLOCKS, LawPlant


def test_clocks_come_first() -> None:
    """With clocks and limits, levels are clocks."""
    found = levels(LawPlant(frozenset({"clock", "limit"})).abilities)
    assert [one.sm_mhz for one in found] == list(CLOCKS)


def test_duties_are_below_the_lowest_clock() -> None:
    """With clocks and duty, the lowest levels pause at the lowest clock."""
    found = levels(LawPlant(frozenset({"clock", "duty"})).abilities)
    parts = [one for one in found if one.duty < 1.0]
    assert found[: len(parts)] == tuple(parts)
    assert {one.sm_mhz for one in parts} == {CLOCKS[0]}
    assert parts[0].duty == LEAST_DUTY


def test_limits_replace_clocks() -> None:
    """Without clocks, levels are limits up to the highest one, every 2 W."""
    found = [one.power_limit_w for one in levels(LawPlant(frozenset({"limit"})).abilities)]
    assert found[0] == 80.0
    assert found[-2:] == [298.0, 300.0]


def test_without_any_ability_there_is_one_level() -> None:
    """Nothing can be changed: the level is the GPU as it is."""
    assert levels(Abilities(can=frozenset({"batch"}))) == (Level(),)


def test_a_clock_needs_its_range() -> None:
    """A plant that can change clocks must state them."""
    with pytest.raises(ValueError, match="does not state its range"):
        levels(Abilities(can=frozenset({"clock"})))

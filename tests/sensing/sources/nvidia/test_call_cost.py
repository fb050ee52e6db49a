"""Cheap and expensive calls, delays by the interpreter's lock, and calls that become expensive."""

import random

from energy_callbacks.sensing.sources.nvidia.call_cost import CallCost

CHEAP_S, H200_S = 12e-6, 2.6e-3


def after(*calls_s: float) -> CallCost:
    """Return the cost after these calls."""
    cost = CallCost()
    for call_s in calls_s:
        cost.add(call_s)
    return cost


def test_unknown_calls_are_not_cheap() -> None:
    """Eight calls are not enough."""
    assert not after(*[CHEAP_S] * 8).is_cheap
    assert after(*[CHEAP_S] * 8).cost_s is None


def test_median_of_the_first_calls() -> None:
    """A few slow calls among the first do not count."""
    cost = after(*[CHEAP_S] * 6, 0.02, 0.004, 0.005)

    assert cost.is_cheap
    assert cost.cost_s == CHEAP_S
    assert not after(*[H200_S] * 9).is_cheap


def test_calls_that_wait_for_the_interpreter_stay_cheap() -> None:
    """Delays of up to 5 ms in nine of ten calls do not make them expensive."""
    random.seed(1)
    cost = after(*[CHEAP_S] * 9)
    for number in range(1000):
        cost.add(CHEAP_S + (random.uniform(0.0, 0.005) if number % 10 else 0.0))

    assert cost.is_cheap


def test_calls_that_become_expensive() -> None:
    """After 32 expensive calls in a row the counter is read rarely."""
    cost = after(*[CHEAP_S] * 9, *[H200_S] * 31)
    assert cost.is_cheap

    cost.add(H200_S)
    assert not cost.is_cheap

"""An energy counter that may be wrong is used only while it agrees with the power readings."""

from collections.abc import Callable

import numpy as np
import pytest

from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from tests.sensing.loads import Load, Staircase, channel, constant, feed, joules, readings_of

COUNTER = channel("energy", "counter", is_checked=True)
GAUGE = channel("power", "gauge", relative_error=0.1)
# Both are read together, at the common reading moments.
TIMES_S = np.arange(0.0, 60.0, 0.8)


def measured(load: Load, counted: Callable[[float, float], float]) -> EnergyCurve:
    """The curve of a GPU whose counter shows ``counted(t_s, joules)``."""
    readings = readings_of(load, GAUGE, TIMES_S)
    for reading in readings_of(load, COUNTER, TIMES_S):
        readings.append(Reading(COUNTER, reading.t_s, counted(reading.t_s, reading.value)))
    curve = EnergyCurve([GAUGE, COUNTER])
    feed(curve, readings)
    curve.finish()
    return curve


@pytest.mark.parametrize("gain", [0.0, 0.4, 0.7, 0.85, 1.15, 1.3, 1.9, 30.0])
def test_a_counter_that_is_wrong_by_more_than_a_tenth_is_not_used(gain: float) -> None:
    """Its energy is the integral of the power readings, and the report is told."""
    curve = measured(constant(200.0), lambda _, energy_j: gain * energy_j)
    energy = curve.energy(1.0, 59.0)
    assert joules(energy) == pytest.approx(200.0 * 58.0, rel=1e-9)
    assert energy.method == "power"
    assert energy.coverage == 1.0
    assert curve.disagreements > 0


@pytest.mark.parametrize("gain", [0.95, 1.0, 1.05])
def test_a_counter_that_agrees_is_used_after_ten_seconds(gain: float) -> None:
    """Before, power readings are used; afterwards, the energy is that of the counter."""
    curve = measured(constant(200.0), lambda _, energy_j: gain * energy_j)
    assert curve.energy(0.8, 8.0).method == "power"
    later = curve.energy(16.0, 56.0)
    assert later.method == "counter"
    assert joules(later) == pytest.approx(gain * 200.0 * 40.0, rel=1e-9)
    assert curve.disagreements == 0


def test_a_counter_is_used_though_single_power_readings_miss_the_load() -> None:
    """A load that changes five times between two readings is measured by the counter alone."""
    stairs = Staircase.square(0.31, until_s=70.0)
    power_w = lambda t_s: float(stairs.power_w[stairs._place(np.array([t_s]))[0]])  # noqa: E731
    load = Load("square", power_w, lambda t_s: float(stairs.energy_j(np.array([t_s]))[0]))
    curve = measured(load, lambda _, energy_j: energy_j)
    truth_j = load.energy_j(56.0) - load.energy_j(24.0)
    energy = curve.energy(24.0, 56.0)
    assert energy.method == "counter"
    assert joules(energy) == pytest.approx(truth_j, rel=1e-6)


def test_a_counter_that_becomes_wrong_is_left_and_taken_again() -> None:
    """While it counts 40 % too much, power readings are used; then the counter is used again."""

    def counted(t_s: float, energy_j: float) -> float:
        return energy_j + 80.0 * min(max(t_s - 24.0, 0.0), 12.0)

    curve = measured(constant(200.0), counted)
    assert curve.energy(16.0, 23.0).method == "counter"
    wrong = curve.energy(29.6, 35.2)
    assert wrong.method == "power"
    assert joules(wrong) == pytest.approx(200.0 * 5.6, rel=1e-9)
    assert curve.energy(52.8, 58.4).method == "counter"


def test_without_power_readings_there_is_nothing_to_compare() -> None:
    """A counter alone is used from its first reading."""
    curve = EnergyCurve([COUNTER])
    feed(curve, readings_of(constant(200.0), COUNTER, TIMES_S))
    curve.finish()
    assert joules(curve.energy(0.8, 4.0)) == pytest.approx(640.0, rel=1e-9)

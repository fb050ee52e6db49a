"""An energy counter is used only where its readings are plausible and agree with the power."""

from collections.abc import Callable

import numpy as np
import pytest

from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from tests.sensing.loads import (
    Load,
    Staircase,
    channel,
    constant,
    feed,
    joules,
    measured,
    readings_of,
    step,
)

TIMES_S = np.arange(0.0, 20.001, 0.1)
COUNTER = channel("energy", "counter")
GAUGE = channel("power", "gauge", period_s=0.1)
CHECKED = channel("energy", "counter", is_checked=True)
COARSE = channel("power", "gauge", period_s=0.1, relative_error=0.1)


def test_a_steep_step_does_not_make_a_good_counter_look_broken() -> None:
    """A step late between two readings does not make the counter implausible."""
    curve = measured(step(low_w=20.0, high_w=700.0, at_s=5.09), [GAUGE, COUNTER], TIMES_S, 0.5)
    assert curve.disagreements == 0
    assert joules(curve.energy(5.0, 5.1)) == pytest.approx(0.09 * 20.0 + 0.01 * 700.0, rel=1e-9)


@pytest.mark.parametrize("channels", [[COUNTER], [GAUGE, COUNTER]], ids=["alone", "with power"])
def test_a_counter_that_starts_again_is_not_believed(channels: list[Channel]) -> None:
    """A counter reset adds no energy and is counted as a disagreement."""
    readings = [r for of in channels for r in readings_of(constant(), of, TIMES_S)]
    reset = [
        Reading(r.channel, r.t_s, r.value - 2000.0) if r.channel is COUNTER and r.t_s > 10.05 else r
        for r in readings
    ]
    curve = EnergyCurve(channels)
    feed(curve, reset)
    curve.finish()
    assert curve.disagreements == 1
    hidden_j = 20.0 if channels == [COUNTER] else 0.0
    assert joules(curve.energy(1.0, 19.0)) == pytest.approx(3600.0 - hidden_j, rel=1e-9)
    assert joules(curve.energy(11.0, 19.0)) == pytest.approx(1600.0, rel=1e-9)


def test_a_frozen_counter_is_not_believed() -> None:
    """A frozen counter is replaced by power readings and counted as a disagreement."""
    readings = readings_of(constant(), GAUGE, TIMES_S)
    readings += [Reading(COUNTER, float(t), 5000.0) for t in TIMES_S[::10]]
    curve = EnergyCurve([GAUGE, COUNTER])
    feed(curve, readings)
    curve.finish()
    energy = curve.energy(1.0, 19.0)
    assert joules(energy) == pytest.approx(3600.0, rel=1e-9)
    assert energy.method == "power"
    assert curve.disagreements == 20


@pytest.mark.parametrize("only_once", [True, False])
def test_a_jump_of_the_counter_is_not_believed(only_once: bool) -> None:
    """A jump of the counter by a million joules is not added to the energy."""
    readings = [r for of in (GAUGE, COUNTER) for r in readings_of(constant(), of, TIMES_S)]
    jumped = [
        Reading(r.channel, r.t_s, r.value + 1e6)
        if r.channel is COUNTER and r.t_s > 10.05 and (r.t_s < 10.15 or not only_once)
        else r
        for r in readings
    ]
    curve = EnergyCurve([GAUGE, COUNTER])
    feed(curve, jumped)
    curve.finish()
    assert joules(curve.energy(1.0, 19.0)) == pytest.approx(3600.0, rel=1e-6)
    assert curve.disagreements == (2 if only_once else 1)


def test_an_anchor_of_uncertain_time_waits_for_a_longer_segment() -> None:
    """Known to 20 ms each second: used each three seconds, when that is 1 % of the segment."""
    curve = EnergyCurve([GAUGE, COUNTER])
    settled = set()
    for readings in zip(*[iter(readings_of(constant(), GAUGE, TIMES_S))] * 10, strict=False):
        t_s = readings[-1].t_s
        curve.add([*readings, Reading(COUNTER, t_s, 200.0 * t_s, 0.02)])
        settled.add(round(curve.settled_s or 0.0, 6))
    assert sorted(settled) == pytest.approx([0.0, 3.9, 6.9, 9.9, 12.9, 15.9, 18.9])


def compared(
    load: Load, counted: Callable[[float, float], float], until_s: float = 60.0
) -> EnergyCurve:
    """The curve of a GPU whose counter shows ``counted(t_s, joules)``.

    Counter and power are read together, at the common reading moments.
    """
    times_s = np.arange(0.0, until_s, 0.8)
    readings = readings_of(load, COARSE, times_s)
    for reading in readings_of(load, CHECKED, times_s):
        readings.append(Reading(CHECKED, reading.t_s, counted(reading.t_s, reading.value)))
    curve = EnergyCurve([COARSE, CHECKED])
    feed(curve, readings)
    curve.finish()
    return curve


def square(period_s: float) -> Load:
    """100 W and 550 W in turn."""
    stairs = Staircase.square(period_s, until_s=70.0)

    def power_w(t_s: float) -> float:
        return float(stairs.power_w[int(2.0 * t_s / period_s + 1e-9)])

    return Load("square", power_w, lambda t_s: float(stairs.energy_j(np.array([t_s]))[0]))


@pytest.mark.parametrize("gain", [0.0, 0.4, 0.7, 0.85, 1.15, 1.3, 1.9, 30.0])
def test_a_counter_that_is_wrong_by_more_than_a_tenth_is_not_used(gain: float) -> None:
    """Its energy is the integral of the power readings, and the report is told."""
    curve = compared(constant(200.0), lambda _, energy_j: gain * energy_j)
    energy = curve.energy(1.0, 59.0)
    assert joules(energy) == pytest.approx(200.0 * 58.0, rel=1e-9)
    assert energy.method == "power"
    assert energy.coverage == 1.0
    assert curve.disagreements > 0


@pytest.mark.parametrize("gain", [0.95, 1.0, 1.05])
def test_a_counter_that_agrees_is_used(gain: float) -> None:
    """A difference of less than a tenth is the gain of a sensor, and the counter has the total."""
    curve = compared(constant(200.0), lambda _, energy_j: gain * energy_j)
    energy = curve.energy(0.8, 56.0)
    assert energy.method == "counter"
    assert joules(energy) == pytest.approx(gain * 200.0 * 55.2, rel=1e-9)
    assert curve.disagreements == 0


def test_a_counter_is_used_though_single_power_readings_miss_the_load() -> None:
    """A load that changes five times between two readings is measured by the counter alone."""
    load = square(0.31)
    curve = compared(load, lambda _, energy_j: energy_j)
    truth_j = load.energy_j(56.0) - load.energy_j(0.8)
    energy = curve.energy(0.8, 56.0)
    assert energy.method == "counter"
    assert joules(energy) == pytest.approx(truth_j, rel=1e-6)


def test_a_counter_that_becomes_wrong_is_left_and_taken_again() -> None:
    """While it counts twice the energy, power readings are used; then the counter is used again."""

    def counted(t_s: float, energy_j: float) -> float:
        return energy_j + 200.0 * min(max(t_s - 24.0, 0.0), 12.0)

    curve = compared(constant(200.0), counted, until_s=120.0)
    assert curve.energy(16.0, 23.0).method == "counter"
    wrong = curve.energy(28.8, 35.2)
    assert wrong.method == "power"
    assert joules(wrong) == pytest.approx(200.0 * 6.4, rel=1e-9)
    assert curve.energy(104.0, 112.0).method == "counter"


@pytest.mark.parametrize("period_s", [0.31, 0.5, 0.8, 1.6, 2.0])
def test_a_wrong_counter_is_found_though_the_load_changes(period_s: float) -> None:
    """A counter of twice the energy is left within some seconds, however the readings fall."""
    curve = compared(square(period_s), lambda _, energy_j: 2.5 * energy_j)
    assert curve.energy(24.0, 56.0).method == "power"


def test_the_newest_energy_is_not_that_of_a_wrong_counter() -> None:
    """The part of the curve that is not final yet follows the power readings too."""
    times_s = np.arange(0.0, 20.0, 0.8)
    readings = readings_of(constant(200.0), COARSE, times_s[:-1])
    for reading in readings_of(constant(200.0), CHECKED, times_s):
        readings.append(Reading(CHECKED, reading.t_s, 1.5 * reading.value))
    curve = EnergyCurve([COARSE, CHECKED])
    feed(curve, readings)
    newest_s = curve.newest_s
    assert newest_s is not None
    assert joules(curve.energy(8.0, newest_s)) == pytest.approx(200.0 * (newest_s - 8.0), rel=1e-9)


@pytest.mark.parametrize("period_s", [0.31, 2.0, 7.0])
def test_errors_between_two_readings_are_known(period_s: float) -> None:
    """Nine in ten windows that begin and end between readings have the truth in their interval."""
    load = square(period_s)
    curve = compared(load, lambda _, energy_j: energy_j)
    starts_s = np.random.default_rng(3).uniform(8.0, 50.0, 200)
    inside = []
    for start_s in starts_s.tolist():
        energy = curve.energy(start_s, start_s + 2.1)
        truth_j = load.energy_j(start_s + 2.1) - load.energy_j(start_s)
        inside.append(abs(joules(energy) - truth_j) <= energy.error_j)
        assert energy.edge_j < 600.0
    assert np.mean(inside) >= 0.9


def test_without_power_readings_there_is_nothing_to_compare() -> None:
    """A counter alone is used from its first reading."""
    curve = EnergyCurve([CHECKED])
    feed(curve, readings_of(constant(200.0), CHECKED, np.arange(0.0, 10.0, 0.8)))
    curve.finish()
    assert joules(curve.energy(0.8, 4.0)) == pytest.approx(640.0, rel=1e-9)

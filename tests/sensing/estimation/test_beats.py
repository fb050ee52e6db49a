"""Errors of energies where the period of the steps beats with a sensor."""

import math

import numpy as np
import pytest

from energy_callbacks.core.records import Channel, Energy
from energy_callbacks.sensing.estimation.beats import hidden_variance, is_hidden, slowest_beat
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from tests.sensing.loads import Load, channel, constant, feed, joules, readings_of

LOW_W, HIGH_W = 100.0, 400.0
TICKS_S = np.arange(0.0, 60.0, 0.1)
COUNTER = channel("energy", "counter")
GAUGE = channel("power", "gauge", period_s=0.1, window_s=0.025)
SECOND = channel("power", "gauge", period_s=0.1, window_s=1.0)


def square(period_s: float, low_w: float = LOW_W, high_w: float = HIGH_W) -> Load:
    """Two levels, half a period each."""

    def power_w(t_s: float) -> float:
        return high_w if t_s % period_s < period_s / 2.0 else low_w

    def energy_j(t_s: float) -> float:
        rest_s = t_s % period_s
        high_s = (t_s - rest_s) / 2.0 + min(rest_s, period_s / 2.0)
        return low_w * t_s + (high_w - low_w) * high_s

    return Load(f"{period_s} s", power_w, energy_j)


def averaged(load: Load, window_s: float) -> Load:
    """The power that a gauge shows which averages over a window."""

    def power_w(t_s: float) -> float:
        return (load.energy_j(t_s) - load.energy_j(t_s - window_s)) / window_s

    return Load(load.name, power_w, load.energy_j)


def curve_of(load: Load, of: Channel, period_s: float | None) -> EnergyCurve:
    """A finished curve; the steps' period is noted first if it is known."""
    curve = EnergyCurve([of])
    if period_s is not None:
        curve.note_period(period_s)
    feed(curve, readings_of(load, of, TICKS_S))
    curve.finish()
    return curve


def windows(curve: EnergyCurve, load: Load, length_s: float) -> tuple[list[Energy], list[float]]:
    """Energies of 200 random windows, and their errors."""
    starts_s = np.random.default_rng(3).uniform(10.0, 50.0, 200)
    found = [curve.energy(float(s), float(s) + length_s) for s in starts_s]
    truths_j = [load.energy_j(float(s) + length_s) - load.energy_j(float(s)) for s in starts_s]
    return found, [joules(e) - true_j for e, true_j in zip(found, truths_j, strict=True)]


def held(curve: EnergyCurve, load: Load, length_s: float) -> float:
    """Share of 200 random windows whose interval without the systematic bound holds the truth."""
    found, errors_j = windows(curve, load, length_s)
    return float(np.mean([abs(off) <= e.resolution_j for e, off in zip(found, errors_j)]))  # noqa: B905


@pytest.mark.parametrize(("period_s", "alias_hz"), [(0.097, 0.309), (0.2, 0.0), (0.101, 0.099)])
def test_beats_are_the_distance_to_a_multiple_of_the_readings(
    period_s: float, alias_hz: float
) -> None:
    """Readings every 100 ms show a wave of 97 ms as one of 0.309 Hz."""
    beat = slowest_beat(period_s, 0.1)
    assert beat is not None
    assert beat.alias_hz == pytest.approx(alias_hz, abs=0.001)


def test_waves_that_readings_resolve_do_not_beat() -> None:
    """Periods of 0.5 s and more have no small multiple near 10 Hz."""
    assert [slowest_beat(period_s, 0.1) for period_s in (0.5, 0.7, 1.0, 30.0)] == [None] * 4


def test_only_means_over_one_period_hide_a_wave() -> None:
    """Means over 100 ms hide waves of 97 ms; two periods, or half of one, are not counted."""
    assert [is_hidden(period_s, 0.1) for period_s in (0.097, 0.05, 0.2)] == [True, False, False]


@pytest.mark.parametrize("length_s", [0.02, 0.0485, 0.08, 0.2, 0.33])
def test_the_hidden_variance_is_that_of_all_phases(length_s: float) -> None:
    """It agrees within 25 % + 0.2 J^2 with the errors of the interpolated counter, all phases.

    The errors are those of a square wave of 97 ms whose energy is exact every 100 ms.
    """
    load, starts_s = square(0.097), np.random.default_rng(1).uniform(0.0, 60.0, 20_000)
    ticks_s = np.arange(0.0, 61.0, 0.1)
    totals_j = [load.energy_j(float(t_s)) for t_s in ticks_s]
    ends_s = starts_s + length_s
    found_j = np.interp(ends_s, ticks_s, totals_j) - np.interp(starts_s, ticks_s, totals_j)
    pairs = zip(starts_s.tolist(), ends_s.tolist(), strict=True)
    true_j = np.array([load.energy_j(e) - load.energy_j(s) for s, e in pairs])
    stated = hidden_variance(HIGH_W - LOW_W, 0.097, length_s, 0.1)
    assert stated == pytest.approx(np.mean((found_j - true_j) ** 2), rel=0.25, abs=0.2)


@pytest.mark.parametrize("length_s", [0.05, 0.2, 1.0, 5.0])
@pytest.mark.parametrize(
    ("of", "period_s"),
    [(COUNTER, 0.097), (GAUGE, 0.097), (SECOND, 1.03)],
    ids=["counter", "gauge", "mean of 1 s"],
)
def test_intervals_hold_in_a_beat(of: Channel, period_s: float, length_s: float) -> None:
    """At least 90 % of random windows hold the truth if the period of the steps is known."""
    load = square(period_s)
    window_s = of.sensor.window_s if of.sensor else None
    shown = averaged(load, window_s) if window_s else load
    assert held(curve_of(shown, of, period_s), load, length_s) >= 0.9


@pytest.mark.parametrize("length_s", [0.05, 0.2, 1.0, 5.0])
def test_readings_beside_the_counter_tell_the_range_of_the_load(length_s: float) -> None:
    """An A100's counter holds steps of 50 and 690 W too, because its power readings show them."""
    load, curve = square(0.097, 50.0, 690.0), EnergyCurve([COUNTER, GAUGE])
    curve.note_period(0.097)
    power = readings_of(averaged(load, 0.025), GAUGE, TICKS_S)
    feed(curve, [*readings_of(load, COUNTER, TICKS_S), *power])
    curve.finish()
    assert curve.energy(20.0, 21.0).method == "counter"
    assert held(curve, load, length_s) >= 0.9


def test_without_the_period_few_intervals_hold() -> None:
    """A gauge that sees 25 of each 100 ms takes steps of 97 ms for steps of 3.2 s."""
    load = square(0.097)
    assert held(curve_of(averaged(load, 0.025), GAUGE, None), load, 1.0) < 0.3


@pytest.mark.parametrize("of", [COUNTER, GAUGE, SECOND])
def test_periods_that_do_not_beat_change_nothing(of: Channel) -> None:
    """Steps of 700 ms leave every energy as it is."""
    load = square(0.7)
    known, unknown = curve_of(load, of, 0.7), curve_of(load, of, None)
    assert windows(known, load, 0.2) == windows(unknown, load, 0.2)


def test_a_constant_load_has_no_false_wave() -> None:
    """Power readings of a constant load show no wave, so nothing is added."""
    load = constant()
    known, unknown = (curve_of(load, GAUGE, period_s) for period_s in (0.097, None))
    assert windows(known, load, 1.0) == windows(unknown, load, 1.0)


def test_a_period_holds_from_the_time_when_it_is_noted() -> None:
    """Windows before the note keep their error; a later note that does not beat ends it."""
    load, curve = square(0.097), EnergyCurve([COUNTER])
    readings = readings_of(load, COUNTER, TICKS_S)
    plain_j = curve_of(load, COUNTER, None).energy(10.0, 10.05).edge_j
    for period_s, part in ((0.0, readings[:200]), (0.097, readings[200:400])):
        if period_s:
            curve.note_period(period_s)
        feed(curve, part)
    curve.note_period(0.45)
    feed(curve, readings[400:])
    curve.finish()
    edges_j = [curve.energy(t_s, t_s + 0.05).edge_j for t_s in (10.0, 30.0, 50.0)]
    assert edges_j[0] == pytest.approx(plain_j, rel=0.1)
    assert edges_j[1] > 1.5 * edges_j[0]
    assert edges_j[2] == pytest.approx(plain_j, rel=0.1)


def test_a_period_that_varies_a_little_still_has_its_beat() -> None:
    """Notes of 96.5 and 97.5 ms in turn, every 0.8 s, leave the intervals wide enough."""
    load = square(0.097)
    curve = EnergyCurve([GAUGE])
    readings = readings_of(averaged(load, 0.025), GAUGE, TICKS_S)
    for number in range(0, len(readings), 8):
        curve.note_period(0.0965 if number % 16 else 0.0975)
        feed(curve, readings[number : number + 8])
    curve.finish()
    assert held(curve, load, 1.0) >= 0.9


def test_a_gap_of_the_counter_keeps_its_own_error() -> None:
    """Inside a gap of 3 s the interval allows for any distribution of the power."""
    load = square(0.097)
    readings = [r for r in readings_of(load, COUNTER, TICKS_S) if not 20.0 < r.t_s < 23.0]
    curves = EnergyCurve([COUNTER]), EnergyCurve([COUNTER])
    curves[0].note_period(0.097)
    for curve in curves:
        feed(curve, readings)
        curve.finish()
    with_beat, without = (curve.energy(21.0, 21.5).edge_j for curve in curves)
    assert with_beat == without > 0.0


def test_a_long_run_keeps_few_numbers() -> None:
    """In an hour of beats, the memory of the false wave stays bounded."""
    curve = EnergyCurve([GAUGE])
    curve.note_period(0.097)
    load = square(0.097)
    feed(curve, readings_of(load, GAUGE, np.arange(0.0, 3600.0, 0.1)), chunk_s=60.0)
    wave = curve._beats._wave
    assert wave is not None
    assert len(wave._readings) <= 3000
    assert len(wave._waves) <= 1000
    assert math.isfinite(curve.energy(3000.0, 3001.0).error_j)

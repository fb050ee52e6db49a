"""Energies between readings that are too rare for the steps, against square waves."""

import numpy as np
import pytest

from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.estimation.step_waves import follow_steps
from tests.sensing.loads import Card, Staircase, feed, joules

RESPONSE_S = 0.015
SPACING_S = 0.02
UNTIL_S = 20.0
# The second multiple of steps of 37 ms looks like a slow wave to readings every 20 ms.
PERIODS_S = (0.012, 0.024, 0.031, 0.037)


def intervals_of(load: Staircase, t_s: Array) -> Array:
    """Intervals between readings of a sensor with a response time."""
    shown_w, width_s = load.sensed_w(t_s, RESPONSE_S), np.diff(t_s)
    rows = np.zeros((len(width_s), iv.WIDTH))
    rows[:, iv.START], rows[:, iv.END], rows[:, iv.SEEN] = t_s[:-1], t_s[1:], width_s
    rows[:, iv.BEND] = np.diff(shown_w)
    mean_w = (shown_w[1:] + shown_w[:-1]) / 2.0
    rows[:, iv.AREA] = width_s * mean_w + RESPONSE_S * rows[:, iv.BEND]
    rows[:, iv.NOISE] = 1.0
    return rows


def times_s(seed: int = 0, jitter_s: float = 0.003) -> Array:
    """Readings from 1 s on, every 20 ms with jitter."""
    regular_s = np.arange(1.0, UNTIL_S, SPACING_S)
    return regular_s + np.random.default_rng(seed).uniform(-jitter_s, jitter_s, len(regular_s))


def followed(intervals: Array, period_s: float) -> Array:
    """A corrected copy."""
    corrected = intervals.copy()
    follow_steps(corrected, period_s, spacing_s=SPACING_S, response_s=RESPONSE_S)
    return corrected


def scatter_j(intervals: Array, load: Staircase) -> float:
    """Standard deviation of the error of the energy of 50 intervals, about 1 s."""
    ends_j = load.energy_j(np.append(intervals[:, iv.START], intervals[-1, iv.END]))
    off_j = np.append(0.0, np.cumsum(intervals[:, iv.AREA])) - ends_j
    return float(np.std(off_j[50:] - off_j[:-50]))


@pytest.mark.parametrize("noted", [1.0, 1.01], ids=["period known", "period 1 % off"])
@pytest.mark.parametrize("period_s", PERIODS_S)
def test_the_energy_follows_a_wave_that_lines_cannot_follow(period_s: float, noted: float) -> None:
    """The energy of 1 s is at least twice as accurate, also if the period is 1 % off."""
    load = Staircase.square(period_s, until_s=UNTIL_S + 1.0)
    rows = intervals_of(load, times_s())
    assert scatter_j(followed(rows, noted * period_s), load) < 0.5 * scatter_j(rows, load)


def test_two_multiples_of_the_frequency_are_followed() -> None:
    """Steps with two peaks have as much of the second multiple as of the first."""
    count = int((UNTIL_S + 1.0) / 0.031) * 4
    widths_s = np.tile([0.25, 0.35, 0.2, 0.2], count // 4) * 0.031
    power_w = np.tile([450.0, 250.0, 600.0, 120.0], count // 4)
    load = Staircase(np.append(0.0, np.cumsum(widths_s)), np.append(power_w, 450.0))
    rows = intervals_of(load, times_s())
    assert scatter_j(followed(rows, 0.031), load) < 0.6 * scatter_j(rows, load)


def test_steps_of_varying_length_are_followed() -> None:
    """With lengths that vary by 5 %, the energy is still more accurate than with lines."""
    halves_s = 0.0155 * np.random.default_rng(1).normal(1.0, 0.05, 1500)
    power_w = np.where(np.arange(1501) % 2, 100.0, 550.0)
    load = Staircase(np.append(0.0, np.cumsum(halves_s)), power_w)
    rows = intervals_of(load, times_s())
    assert scatter_j(followed(rows, 0.031), load) < 0.6 * scatter_j(rows, load)


@pytest.mark.parametrize("period_s", PERIODS_S)
def test_a_load_without_the_period_is_left_as_it_is(period_s: float) -> None:
    """Random levels of 100 ms are as accurate as before, and their errors stay."""
    load = Staircase.random(seed=3, mean_s=0.1, until_s=UNTIL_S + 1.0)
    rows = intervals_of(load, times_s())
    corrected = followed(rows, period_s)
    assert scatter_j(corrected, load) < 1.1 * scatter_j(rows, load)
    assert corrected[:, iv.NOISE].mean() > 0.95


def test_errors_are_reduced_where_the_wave_explains_the_readings() -> None:
    """NOISE shrinks by at least 90 % under a square wave, and not at all at constant power."""
    wave = intervals_of(Staircase.square(0.031, until_s=UNTIL_S + 1.0), times_s())
    assert followed(wave, 0.031)[:, iv.NOISE].max() < 0.1
    for power_w in (0.0, 250.0):
        constant = intervals_of(Staircase(np.zeros(1), np.array([power_w])), times_s())
        assert followed(constant, 0.031) == pytest.approx(constant, abs=1e-9)


@pytest.mark.parametrize("period_s", [0.02, 0.0201, 0.0405, 0.053, 1.0])
def test_waves_that_cannot_be_told_from_slow_changes_are_left_to_the_lines(period_s: float) -> None:
    """Nothing changes if the period is close to that of readings, or if readings show the wave."""
    rows = intervals_of(Staircase.square(period_s, until_s=UNTIL_S + 1.0), times_s())
    assert (followed(rows, period_s) == rows).all()


def test_few_intervals_and_gaps_are_left_as_they_are() -> None:
    """A segment that is shorter than one fit, or that has a gap, is not changed."""
    rows = intervals_of(Staircase.square(0.031, until_s=UNTIL_S + 1.0), times_s())
    assert (followed(rows[:14], 0.031) == rows[:14]).all()
    rows[100, iv.SEEN] = 0.0
    assert (followed(rows, 0.031) == rows).all()


def test_missing_readings_make_no_large_corrections() -> None:
    """Readings that show the wave at the same moments only do not determine it."""
    load = Staircase.square(0.03, until_s=UNTIL_S + 1.0)
    rows = intervals_of(load, np.arange(1.0, UNTIL_S, 0.06))
    corrected = followed(rows, 0.03)
    assert np.abs(corrected[:, iv.AREA] - rows[:, iv.AREA]).max() < 0.1 * rows[:, iv.AREA].mean()


def errors_of_seconds(card: Card, period_s: float | None) -> Array:
    """Errors of the energy of 1 s on a whole curve, J."""
    curve = EnergyCurve([card.power, card.counter])
    if period_s is not None:
        curve.note_period(period_s)
    sparse = [r for r in card.readings() if r.channel is card.power or r.t_s % 4.0 < 1.0]
    feed(curve, sparse)
    starts_s = np.arange(4.0, card.until_s - 6.0, 0.37)
    truth_j = card.load.energy_j(starts_s + 1.0) - card.load.energy_j(starts_s)
    return np.array([joules(curve.energy(float(s), float(s) + 1.0)) for s in starts_s]) - truth_j


def test_seconds_of_a_card_are_more_accurate_if_the_period_is_known() -> None:
    """With a reading of the counter every 4 s, the mean error of 1 s is at most 0.7 times as large.

    The rest of the error comes from the ends of the second, which lie between two readings.
    """
    card = Card.under(Staircase.square(0.031, until_s=60.0), until_s=50.0, seed=2)
    unknown, known = (np.abs(errors_of_seconds(card, p)).mean() for p in (None, 0.031))
    assert known < 0.7 * unknown

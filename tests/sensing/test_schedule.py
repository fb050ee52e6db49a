"""The common schedule of sensors and journal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks import EnergyConfig
from energy_callbacks.sensing.schedule import (
    BEAT_S,
    LEAD_S,
    next_multiple_s,
    next_reading_s,
    until_reading_s,
)
from energy_callbacks.testing import FakeClock

MOMENTS = st.floats(0.0, 1e7)


@given(now_s=MOMENTS)
def test_the_journal_is_written_just_after_the_sensors_were_read(now_s: float) -> None:
    """Sensors and journal follow within one period, the journal 0.1 s after the sensors."""
    reading_s = next_reading_s(now_s)
    assert now_s < reading_s <= now_s + BEAT_S + 0.02
    assert next_multiple_s(reading_s, BEAT_S) - reading_s == pytest.approx(LEAD_S, abs=1e-6)


@given(now_s=MOMENTS, early_s=st.floats(0.0, 0.005))
def test_who_wakes_too_early_comes_once_in_a_beat(now_s: float, early_s: float) -> None:
    """A thread that wakes up 5 ms early does not run twice in one period."""
    due_s = next_reading_s(now_s)
    assert next_reading_s(due_s - early_s) - due_s == pytest.approx(BEAT_S, abs=1e-6)


def test_a_slow_reading_comes_once_in_a_beat() -> None:
    """In a hundred periods a job of 30 ms runs a hundred times, every second period fifty."""
    clock, runs = FakeClock(), []

    def job(beats: int) -> float:
        start_s = clock.monotonic_s()
        runs.append(beats)
        clock.sleep(0.03)
        return until_reading_s(start_s, beats)

    for beats in (1, 2):
        clock.every(1.0, lambda beats=beats: job(beats), name="slow")
    clock.advance(100 * BEAT_S)
    assert runs.count(1) == pytest.approx(100, abs=2)
    assert runs.count(2) == pytest.approx(50, abs=2)


def test_what_is_lost_with_a_killed_process_is_less_than_a_second() -> None:
    """The period plus the lead is below a second, and is the default sample interval."""
    assert BEAT_S + LEAD_S < 1.0
    assert EnergyConfig().sample_interval_s == BEAT_S

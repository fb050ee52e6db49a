"""How power readings fill time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energy_callbacks.sensing.shape import AREA, EDGE, END, NOISE, SEEN, START, Shape
from tests.sensing.loads import Staircase, channel

GAUGE = channel("power", "gauge", period_s=0.1)
MEAN = channel("power", "mean", period_s=0.1)


def filled(points: list[tuple[float, float]], kind: str = "gauge", **sensor: object) -> Shape:
    """A shape of these readings."""
    shape = Shape(channel("power", kind, **sensor))  # type: ignore[arg-type]
    for t_s, power_w in points:
        shape.add(t_s, power_w)
    return shape


def test_a_gauge_is_linear_between_readings_and_a_mean_is_flat() -> None:
    """From 100 W to 300 W in 1 s a gauge says 200 J; a mean of 300 W says 300 J."""
    points = [(0.0, 100.0), (1.0, 300.0)]
    assert filled(points, period_s=1.0).open()[:, AREA].tolist() == [200.0]
    assert filled(points, "mean", period_s=1.0).open()[:, AREA].tolist() == [300.0]


def test_lag_moves_readings_back() -> None:
    """A sensor that shows power 0.2 s late speaks of 0.2 s before."""
    shape = filled([(1.0, 100.0), (2.0, 100.0)], period_s=1.0, lag_s=0.2)
    assert shape.start_s == pytest.approx(0.8)
    assert shape.end_s == pytest.approx(1.8)


def test_a_slow_response_is_undone() -> None:
    """The first-order response of a sensor costs no energy: trapezoid plus tau times the rise."""
    load = Staircase.square(1.0, until_s=12.0)
    times_s = np.arange(0.0, 10.0, 0.002)
    watts = load.sensed_w(times_s, 0.05)
    shape = filled(list(zip(times_s, watts, strict=True)), period_s=0.002, response_s=0.05)
    truth_j = load.energy_j(times_s[-1:])[0] - load.energy_j(times_s[:1])[0]
    assert shape.open()[:, AREA].sum() == pytest.approx(truth_j, rel=1e-4)


@settings(deadline=None)
@given(
    values=st.lists(st.floats(0.0, 700.0), min_size=3, max_size=20),
    cuts=st.lists(st.floats(-1.0, 25.0), max_size=6),
    kind=st.sampled_from(["gauge", "mean"]),
)
def test_cutting_loses_nothing(values: list[float], cuts: list[float], kind: str) -> None:
    """However intervals are cut, area and seconds stay, and the pieces touch."""
    points = [(float(t), value) for t, value in enumerate(values)]
    whole = filled(points, kind, period_s=1.0).open()
    shape = filled(points, kind, period_s=1.0)
    pieces = [shape.take(cut) for cut in sorted(cuts)]
    rows = np.concatenate([*pieces, shape.take()])
    assert rows[:, AREA].sum() == pytest.approx(whole[:, AREA].sum(), rel=1e-9, abs=1e-9)
    assert rows[:, SEEN].sum() == pytest.approx(whole[:, SEEN].sum(), rel=1e-9)
    assert np.array_equal(rows[1:, START], rows[:-1, END])


@given(share=st.floats(0.001, 0.999), low_w=st.floats(0, 500), high_w=st.floats(0, 500))
def test_a_cut_interval_keeps_its_ramp(share: float, low_w: float, high_w: float) -> None:
    """The energy left of a cut is that of linear power: a parabola of the time."""
    left = filled([(0.0, low_w), (1.0, high_w)], period_s=1.0).take(share)
    expected_j = low_w * share + (high_w - low_w) * share**2 / 2.0
    assert left[:, AREA].sum() == pytest.approx(expected_j, rel=1e-9, abs=1e-9)


def test_readings_far_apart_leave_a_gap_and_a_mean_does_not() -> None:
    """A sensor of 0.1 s that was silent for 5 s was not seen; a mean speaks of all of it."""
    points = [(0.0, 100.0), (5.0, 100.0)]
    assert filled(points, period_s=0.1).open()[:, SEEN].tolist() == [0.0]
    assert filled(points, "mean", period_s=0.1).open()[:, SEEN].tolist() == [5.0]


def test_a_sensor_of_unknown_period_has_no_gaps() -> None:
    """Where nobody knows how often a sensor speaks, nothing can be called a gap."""
    assert filled([(0.0, 100.0), (500.0, 100.0)]).open()[:, SEEN].tolist() == [500.0]


def test_readings_that_do_not_come_after_are_ignored() -> None:
    """A reading twice or from before changes nothing."""
    shape = filled([(0.0, 1.0), (1.0, 1.0), (1.0, 9.0), (0.5, 9.0), (2.0, 1.0)], period_s=1.0)
    assert shape.open()[:, AREA].tolist() == [1.0, 1.0]


def test_nothing_is_open_before_the_second_reading() -> None:
    """One reading spans no time."""
    shape = filled([(0.0, 1.0)])
    assert shape.start_s is None
    assert len(shape.open()) == 0
    assert len(shape.take()) == 0


def test_the_error_scale_is_that_of_a_jump_anywhere_between_two_readings() -> None:
    """From 100 W to 300 W in 2 s: at most 200 J off inside, 115 J as one standard error in all."""
    points = [(0.0, 100.0), (2.0, 300.0)]
    row = filled(points, period_s=2.0).open()[0]
    assert row[EDGE] == pytest.approx(200.0)
    assert row[NOISE] == pytest.approx(400.0**2 / 12.0)
    mean = filled(points, "mean", period_s=2.0).open()[0]
    assert mean[EDGE] == pytest.approx(400.0 / np.sqrt(3.0))
    assert mean[NOISE] == 0.0


def test_a_gap_remembers_what_its_edges_suggest() -> None:
    """A counter that spans a gap of 4 s from 100 W to 300 W finds 800 J suggested there."""
    row = filled([(0.0, 100.0), (4.0, 300.0)], period_s=0.1).open()[0]
    assert (row[AREA], row[SEEN]) == (800.0, 0.0)

"""Intervals of time from power readings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks.sensing.estimation.power_intervals import (
    AREA,
    EDGE,
    END,
    INSIDE,
    NOISE,
    SEEN,
    START,
    PowerIntervals,
    table,
)
from energy_callbacks.sensing.estimation.series import Array
from tests.sensing.loads import Staircase, channel

GAUGE = channel("power", "gauge", period_s=0.1)
MEAN = channel("power", "mean", period_s=0.1)


def opened(shape: PowerIntervals) -> Array:
    """The intervals as an array, (n, 8)."""
    return table(shape.open())


def filled(
    points: list[tuple[float, float]], kind: str = "gauge", **sensor: object
) -> PowerIntervals:
    """Intervals of these readings."""
    shape = PowerIntervals(channel("power", kind, **sensor))  # type: ignore[arg-type]
    for t_s, power_w in points:
        shape.add(t_s, power_w)
    return shape


def test_a_gauge_is_linear_between_readings_and_a_mean_is_flat() -> None:
    """From 100 W to 300 W in 1 s a gauge gives 200 J; a mean of 300 W gives 300 J."""
    points = [(0.0, 100.0), (1.0, 300.0)]
    assert opened(filled(points, period_s=1.0))[:, AREA].tolist() == [200.0]
    assert opened(filled(points, "mean", period_s=1.0))[:, AREA].tolist() == [300.0]


@pytest.mark.parametrize(
    ("window_s", "period_s", "is_sparse"),
    [(0.025, 0.1, True), (0.1, 0.1, False), (0.025, None, False), (None, 0.1, False)],
)
def test_a_sensor_is_sparse_where_it_is_known_to_see_a_part_of_the_time(
    window_s: float | None, period_s: float | None, is_sparse: bool
) -> None:
    """An A100 averages 25 ms of every 100 ms; an unknown sensor is not called sparse."""
    assert filled([], window_s=window_s, period_s=period_s).is_sparse is is_sparse


def test_lag_moves_readings_back() -> None:
    """Readings of a sensor with a lag of 0.2 s are moved back by 0.2 s."""
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
    assert opened(shape)[:, AREA].sum() == pytest.approx(truth_j, rel=1e-4)


@given(
    values=st.lists(st.floats(0.0, 700.0), min_size=3, max_size=20),
    cuts=st.lists(st.floats(-1.0, 25.0), max_size=6),
    kind=st.sampled_from(["gauge", "mean"]),
)
def test_cutting_loses_nothing(values: list[float], cuts: list[float], kind: str) -> None:
    """Cutting preserves area and covered seconds, and the parts are adjacent."""
    points = [(float(t), value) for t, value in enumerate(values)]
    whole = opened(filled(points, kind, period_s=1.0))
    shape = filled(points, kind, period_s=1.0)
    pieces = [table(shape.take(cut)) for cut in sorted(cuts)]
    rows = np.concatenate([*pieces, table(shape.take())])
    assert rows[:, AREA].sum() == pytest.approx(whole[:, AREA].sum(), rel=1e-9, abs=1e-9)
    assert rows[:, SEEN].sum() == pytest.approx(whole[:, SEEN].sum(), rel=1e-9)
    assert np.array_equal(rows[1:, START], rows[:-1, END])


@given(share=st.floats(0.001, 0.999), low_w=st.floats(0, 500), high_w=st.floats(0, 500))
def test_a_cut_interval_keeps_its_ramp(share: float, low_w: float, high_w: float) -> None:
    """The energy left of a cut is that of linear power: a parabola of the time."""
    left = table(filled([(0.0, low_w), (1.0, high_w)], period_s=1.0).take(share))
    expected_j = low_w * share + (high_w - low_w) * share**2 / 2.0
    assert left[:, AREA].sum() == pytest.approx(expected_j, rel=1e-9, abs=1e-9)


def test_readings_far_apart_leave_a_gap_and_a_mean_does_not() -> None:
    """A pause of 5 s is a gap for a gauge with a period of 0.1 s, but not for a mean."""
    points = [(0.0, 100.0), (5.0, 100.0)]
    assert opened(filled(points, period_s=0.1))[:, SEEN].tolist() == [0.0]
    assert opened(filled(points, "mean", period_s=0.1))[:, SEEN].tolist() == [5.0]


def test_a_sensor_of_unknown_period_has_no_gaps() -> None:
    """A sensor with an unknown period has no gaps."""
    assert opened(filled([(0.0, 100.0), (500.0, 100.0)]))[:, SEEN].tolist() == [500.0]


def test_readings_that_do_not_come_after_are_ignored() -> None:
    """Duplicate and late readings are ignored."""
    shape = filled([(0.0, 1.0), (1.0, 1.0), (1.0, 9.0), (0.5, 9.0), (2.0, 1.0)], period_s=1.0)
    assert opened(shape)[:, AREA].tolist() == [1.0, 1.0]


def test_nothing_is_open_before_the_second_reading() -> None:
    """One reading spans no time."""
    shape = filled([(0.0, 1.0)])
    assert shape.start_s is None
    assert len(shape.open()) == 0
    assert len(shape.take()) == 0


def jump(**sensor: object) -> np.ndarray:
    """Intervals of a card that draws 100 W, and 400 W from 52 ms on: exact samples each 20 ms."""
    response_s = float(sensor.get("response_s", 0.0))  # type: ignore[arg-type]
    times_s = 0.02 * np.arange(12)
    since_s = np.maximum(times_s - 0.052, 0.0)
    share = 1.0 - np.exp(-since_s / response_s) if response_s else np.sign(since_s)
    points = list(zip(times_s, 100.0 + 300.0 * share, strict=True))
    return opened(filled(points, period_s=0.02, **sensor))


def test_a_jump_hides_in_the_interval_in_which_it_is() -> None:
    """From 52 ms on: the interval from 40 to 60 ms is uncertain, with a filter and without."""
    for rows in (jump(), jump(response_s=0.015)):
        assert np.argmax(rows[:, EDGE]) == 2
        assert np.argmax(rows[:, NOISE]) == 2
        assert rows[2, EDGE] > 10.0 * rows[1, EDGE]
        assert rows[2, EDGE] > 10.0 * rows[6, EDGE]


def test_a_load_that_jumps_at_each_reading_hides_much_everywhere() -> None:
    """Rough readings have large errors, also where they are constant for a while."""
    random = np.random.default_rng(0)
    levels_w = random.uniform(100.0, 400.0, 200)
    levels_w[-10:] = levels_w[-10]
    points = [(0.02 * i, float(w)) for i, w in enumerate(levels_w)]
    rough = opened(filled(points, period_s=0.02, response_s=0.015))[-5:]
    assert (np.sqrt(rough[:, EDGE]) > 0.1 * 87.0 * 0.02).all()
    smooth = jump(response_s=0.015)[-1]
    assert smooth[EDGE] < 0.01 * rough[:, EDGE].min()


def test_a_mean_hides_what_repeats_within_it() -> None:
    """Means over 1 s: 13.6 J of error at an edge, and no error that remains."""
    points = [(float(t), 200.0) for t in range(5)]
    flat = opened(filled(points, "mean", period_s=1.0))[-1]
    assert np.sqrt(flat[EDGE]) == pytest.approx(13.6)
    assert flat[NOISE] == flat[INSIDE] == 0.0
    jumped = opened(filled([*points, (5.0, 500.0)], "mean", period_s=1.0))[-1]
    assert 30.0 < jumped[INSIDE] < 300.0
    assert jumped[NOISE] == 0.0


def test_a_long_mean_smears_its_edges() -> None:
    """A mean over 1 s that varies by 30 W, read every 0.1 s: about 9 J of error at an edge."""
    points = [(0.1 * i, 200.0 + 30.0 * (i % 2)) for i in range(40)]
    row = opened(filled(points, period_s=0.1, window_s=1.0))[-1]
    assert 8.0 < np.sqrt(row[EDGE]) < 12.0
    assert row[NOISE] == 0.0


def test_missing_samples_are_uncertain() -> None:
    """Half a second without samples of a load between 100 and 500 W: 71 J of error at most."""
    points = [(0.02 * i, 100.0 + 400.0 * (i // 10 % 2)) for i in range(100)]
    later = [(2.48, 100.0), (2.50, 100.0)]
    row = opened(filled([*points, *later], period_s=0.02, response_s=0.015))[-2]
    assert 50.0 < np.sqrt(row[NOISE]) < 80.0


def test_a_reading_that_cannot_be_is_none() -> None:
    """A reading of 10 MW is dropped, and its neighbours cover its time."""
    rows = opened(filled([(0.0, 100.0), (0.1, 1e7), (0.2, 100.0)], period_s=0.1))
    assert rows[:, AREA].tolist() == pytest.approx([20.0])


def test_a_gap_remembers_what_its_edges_suggest() -> None:
    """A gap of 4 s from 100 W to 300 W has a suggested energy of 800 J."""
    row = opened(filled([(0.0, 100.0), (4.0, 300.0)], period_s=0.1))[0]
    assert (row[AREA], row[SEEN]) == (800.0, 0.0)


def test_the_interval_before_a_hole_has_its_error() -> None:
    """Rough readings before a gap keep their error."""
    times = [0.02 * number for number in range(20)]
    times += [times[-1] + 1.0 + 0.02 * number for number in range(5)]
    points = [(t_s, 200.0 + 300.0 * (number % 2)) for number, t_s in enumerate(times)]
    shape = filled(points, period_s=0.02, response_s=0.015)
    rows = opened(shape)
    whole = rows[rows[:, SEEN] > 0.0]
    assert (whole[:, NOISE] > 0.0).all()

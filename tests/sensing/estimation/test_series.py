"""Bounded columns of readings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks.sensing.estimation.series import BoundedColumns, TimeSeries


def test_columns_keep_what_was_appended_through_growth() -> None:
    """A thousand rows appended in uneven portions are unchanged."""
    rows = np.arange(3000.0).reshape(1000, 3)
    columns = BoundedColumns(3)
    for portion in np.split(rows, [1, 2, 70, 500]):
        columns.append(portion)
    assert len(columns) == 1000
    assert np.array_equal(columns.rows(), rows)
    assert np.array_equal(columns.column(1), rows[:, 1])


def test_columns_forget_and_carry_on() -> None:
    """After truncating or replacing, new rows follow the remaining ones."""
    columns = BoundedColumns(1)
    columns.append(np.arange(10.0)[:, None])
    columns.truncate(3)
    columns.truncate(99)
    columns.append(np.array([[7.0]]))
    assert columns.column(0).tolist() == [0.0, 1.0, 2.0, 7.0]
    columns.splice(0, len(columns), np.empty((0, 1)))
    columns.append(np.array([[5.0]]))
    assert columns.column(0).tolist() == [5.0]


def test_columns_that_are_replaced_use_their_storage_again() -> None:
    """A table that is thinned repeatedly keeps its storage, with little spare room."""
    columns = BoundedColumns(4, {3: np.float32})
    columns.append(np.zeros((10_000, 4)))
    place = columns.column(0).base
    assert place is not None
    for _ in range(100):
        columns.splice(0, 2000, np.empty((0, 4)))
        columns.append(np.ones((2000, 4)))
    assert columns.column(0).base is place
    assert place.nbytes < 1.1 * 10_000 * 8
    assert columns.column(3).dtype == np.float32


@given(
    length=st.integers(0, 200),
    cut=st.tuples(st.integers(0, 200), st.integers(0, 200)),
    new=st.integers(0, 300),
)
def test_rows_are_put_in_the_place_of_others(length: int, cut: tuple[int, int], new: int) -> None:
    """Replacing rows by fewer or more rows leaves the others unchanged."""
    first, last = sorted(min(end, length) for end in cut)
    before, rows = np.arange(2.0 * length).reshape(length, 2), -np.ones((new, 2))
    columns = BoundedColumns(2)
    columns.append(before)
    columns.splice(first, last, rows)
    assert np.array_equal(columns.rows(), np.concatenate([before[:first], rows, before[last:]]))


@given(
    times=st.lists(st.integers(0, 50), max_size=40),
    window=st.tuples(st.integers(-5, 55), st.integers(-5, 55)),
)
def test_between_is_open_at_the_start_and_closed_at_the_end(
    times: list[int], window: tuple[int, int]
) -> None:
    """Values in (start, end] in time order; readings that are not newer are dropped."""
    series, kept = TimeSeries(keep_s=1000.0), []
    for number, t_s in enumerate(times):
        series.append(float(t_s), float(number))
        if not kept or t_s > kept[-1][0]:
            kept.append((t_s, number))
    start_s, end_s = sorted(window)
    _, values = series.readings(start_s, end_s)
    assert values.tolist() == [v for t, v in kept if start_s < t <= end_s]
    assert series.latest() == (kept[-1][1] if kept else None)


def test_a_series_keeps_its_span_and_no_more_than_half_as_much_again() -> None:
    """A day of readings every second keeps only about the last ten minutes."""
    series = TimeSeries(keep_s=600.0)
    for second in range(86_400):
        series.append(1e6 + second, 1.0)
        assert len(series.t_s) <= 902
        assert len(series.t_s) >= min(second + 1, 601)
    assert series.t_s[0] <= 1e6 + 86_399.0 - 600.0


def test_the_rate_of_a_counter_reaches_from_reading_to_reading() -> None:
    """The rate of a counter that is read every 8 s, for windows with one reading or none."""
    series = TimeSeries(keep_s=100.0)
    assert series.rate(0.0, 1.0) is None
    for t_s, value in ((0.0, 0.0), (8.0, 2.0), (16.0, 3.0)):
        series.append(t_s, value)
    assert series.rate(-5.0, 4.0) is None
    assert series.rate(0.0, 20.0) == pytest.approx(3.0 / 16.0)
    assert series.rate(7.0, 9.0) == pytest.approx(2.0 / 8.0)
    assert series.rate(17.0, 20.0) == pytest.approx(1.0 / 8.0)


def test_readings_with_their_times() -> None:
    """Readings in (start, end] are returned as copies."""
    series = TimeSeries(keep_s=100.0)
    for t_s in range(5):
        series.append(float(t_s), 10.0 * t_s)
    t_s, values = series.readings(1.0, 3.0)
    assert (t_s.tolist(), values.tolist()) == ([2.0, 3.0], [20.0, 30.0])
    t_s[0] = -1.0
    assert series.t_s[2] == 2.0

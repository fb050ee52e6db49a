"""Rows come at the steps of the loss, at most one per second, or exactly as often as asked."""

import pytest

from energy_callbacks.accounting.metrics.row_schedule import RowSchedule
from energy_callbacks.testing import FakeClock


def rows(setting: int | None, *, steps: int, step_s: float, every: int) -> list[int]:
    """Return the steps of all rows; the framework logs its loss at every ``every``-th step."""
    clock = FakeClock()
    schedule = RowSchedule(clock.monotonic_s, setting)
    found = []
    for step in range(1, steps + 1):
        clock.advance(step_s)
        if schedule.is_due(step, logs_loss=step % every == 0):
            schedule.logged()
            found.append(step)
    return found


def test_rows_come_with_the_loss() -> None:
    """If the loss is logged less often than once per second, each loss has a row."""
    assert rows(None, steps=20, step_s=0.5, every=4) == [4, 8, 12, 16, 20]


def test_rows_come_at_most_once_per_second() -> None:
    """If the loss is logged more often, rows have a distance of one second."""
    assert rows(None, steps=40, step_s=0.125, every=1) == [1, 9, 17, 25, 33]


def test_a_setting_is_obeyed_exactly() -> None:
    """With a setting, neither the time nor the steps of the loss matter."""
    assert rows(3, steps=10, step_s=0.001, every=4) == [3, 6, 9]


def test_a_row_that_was_not_asked_for_counts() -> None:
    """After the row of an epoch's end, the next row comes a second later."""
    clock = FakeClock()
    schedule = RowSchedule(clock.monotonic_s)
    schedule.logged()
    clock.advance(0.9)
    assert not schedule.is_due(1, logs_loss=True)
    clock.advance(0.1)
    assert schedule.is_due(2, logs_loss=True)


def test_a_row_without_figures_is_tried_again() -> None:
    """The schedule counts a row only when it has been logged."""
    schedule = RowSchedule(FakeClock().monotonic_s)
    assert schedule.is_due(1, logs_loss=True)
    assert schedule.is_due(2, logs_loss=True)


@pytest.mark.parametrize(("took_s", "pause_s"), [(0.001, 1.0), (0.05, 5.0), (2.0, 60.0)])
def test_rows_of_slow_loggers_come_less_often(took_s: float, pause_s: float) -> None:
    """Writing rows takes at most 1 % of the time, but a row comes every minute."""
    clock = FakeClock()
    schedule = RowSchedule(clock.monotonic_s)
    schedule.logged(took_s)
    clock.advance(pause_s - 0.001)
    assert not schedule.is_due(1, logs_loss=True)
    clock.advance(0.001)
    assert schedule.is_due(2, logs_loss=True)

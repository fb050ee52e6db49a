"""Times of a log that was written while its clock was set."""

from collections.abc import Sequence

import pytest

from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.values import Moment

WEEK_S = 7 * 86400.0


def seconds(times: Sequence[float]) -> list[float]:
    """Return the seconds since the first of these times, as a log has them."""
    clock = LogClock()
    return [clock.t_s(Moment(s, is_local=False)) for s in times]


@pytest.mark.parametrize("gap_s", [5.0, 11.0, 60.0, 86400.0])
def test_a_later_gap_does_not_undo_a_correction(gap_s: float) -> None:
    """The clock is set back by 11 s; a gap that is longer than that, later, is the gap alone."""
    times = [100.0, 101.0, 91.0, 92.0, 93.0, 93.0 + gap_s, 94.0 + gap_s]
    assert seconds(times) == [0.0, 1.0, 1.0, 2.0, 3.0, 3.0 + gap_s, 4.0 + gap_s]


def test_one_wrong_time_changes_no_other() -> None:
    """The next time fits those before the wrong one: the correction is undone."""
    assert seconds([100.0, 101.0, 50.0, 103.0, 104.0]) == [0.0, 1.0, 1.0, 3.0, 4.0]
    assert seconds([100.0, 101.0, 101.0 + 2 * WEEK_S, 103.0]) == [0.0, 1.0, 1.0, 3.0]


def test_one_wrong_time_may_stand_several_times() -> None:
    """Samples of several devices have the same time."""
    assert seconds([100.0, 101.0, 50.0, 50.0, 103.0, 104.0]) == [0.0, 1.0, 1.0, 1.0, 3.0, 4.0]


def test_a_clock_may_be_set_twice() -> None:
    """Each step back takes no time."""
    times = [100.0, 101.0, 91.0, 92.0, 82.0, 83.0, 200.0]
    assert seconds(times) == [0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 120.0]


def test_a_clock_that_is_set_ahead_stays_so() -> None:
    """A step of more than a week takes no time; the times after it are counted from there."""
    later = 101.0 + 2 * WEEK_S
    assert seconds([100.0, 101.0, later, later + 1.0]) == [0.0, 1.0, 1.0, 2.0]

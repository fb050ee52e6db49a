"""Tenants work for the given share of time."""

import itertools
import math

import pytest

from energy_callbacks.inference.serve.duty import PERIOD_S, DutyGate


def worked(
    duty: float, batch_s: float, *, until_s: float = 50.0, offset: float = 0.0
) -> list[float]:
    """Return the starts of batches of a tenant that always has requests."""
    gate = DutyGate(0.0, offset=offset)
    gate.set(duty, 0.0)
    starts, now_s = [], 0.0
    while now_s < until_s:
        opens_s = gate.opens_s(now_s)
        if opens_s > now_s:
            now_s = opens_s
            continue
        starts.append(now_s)
        now_s += batch_s
        gate.use(batch_s, now_s)
    return starts


@pytest.mark.parametrize("duty", [0.05, 0.3, 0.5, 0.77, 0.95, 0.999])
@pytest.mark.parametrize("batch_s", [0.001, 0.013, 0.25])
def test_the_share_is_exact(duty: float, batch_s: float) -> None:
    """Over 50 s, work differs from the share by one batch and one period at most."""
    busy_s = len(worked(duty, batch_s)) * batch_s
    assert abs(busy_s - duty * 50.0) <= batch_s + PERIOD_S


def test_pauses_of_a_part_of_a_period() -> None:
    """With short batches, a tenant with half of the time works 50 ms and pauses 50 ms."""
    starts = worked(0.5, 0.001)
    gaps = [b - a for a, b in itertools.pairwise(starts) if b - a > 0.0015]
    assert len(gaps) == pytest.approx(500, abs=2)
    assert gaps[10] == pytest.approx(0.051, abs=0.002)


def test_tenants_pause_in_turn() -> None:
    """Two tenants with half of the time and opposite offsets do not work at the same time."""
    first, second = (
        {round(start_s, 3) for start_s in worked(0.5, 0.001, until_s=5.0, offset=offset)}
        for offset in (0.0, 0.5)
    )
    assert len(first & second) < 0.1 * len(first)


def test_no_pauses() -> None:
    """A duty of 1 never waits."""
    gate = DutyGate(0.0)
    gate.use(5.0, 5.0)
    assert gate.opens_s(6.0) == 6.0
    gate.set(0.5, 6.0)
    gate.set(1.0, 6.0)
    assert gate.opens_s(6.0) == 6.0


def test_time_without_requests_is_not_saved() -> None:
    """After a long time without work, a tenant does not work for longer than otherwise."""
    gate = DutyGate(0.0)
    gate.set(0.5, 0.0)
    now_s, busy_s = 100.0, 0.0
    while gate.opens_s(now_s) <= now_s:
        now_s += 0.001
        gate.use(0.001, now_s)
        busy_s += 0.001
    assert busy_s <= 0.75 * PERIOD_S  # half, and that of a late start


@pytest.mark.parametrize("duty", [0.0, -0.1, 1.1])
def test_wrong_duties(duty: float) -> None:
    """The message has the value."""
    with pytest.raises(ValueError, match="duty must be above 0 and at most 1, got"):
        DutyGate(0.0).set(duty, 0.0)


def test_batches_that_are_sent_ahead() -> None:
    """No more is sent than may run before the next pause."""
    gate = DutyGate(0.0)
    gate.set(0.5, 0.0)
    assert gate.opens_s(0.0, 0.0) == 0.0
    assert gate.opens_s(0.0, 0.04) == 0.0
    assert gate.opens_s(0.0, 0.06) == math.inf

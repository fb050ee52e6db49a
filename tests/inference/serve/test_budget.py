"""The energy of a window has a budget: tenants pause for its rest, and nothing is lost."""

from collections.abc import Sequence

import pytest

from energy_callbacks.core.records import Energy
from energy_callbacks.inference.control.protocols import OperatingPoint, Window
from energy_callbacks.inference.profile.sweeps import equal
from energy_callbacks.inference.records import Configuration
from tests.inference.serve.test_server import FOUR, Lab


def _windows(lab: Lab, configuration: Configuration, **options: float) -> Sequence[Window]:
    """Return windows after the first two, in which requests fill the queues."""
    lab.server.apply(OperatingPoint(configuration=configuration, **options))
    return lab.windows(12)[2:]


@pytest.mark.parametrize("duty", [1.0, 0.7])
@pytest.mark.parametrize("configuration", [FOUR, equal("resnet50", 20.0, 64, 5)])
def test_no_window_is_above_the_budget(configuration: Configuration, duty: float) -> None:
    """The budget is 15 % below the power: windows have it, less at most 10 %, and none has more."""
    free_w = _windows(Lab(), configuration, duty=duty)[-1].power_mean_w
    lab = Lab()
    found = _windows(lab, configuration, duty=duty, budget_w=0.85 * free_w)
    assert all(0.75 * free_w < window.power_mean_w <= 0.85 * free_w for window in found)
    assert all(0.05 < window.paused < 0.4 for window in found)
    lab.all_answered_once()


def test_the_duty_is_that_of_the_tenants_that_serve() -> None:
    """Without a cap, the old tenants work all the time until others serve, also if never."""
    lab = Lab()
    lab.apply(FOUR, 0.9)
    lab.windows(1)
    dispatcher = lab.server.dispatcher
    assert dispatcher.duty == 0.9
    for batch, later in ((10**7, 1.0), (16, 0.8)):  # the first one needs too much memory
        lab.apply(equal("resnet50", 50.0, batch, 1), 0.8)
        assert dispatcher.duty == 1.0
        lab.windows(8)
        assert dispatcher.duty == later
    assert len(dispatcher.refused) == 1


def test_windows_below_the_budget_have_no_pause() -> None:
    """The budget is 10 % above the power: throughput is that without a budget."""
    (*_, free) = _windows(Lab(), FOUR)
    (*_, last) = _windows(Lab(), FOUR, budget_w=1.1 * free.power_mean_w)
    assert last.paused == 0.0
    assert last.throughput_per_s == pytest.approx(free.throughput_per_s, rel=1e-3)


def test_a_budget_that_no_pause_can_hold() -> None:
    """It is below the power of waiting tenants: these pause as soon as the power is known."""
    lab = Lab()
    found = _windows(lab, FOUR, budget_w=50.0)
    assert all(window.paused == pytest.approx(0.8, abs=0.05) for window in found)


def test_without_readings_nobody_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensor has no readings of a window that has not ended: tenants work on."""
    lab = Lab()
    unknown = Energy(energy_j=None, method="counter", coverage=0.0)
    monkeypatch.setattr(lab.machine.sensors, "energy", lambda *_: unknown)
    found = _windows(lab, FOUR, budget_w=200.0)
    assert all(one.paused == 0.0 for one in found)
    assert found[-1].power_mean_w > 200.0


def test_readings_come_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real sensor is read when it is asked: the budget holds with hardly less power than it."""
    free_w = _windows(Lab(), FOUR)[-1].power_mean_w
    lab = Lab()
    asked_s = [0.0]
    sensors, pool = lab.machine.sensors, lab.machine.pool
    monkeypatch.setattr(sensors, "ask", lambda: asked_s.append(pool.now_s()))
    monkeypatch.setattr(sensors, "reach_s", lambda: asked_s[-1])
    found = _windows(lab, FOUR, budget_w=0.85 * free_w)
    assert all(0.78 * free_w < window.power_mean_w <= 0.85 * free_w for window in found)


def test_readings_that_are_late_are_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings reach to 0.1 s ago: the budget holds, with less power."""
    free_w = _windows(Lab(), FOUR)[-1].power_mean_w
    lab = Lab()
    monkeypatch.setattr(lab.machine.sensors, "reach_s", lambda: lab.machine.pool.now_s() - 0.1)
    found = _windows(lab, FOUR, budget_w=0.85 * free_w)
    assert all(0.7 * free_w < window.power_mean_w <= 0.85 * free_w for window in found)

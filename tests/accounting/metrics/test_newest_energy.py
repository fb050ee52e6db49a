"""Energy up to now: what readings have not shown yet is extrapolated, with its error."""

import numpy as np
import pytest

from energy_callbacks.accounting.metrics.newest_energy import newest_energy, seen_until_s
from energy_callbacks.sensing.timeline import Timeline
from tests.sensing.loads import Load, channel, constant, ramp, readings_of

POWER = channel("power", "gauge", period_s=0.1, relative_error=0.05)
COUNTER = channel("energy", "counter", period_s=0.1, relative_error=0.05)
SLOW_POWER = channel("power", "gauge", period_s=0.1, window_s=1.0, lag_s=0.5)


def alternating(period_s: float) -> Load:
    """100 and 300 W, half a period each."""

    def energy_j(t_s: float) -> float:
        turns, rest_s = divmod(t_s, period_s)
        return 200.0 * period_s * turns + 100.0 * rest_s + 200.0 * max(rest_s - period_s / 2, 0.0)

    def power_w(t_s: float) -> float:
        return 300.0 if t_s % period_s >= period_s / 2 else 100.0

    return Load("alternating", power_w, energy_j)


def seen(load: Load, until_s: float, *channels: object) -> Timeline:
    """The readings of a load from time 0, every 100 ms."""
    timeline, times_s = Timeline(), np.arange(0.0, until_s + 1e-9, 0.1)
    timeline.register(channels)  # type: ignore[arg-type]
    for of in channels:
        timeline.extend(readings_of(load, of, times_s))  # type: ignore[arg-type]
    return timeline


def test_a_constant_load_goes_on() -> None:
    """A window of which 60 % are unseen has the energy of the whole window, and says how."""
    found = newest_energy(seen(constant(200.0), 10.0, POWER), "gpu0", 9.9, 10.15, 10.15)
    assert found.energy_j == pytest.approx(50.0)
    assert found.coverage == pytest.approx(1.0)
    assert found.systematic_j == pytest.approx(2.5)
    assert found.method == "power, extrapolated"


def test_a_window_of_which_nothing_is_seen() -> None:
    """50 ms that begin after the newest reading are extrapolated too."""
    found = newest_energy(seen(constant(200.0), 10.0, POWER), "gpu0", 10.2, 10.25, 10.25)
    assert found.energy_j == pytest.approx(10.0)


def test_seen_windows_are_as_before() -> None:
    """Up to the newest reading, the energy is that of the timeline."""
    timeline = seen(ramp(), 10.0, POWER)
    assert newest_energy(timeline, "gpu0", 8.0, 10.0, 12.0) == timeline.energy("gpu0", 8.0, 10.0)


def test_the_future_is_not_extrapolated() -> None:
    """Of a window that ends in the future, the energy up to now is returned, with a coverage."""
    found = newest_energy(seen(constant(200.0), 10.0, POWER), "gpu0", 9.0, 11.0, 10.2)
    assert found.energy_j == pytest.approx(240.0)
    assert found.coverage == pytest.approx(0.6)


@pytest.mark.parametrize("now_s", [13.0, 60.0])
def test_a_silent_sensor_is_not_extrapolated(now_s: float) -> None:
    """After more than 2.5 s without a reading, the coverage tells that readings are missing."""
    timeline = seen(constant(200.0), 10.0, POWER)
    found = newest_energy(timeline, "gpu0", 9.0, now_s, now_s)
    assert found == timeline.energy("gpu0", 9.0, now_s)
    assert found.coverage < 1.0


def test_too_few_readings_are_not_extrapolated() -> None:
    """Two intervals are too few for an error."""
    timeline = seen(constant(200.0), 0.2, POWER)
    assert newest_energy(timeline, "gpu0", 0.0, 0.3, 0.3) == timeline.energy("gpu0", 0.0, 0.3)
    assert newest_energy(_without_readings(), "gpu0", 0.0, 0.3, 0.3).energy_j is None


def _without_readings() -> Timeline:
    timeline = Timeline()
    timeline.register([POWER])
    return timeline


def test_the_error_holds_under_a_load_that_changes() -> None:
    """A load that changes more slowly than the readings: at least 90 % of intervals hold."""
    load, held = alternating(1.03), []
    for end_s in np.arange(10.0, 16.0, 0.037):
        timeline, now_s = seen(load, float(end_s), COUNTER), float(end_s) + 0.06
        found = newest_energy(timeline, "gpu0", now_s - 0.1, now_s, now_s)
        assert found.energy_j is not None
        true_j = load.energy_j(now_s) - load.energy_j(now_s - 0.1)
        held.append(abs(found.energy_j - true_j) <= found.resolution_j)
    assert np.mean(held) >= 0.9


def test_power_after_the_last_reading_of_a_dense_counter_is_not_trusted() -> None:
    """A mean over a second shows a change late: the time after the counter counts as unseen."""
    load, times_s = constant(200.0), np.arange(0.0, 10.01, 0.1)
    timeline = Timeline()
    timeline.register([SLOW_POWER, COUNTER])
    timeline.extend(readings_of(load, COUNTER, times_s))
    timeline.extend(readings_of(load, SLOW_POWER, np.arange(0.0, 10.8, 0.1)))
    assert timeline.newest_s("gpu0") == pytest.approx(10.2)
    assert seen_until_s(timeline, "gpu0") == pytest.approx(10.0)

"""A counter alone: windows whose ends are between two of its readings."""

import numpy as np
import pytest

from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from tests.benchmarks.common.power_signal import PowerSignal, square
from tests.sensing.loads import channel, feed, joules

COUNTER = channel("energy", "counter")
GAUGE = channel("power", "gauge", period_s=0.02, window_s=0.01)
END_S = 20.0
TICK_S = 0.02
TICKS_S = np.arange(0.0, END_S + 1e-9, TICK_S)
LEVELS_W = (400.0, 100.0)


def wave(turn_s: float) -> PowerSignal:
    """400 W and 100 W, half a turn each."""
    return square(-1.0, END_S + 1.0, levels_w=LEVELS_W, turn_s=turn_s, phase_s=0.0031)


def anchors(load: PowerSignal, ticks_s: np.ndarray = TICKS_S) -> list[Reading]:
    """Readings of the counter at exact times."""
    values_j = load.energy_to_j(ticks_s)
    return [
        Reading(COUNTER, float(t), float(j), 0.0) for t, j in zip(ticks_s, values_j, strict=True)
    ]


def counted(load: PowerSignal, ticks_s: np.ndarray = TICKS_S, period_s: float = 0.0) -> EnergyCurve:
    """The curve of a counter alone, of steps whose period is known if it is not 0."""
    curve = EnergyCurve([COUNTER])
    if period_s:
        curve.note_period(period_s)
    feed(curve, anchors(load, ticks_s))
    curve.finish()
    return curve


def errors_j(curve: EnergyCurve, load: PowerSignal) -> np.ndarray:
    """Errors of 200 windows of 50 ms at random moments."""
    starts_s = np.random.default_rng(4).uniform(2.0, END_S - 2.0, 200)
    found = [joules(curve.energy(s, s + 0.05)) for s in starts_s]
    return np.abs(found - (load.energy_to_j(starts_s + 0.05) - load.energy_to_j(starts_s)))


@pytest.mark.parametrize("turn_s", [0.0973, 0.131, 0.2303, 1.03])
def test_single_jumps_are_located(turn_s: float) -> None:
    """Levels that last two ticks or more: windows are exact, wherever they begin and end."""
    load = wave(turn_s)
    assert errors_j(counted(load), load).max() < 1e-3


def test_more_than_one_jump_in_an_interval_is_not_located() -> None:
    """With half-turns of 15.5 ms, the counter is interpolated in proportion to time."""
    load = wave(0.031)
    curve = counted(load)
    for start_s in (5.0, 7.0, 9.0):
        rise_j = joules(curve.energy(start_s, start_s + TICK_S))
        assert joules(curve.energy(start_s, start_s + TICK_S / 4.0)) == pytest.approx(rise_j / 4.0)


def test_even_changes_of_power_are_no_jumps() -> None:
    """A power that rises by 3 W in each interval is interpolated within 1 mJ."""
    edges_s = np.arange(-0.05, END_S + 0.05, 1e-3)
    load = PowerSignal(edges_s, 100.0 + 150.0 * (edges_s[:-1] + 0.05))
    line_j = 150.0 * TICK_S**2 / 8.0
    assert errors_j(counted(load), load).max() < 2.5 * line_j


@pytest.mark.parametrize(("period_s", "is_located"), [(0.079, False), (0.081, True)])
def test_steps_shorter_than_four_intervals_do_not_jump_once(
    period_s: float, *, is_located: bool
) -> None:
    """If steps may change power more than once in an interval, no jump is located."""
    load = wave(0.131)
    error_j = errors_j(counted(load, period_s=period_s), load).max()
    assert (error_j < 1e-3) == is_located


def read(load: PowerSignal, stamps_s: np.ndarray) -> list[Reading]:
    """Readings of power, each the mean of 10 ms."""
    values_w = load.mean_w(stamps_s, 0.01, 0.0).tolist()
    return [Reading(GAUGE, t, w, 0.0) for t, w in zip(stamps_s.tolist(), values_w, strict=True)]


def test_the_error_follows_the_window() -> None:
    """The error is small where jumps are single, and large where there are more, in one run."""
    calm, busy = wave(0.2), wave(0.031)
    before, after = calm.edges_s[:-1] < 10.0, busy.edges_s > 10.2
    edges_s = np.concatenate([calm.edges_s[:-1][before], busy.edges_s[after]])
    powers_w = np.concatenate([calm.power_w[before], busy.power_w[after[:-1]]])
    load = PowerSignal(edges_s, powers_w)
    curve = EnergyCurve([GAUGE, COUNTER])
    feed(curve, read(load, TICKS_S[1:] - 0.004) + anchors(load))
    curve.finish()

    offsets_s = np.arange(0.0, 0.2, 0.007)
    calm_j = max(curve.energy(5.0, 6.0 + offset_s).edge_j for offset_s in offsets_s)
    busy_j = min(curve.energy(5.0, 15.005 + offset_s).edge_j for offset_s in offsets_s)
    assert calm_j < 0.1 * busy_j


def test_readings_beyond_the_neighbours_powers_are_stated() -> None:
    """Readings of 100 and 400 W, while the counter shows 250 W all the time."""
    load = PowerSignal(np.array([-1.0, END_S + 1.0]), np.array([250.0]))
    found_j = []
    for spread_w in (0.0, 150.0):
        curve = EnergyCurve([GAUGE, COUNTER])
        stamps_s = TICKS_S[1:] - 0.004
        values_w = 250.0 + spread_w * np.where(np.arange(len(stamps_s)) % 2, 1.0, -1.0)
        pairs = zip(stamps_s.tolist(), values_w.tolist(), strict=True)
        feed(curve, [Reading(GAUGE, t, w, 0.0) for t, w in pairs] + anchors(load))
        curve.finish()
        found_j.append(curve.energy(5.0, 6.009).edge_j)
    assert found_j[0] < 0.01
    assert found_j[1] > 0.3


def test_intervals_settle_when_their_neighbours_are_known() -> None:
    """The last two intervals are used, but may still change; none in slow readings."""
    load = wave(0.131)
    for tick_s, waiting in ((TICK_S, 2), (0.1, 2), (0.8, 0)):
        curve = EnergyCurve([COUNTER])
        ticks_s = tick_s * np.arange(12)
        curve.add(anchors(load, ticks_s))
        assert curve.newest_s == pytest.approx(ticks_s[-1])
        assert curve.settled_s == pytest.approx(ticks_s[-1 - waiting])
        curve.finish()
        assert curve.settled_s == pytest.approx(ticks_s[-1])


def test_what_is_settled_does_not_change() -> None:
    """Windows that end at the settled moment, or inside the newest settled interval, are final."""
    load = wave(0.131)
    curve = EnergyCurve([COUNTER])
    seen = []
    for reading in anchors(load, TICKS_S[:150]):
        curve.add([reading])
        settled_s = curve.settled_s
        if settled_s is not None and settled_s > 1.0:
            seen += [(t, curve.energy(0.5, t)) for t in (settled_s, settled_s - 0.007)]
    curve.finish()
    assert len(seen) > 150
    for t_s, energy in seen:
        assert curve.energy(0.5, t_s) == energy


def test_a_pause_of_the_counter_is_no_neighbour() -> None:
    """No jump is located from the mean power of a pause; the energy of the pause is known."""
    load = wave(0.2303)
    curve = counted(load, TICKS_S[(TICKS_S < 5.0) | (TICKS_S > 6.0)])
    assert curve.energy(4.0, 7.0).coverage == 1.0
    assert joules(curve.energy(4.0, 7.0)) == pytest.approx(load.energy_j(4.0, 7.0), abs=0.001)
    pause = curve.energy(4.0, 5.5)
    assert abs(joules(pause) - load.energy_j(4.0, 5.5)) <= pause.edge_j

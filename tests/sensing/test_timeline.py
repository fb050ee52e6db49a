"""One place for all series: registration, windows, scopes, and what is settled."""

import math
import threading

import numpy as np
import pytest

from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.sensing.timeline import Timeline
from tests.sensing.loads import channel, constant, readings_of

GPU = Device(key="gpu0", kind="gpu", scope="gpu", name="GPU")
GPU1 = Device(key="gpu1", kind="gpu", scope="gpu", name="GPU")
CPU = Device(key="cpu0", kind="cpu", scope="host", name="CPU")
DRAM = Device(key="dram0", kind="dram", scope="host", name="RAM", parent="cpu0")
MACHINE = Device(key="machine", kind="machine", scope="machine", name="board")
BOARD = Device(key="board", kind="board", scope=None, name="board")
PROCESS = Device(key="process", kind="process", scope=None, name="process")


def power(device: Device, kind: str = "gauge") -> Channel:
    """The power channel of a device."""
    return channel("power", kind, device=device, period_s=0.5)  # type: ignore[arg-type]


def timeline_of(*channels: Channel) -> Timeline:
    """A timeline in which a source with these channels has opened."""
    timeline = Timeline()
    timeline.register(channels)
    return timeline


def play(timeline: Timeline, of: Channel, start_s: float, end_s: float, power_w: float) -> None:
    """Readings of constant power every half second."""
    times_s = np.arange(start_s, end_s + 0.01, 0.5)
    timeline.extend(readings_of(constant(power_w), of, times_s))


def test_energy_of_each_device_is_kept_apart() -> None:
    """Two cards at 100 W and 300 W for 4 s are 400 J and 1200 J."""
    timeline = timeline_of(power(GPU), power(GPU1))
    play(timeline, power(GPU), 0.0, 4.0, 100.0)
    play(timeline, power(GPU1), 0.0, 4.0, 300.0)
    assert timeline.energy("gpu0", 0.0, 4.0).energy_j == pytest.approx(400.0, rel=1e-12)
    assert timeline.energy("gpu1", 0.0, 4.0).energy_j == pytest.approx(1200.0, rel=1e-12)
    assert timeline.newest_s("gpu1") == 4.0
    assert timeline.start_s("gpu1") == 0.0


@pytest.mark.parametrize("window", [(0.5, 3.1), (-1.0, 2.0), (3.0, 9.0), (6.0, 9.0), (-2.0, -1.0)])
def test_joules_alone_are_those_of_the_energy(window: tuple[float, float]) -> None:
    """Coverage of windows inside, across and outside the readings, and without energy."""
    timeline = timeline_of(power(GPU), channel("rss", "gauge", device=PROCESS))
    assert timeline.seen("gpu0", *window) == (None, 0.0)
    play(timeline, power(GPU), 0.0, 4.0, 100.0)
    energy = timeline.energy("gpu0", *window)
    assert timeline.seen("gpu0", *window) == (energy.energy_j, energy.coverage)
    assert timeline.seen("process", *window) == (None, 0.0)


@pytest.mark.parametrize("window", [(2.0, 2.0), (3.0, 2.0), (math.nan, 2.0), (0.0, math.nan)])
def test_an_empty_window_is_refused(window: tuple[float, float]) -> None:
    """A window that does not end after its start is refused with both values."""
    timeline = timeline_of(power(GPU))
    with pytest.raises(ValueError, match=r"must end after it starts.*start_s=.*end_s="):
        timeline.energy("gpu0", *window)


def test_scopes_never_count_a_part_twice() -> None:
    """RAM inside a package is left out of the total, but has its own energy."""
    timeline = timeline_of(*map(power, (GPU, CPU, DRAM, BOARD)), channel("rss", "gauge", PROCESS))
    assert timeline.keys("gpu") == ("gpu0",)
    assert timeline.keys("host") == ("cpu0",)
    assert timeline.keys("total") == ("gpu0", "cpu0")
    assert timeline.keys("dram0") == ("dram0",)
    assert timeline.metered == ("gpu0", "cpu0", "dram0", "board")
    assert [device.key for device in timeline.devices][-1] == "process"


def test_a_part_whose_whole_is_not_measured_counts() -> None:
    """RAM counts separately if its package has no sensor."""
    assert timeline_of(power(DRAM)).keys("host") == ("dram0",)


def test_a_scope_includes_a_source_that_opens_later() -> None:
    """The keys of a scope are kept until the next source opens."""
    timeline = timeline_of(power(CPU))
    assert timeline.keys("total") == ("cpu0",)
    timeline.register([power(GPU)])
    assert timeline.keys("total") == ("cpu0", "gpu0")


def test_the_total_is_the_whole_machine_from_its_first_readings() -> None:
    """A board of 10 W has a GPU rail of 4 W and a CPU of 3 W; without it they are the total."""
    powers_w = {GPU: 4.0, CPU: 3.0, MACHINE: 10.0}
    timeline = timeline_of(*map(power, powers_w))
    for device, of in ((GPU, 4.0), (CPU, 3.0)):
        play(timeline, power(device), 0.0, 4.0, of)
    assert timeline.keys("total") == ("gpu0", "cpu0")
    play(timeline, power(MACHINE), 0.0, 4.0, 10.0)
    expected_w = {"gpu": 4.0, "host": 3.0, "machine": 10.0, "total": 10.0}
    for scope, power_w in expected_w.items():
        [key] = timeline.keys(scope)
        assert timeline.energy(key, 0.0, 4.0).energy_j == pytest.approx(4.0 * power_w, rel=1e-12)


def test_an_unknown_scope_is_refused_with_the_choices() -> None:
    """The message names the scope that was asked for and those that exist."""
    with pytest.raises(ValueError, match=r"'gpu7'.*'gpu', 'host', 'machine', 'total'.*cpu0"):
        timeline_of(power(CPU)).keys("gpu7")


def test_a_value_that_is_no_number_is_left_out() -> None:
    """A NaN of a driver is dropped and does not affect later readings."""
    timeline = timeline_of(power(GPU), channel("temperature", "gauge", GPU))
    play(timeline, power(GPU), 0.0, 2.0, 100.0)
    timeline.extend([Reading(power(GPU), 2.5, math.nan), Reading(power(GPU), math.nan, 100.0)])
    timeline.extend([Reading(channel("temperature", "gauge", GPU), 2.5, math.inf)])
    play(timeline, power(GPU), 3.0, 4.0, 100.0)
    assert timeline.energy("gpu0", 0.0, 4.0).energy_j == pytest.approx(400.0, rel=1e-12)
    assert timeline.latest("gpu0", "temperature", -1.0) is None


def test_gauges_answer_for_their_window() -> None:
    """Values are those in (start, end]; quantities without readings are empty or None."""
    clocks = channel("clock", "gauge", GPU)
    timeline = timeline_of(power(GPU), clocks)
    timeline.extend([Reading(clocks, t, 1e9 + t) for t in (1.0, 2.0, 3.0)])
    assert timeline.readings("gpu0", "clock", 1.0, 3.0)[1].tolist() == [1e9 + 2.0, 1e9 + 3.0]
    assert timeline.latest("gpu0", "clock", -1.0) == 1e9 + 3.0
    assert len(timeline.readings("gpu0", "utilisation", 0.0, 9.0)[1]) == 0
    assert timeline.latest("gpu0", "utilisation", -1.0) is None


def test_a_second_source_adds_to_a_device() -> None:
    """Gauges that another source offers for a card do not erase its energy."""
    timeline = timeline_of(power(GPU))
    play(timeline, power(GPU), 0.0, 2.0, 100.0)
    timeline.register([channel("temperature", "gauge", GPU)])
    assert timeline.energy("gpu0", 0.0, 2.0).energy_j == pytest.approx(200.0, rel=1e-12)
    assert [offered.quantity for offered in timeline.channels("gpu0")] == ["power", "temperature"]


def test_the_energy_of_a_device_has_one_source() -> None:
    """A second source for the same energy is refused, and leaves the first as it was."""
    timeline = timeline_of(power(GPU))
    play(timeline, power(GPU), 0.0, 2.0, 100.0)
    with pytest.raises(ValueError, match="'gpu0' is measured already"):
        timeline.register([power(CPU), power(GPU)])
    assert timeline.metered == ("gpu0",)
    assert timeline.energy("gpu0", 0.0, 2.0).energy_j == pytest.approx(200.0, rel=1e-12)


# --- what is settled


def test_settled_is_what_the_slowest_device_has_settled() -> None:
    """With readings of two devices up to 4 s and 3 s, everything is final up to 3 s."""
    timeline = timeline_of(power(GPU), power(CPU))
    play(timeline, power(GPU), 0.0, 4.0, 100.0)
    play(timeline, power(CPU), 0.0, 3.0, 100.0)
    assert timeline.settled_s(4.5) == 3.0


def test_a_device_whose_energy_is_still_provisional_is_waited_for() -> None:
    """Samples that no counter has anchored yet are not final, whatever other devices say."""
    counter = channel("energy", "counter", GPU)
    timeline = timeline_of(power(GPU), counter, power(CPU))
    play(timeline, power(GPU), 0.5, 3.0, 100.0)
    play(timeline, power(CPU), 0.0, 3.0, 100.0)
    assert timeline.settled_s(3.0) == 0.5
    timeline.extend([Reading(counter, 1.0, 0.0), Reading(counter, 2.5, 150.0)])
    assert timeline.settled_s(3.0) == 2.5


def test_what_is_provisional_is_told_where_it_is_asked_for() -> None:
    """2 s at 100 W that no counter has confirmed: no final interval, four provisional ones."""
    timeline = timeline_of(power(GPU), channel("energy", "counter", device=GPU))
    play(timeline, power(GPU), 0.0, 2.0, 100.0)
    assert timeline.intervals("gpu0", 0.0, 2.0) is None
    found = timeline.intervals("gpu0", 0.0, 2.0, provisional=True)
    assert found is not None
    assert found.energy_j.tolist() == pytest.approx([50.0] * 4)


def test_a_device_that_was_silent_for_long_is_not_waited_for() -> None:
    """After 6 s without a reading a device has a gap, and the others go on."""
    timeline = timeline_of(power(GPU), power(CPU))
    play(timeline, power(GPU), 0.0, 2.0, 100.0)
    play(timeline, power(CPU), 0.0, 20.0, 100.0)
    assert timeline.settled_s(7.9) == 2.0
    assert timeline.settled_s(8.1) == 20.0


def test_nothing_is_settled_before_a_new_device_has_shown_something() -> None:
    """A device without readings is waited for, but not longer than 6 s."""
    timeline = timeline_of(power(GPU), power(CPU))
    play(timeline, power(CPU), 0.0, 9.0, 100.0)
    assert timeline.settled_s(1.0) is None
    assert timeline.settled_s(6.9) is None
    assert timeline.settled_s(7.1) == 9.0


def test_a_source_that_is_still_opening_is_waited_for() -> None:
    """A source that has not opened is waited for, but not longer than 6 s."""
    timeline = timeline_of(power(CPU))
    timeline.expect(2)
    play(timeline, power(CPU), 0.0, 9.0, 100.0)
    assert timeline.settled_s(1.0) is None
    timeline.arrived()
    assert timeline.settled_s(2.0) is None
    assert timeline.settled_s(7.5) == 9.0
    timeline.arrived()
    assert timeline.settled_s(7.6) == 9.0


def test_complete_waits_for_a_driver_that_hangs_and_not_for_one_that_is_lost() -> None:
    """A device that hangs is waited for; a lost device is not."""
    timeline = timeline_of(power(GPU), power(CPU), channel("rss", "gauge", PROCESS))
    assert timeline.complete_s(0.0) is None
    play(timeline, power(GPU), 0.0, 2.0, 100.0)
    play(timeline, power(CPU), 0.0, 20.0, 100.0)
    assert timeline.complete_s(20.0) == 2.0
    timeline.mark(["gpu0"], is_lost=True)
    assert timeline.complete_s(20.0) == 20.0
    timeline.mark(["cpu0", "process"], is_lost=True)
    assert timeline.complete_s(20.0) == timeline.settled_s(20.0)


def test_a_device_that_the_run_begins_to_use() -> None:
    """Before, its energy is 0 and fully covered; readings of that time are dropped."""
    timeline = Timeline()
    timeline.register([power(GPU)], 10.0)
    play(timeline, power(GPU), 5.0, 20.0, 100.0)

    across = timeline.energy("gpu0", 5.0, 15.0)
    before = timeline.energy("gpu0", 0.0, 10.0)
    assert (before.energy_j, before.coverage) == (0.0, 1.0)
    assert timeline.seen("gpu0", 0.0, 10.0) == (0.0, 1.0)
    assert timeline.seen("gpu0", 5.0, 15.0) == (across.energy_j, across.coverage)
    assert across.energy_j == pytest.approx(500.0)
    assert across.coverage == pytest.approx(1.0)
    assert timeline.energy("gpu0", 15.0, 25.0).coverage == pytest.approx(0.5)
    assert timeline.energy("gpu0", 0.0, 40.0).coverage == pytest.approx(0.5)
    assert timeline.start_s("gpu0") == pytest.approx(10.0)


def test_final_energies_stay_when_a_device_joins() -> None:
    """A device does not count in moments that were final before it was known."""
    timeline = timeline_of(power(GPU))
    play(timeline, power(GPU), 0.0, 12.0, 100.0)
    assert timeline.settled_s(12.0) == pytest.approx(12.0)
    timeline.register([power(GPU1)], 10.0)

    assert timeline.used_since_s("gpu0") == -math.inf
    assert timeline.used_since_s("gpu1") == pytest.approx(12.0)


def test_a_lost_device_that_another_source_offers_is_waited_for_again() -> None:
    """A device is not lost any more when another source offers it."""
    timeline = timeline_of(power(GPU), power(CPU))
    play(timeline, power(GPU), 0.0, 2.0, 100.0)
    play(timeline, power(CPU), 0.0, 20.0, 100.0)
    timeline.mark(["gpu0"], is_lost=True)
    timeline.register([channel("temperature", "gauge", GPU)])
    assert timeline.complete_s(20.0) == 2.0


def test_settled_never_goes_back() -> None:
    """A device that appears late does not move back the settled moment."""
    timeline = timeline_of(power(GPU))
    play(timeline, power(GPU), 0.0, 20.0, 100.0)
    assert timeline.settled_s(20.5) == 20.0
    timeline.register([power(CPU)])
    assert timeline.settled_s(20.6) == 20.0
    play(timeline, power(CPU), 18.0, 19.0, 100.0)
    assert timeline.settled_s(20.7) == 20.0


def test_nothing_seen_is_settled_nowhere() -> None:
    """Without any device that has energy there is no settled moment."""
    assert Timeline().settled_s(100.0) is None
    assert timeline_of(channel("rss", "gauge", PROCESS)).settled_s(100.0) is None


def test_finish_settles_everything() -> None:
    """After ``finish`` all energy is final."""
    timeline = timeline_of(power(GPU), channel("energy", "counter", GPU))
    play(timeline, power(GPU), 0.0, 4.0, 100.0)
    timeline.finish()
    assert timeline.settled_s(4.0) == 4.0


def test_a_moment_that_was_pinned_early_stays_exact_for_a_device_that_opens_late() -> None:
    """A buffer may reach back before its source opened: earlier pins hold for it too."""
    mean = power(GPU, "mean")
    timeline = Timeline(keep_s=60.0)
    timeline.pin(3.7)
    timeline.pin(9.1)
    timeline.register([mean])
    times_s = np.arange(0.0, 400.0, 0.5)
    watts = np.random.default_rng(0).uniform(50.0, 500.0, len(times_s))
    readings = [Reading(mean, float(t), float(w)) for t, w in zip(times_s, watts, strict=True)]
    timeline.extend(readings[:60])
    fresh_j = timeline.energy("gpu0", 3.7, 9.1).energy_j
    for reading in readings[60:]:
        timeline.extend([reading])
    assert timeline.energy("gpu0", 3.7, 9.1).energy_j == pytest.approx(fresh_j, rel=1e-12)


def test_disagreements_are_named_by_device() -> None:
    """A counter reset is reported with its device; without one the result is empty."""
    counter = channel("energy", "counter", GPU)
    timeline = timeline_of(counter, power(CPU))
    assert timeline.disagreements() == {}
    timeline.extend([Reading(counter, t, v) for t, v in [(0, 5.0), (1, 9.0), (2, 0.0), (3, 4.0)]])
    assert timeline.disagreements() == {"gpu0": 1}


def test_questions_from_other_threads_see_whole_readings() -> None:
    """Windows queried on another thread while readings are added are consistent."""
    timeline = timeline_of(power(GPU, "mean"))
    wrong, done = [], threading.Event()

    def ask() -> None:
        while not done.is_set():
            newest_s = timeline.newest_s("gpu0")
            if newest_s:
                energy_j = timeline.energy("gpu0", 0.0, newest_s).energy_j
                if energy_j is None or abs(energy_j - 200.0 * newest_s) > 1e-6 * energy_j:
                    wrong.append((newest_s, energy_j))

    asker = threading.Thread(target=ask)
    asker.start()
    for number in range(1500):
        timeline.extend([Reading(power(GPU, "mean"), number * 0.5, 200.0)])
    done.set()
    asker.join(60.0)
    assert wrong == []


@pytest.mark.parametrize("is_early", [True, False])
def test_devices_that_open_later_learn_the_period_of_the_steps(is_early: bool) -> None:
    """Steps of 97 ms widen the interval of a counter that is read every 100 ms, in either order."""
    counter = channel("energy", "counter", GPU)
    edges_j = []
    for period_s in (0.097, 0.7):
        timeline = Timeline()
        if is_early:
            timeline.note_period(period_s)
        timeline.register([counter])
        if not is_early:
            timeline.note_period(period_s)
        timeline.extend([Reading(counter, 0.1 * n, 25.0 * n) for n in range(200)])
        timeline.finish()
        edges_j.append(timeline.energy("gpu0", 10.0, 10.05).edge_j)
    assert edges_j[0] > 1.5 * edges_j[1]


def test_newest_power_readings_are_kept_as_they_came() -> None:
    """20 to 30 s of them, with the times at which they were read."""
    timeline = timeline_of(channel("power", "gauge", device=GPU, period_s=0.5, lag_s=0.2))
    of = timeline.channels("gpu0")[0]
    timeline.extend(readings_of(constant(70.0), of, np.arange(0.0, 100.1, 0.5)))
    t_s, power_w = timeline.recent_power("gpu0")
    assert (t_s[-1], set(power_w)) == (100.0, {70.0})
    assert 70.0 <= t_s[0] <= 80.0

"""Energies of phases from readings, spans and windows as they arrive during a training."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from energy_callbacks.accounting.device_edges import DeviceEdges
from energy_callbacks.accounting.metrics.phase_energy import PhaseEnergy
from energy_callbacks.accounting.phases import PhaseSpan
from energy_callbacks.core.records import Channel, Device, Energy, Reading, Sensor
from energy_callbacks.sensing.timeline import Timeline

START_S = 1000.0
TRAIN_W, VALIDATION_W = 400.0, 100.0
POWERS_W = {"train": TRAIN_W, "validation": VALIDATION_W, "checkpoint": 50.0}
Part = tuple[str, float]


def counter(key: str = "cpu0", **sensor: Any) -> Channel:
    """An energy counter."""
    return Channel(
        device=Device(key=key, kind="cpu", scope="host", name=key),
        quantity="energy",
        kind="counter",
        sensor=Sensor(name="counter", period_s=0.001, **sensor),
    )


@dataclass
class Load:
    """Power that is constant in each part of a training.

    Attributes:
        parts: name and duration of each part, which need not be phases.
        watts: power of each name; of other names 200 W.
    """

    parts: Sequence[Part]
    watts: dict[str, float] = field(default_factory=lambda: POWERS_W)

    @property
    def edges_s(self) -> np.ndarray:
        """Start of each part, and the end."""
        return START_S + np.cumsum([0.0, *(duration_s for _, duration_s in self.parts)])

    def energy_to_j(self, t_s: np.ndarray) -> np.ndarray:
        """Energy from the start."""
        powers_w = [self.watts.get(name, 200.0) for name, _ in self.parts]
        at_edges_j = np.concatenate([[0.0], np.cumsum(np.diff(self.edges_s) * powers_w)])
        return np.interp(t_s, self.edges_s, at_edges_j)

    def true_j(self, name: str) -> float:
        """Energy of all parts of a name."""
        return sum(
            self.watts.get(one, 200.0) * length_s for one, length_s in self.parts if one == name
        )

    def spans(self) -> Iterator[PhaseSpan]:
        """The parts as spans of phases."""
        for (name, _), start_s, end_s in zip(
            self.parts, self.edges_s, self.edges_s[1:], strict=False
        ):
            yield PhaseSpan(name=name, start_s=float(start_s), end_s=float(end_s))

    def readings(self, channel: Channel, t_s: np.ndarray) -> list[Reading]:
        """Readings of a counter."""
        return [
            Reading(channel, at_s, value_j, 1e-5)
            for at_s, value_j in zip(t_s.tolist(), self.energy_to_j(t_s).tolist(), strict=True)
        ]


def every(load: Load, interval_s: float) -> np.ndarray:
    """Times of readings from start to end, unrelated to the edges."""
    return np.append(np.arange(START_S, load.edges_s[-1], interval_s * 1.0007), load.edges_s[-1])


class Training:
    """A training that is followed as the journal's thread does, every few seconds.

    Args:
        spans: spans of phases, in time order.
        readings: readings of all devices.
        channels: channels of the devices, registered at these times.
        device_edges: delays of a GPU, if they are measured.
    """

    def __init__(
        self,
        spans: Sequence[PhaseSpan],
        readings: Sequence[Reading],
        channels: Sequence[tuple[Channel, float]],
        device_edges: DeviceEdges | None = None,
    ) -> None:
        self.timeline = Timeline()
        self.phases = PhaseEnergy(self.timeline, device_edges)
        self.windows: list[tuple[float, PhaseSpan]] = []  # with the time at which each is known
        self.edges: list[int] = []  # number of edges that are kept
        self._spans = list(spans)
        self._readings = sorted(readings, key=lambda one: one.t_s)
        self._channels = list(channels)

    def run(
        self, end_s: float, interval_s: float = 2.0, later_s: float = 0.0
    ) -> "dict[str, dict[str, Energy]]":
        """Follow the training up to a moment, and return the energies.

        Devices are read until ``later_s`` after that.
        """
        for now_s in (*np.arange(START_S, end_s, interval_s).tolist(), end_s):
            self._advance(now_s)
            self.phases.update(now_s)
            self.edges.append(len(self.phases._edges_s))
        self._advance(end_s + later_s)
        self.timeline.finish()
        self.phases.update(end_s, is_final=True)
        return self.phases.energies()

    def _advance(self, now_s: float) -> None:
        for channel in _taken(self._channels, lambda one: one[1] <= now_s):
            self.timeline.register([channel[0]])
        if new := _taken(self._readings, lambda one: one.t_s <= now_s):
            self.timeline.extend(new)
        for span in _taken(self._spans, lambda one: one.end_s <= now_s):
            self.timeline.pin(span.end_s)
            self.phases.add(span)
        if self._spans:
            self.phases.begin(self._spans[0].name, self._spans[0].start_s)
        for _, window in _taken(self.windows, lambda one: one[0] <= now_s):
            self.phases.rename(window)


def _taken(queue: list[Any], is_due: Callable[[Any], bool]) -> list[Any]:
    count = next((place for place, one in enumerate(queue) if not is_due(one)), len(queue))
    taken, queue[:] = queue[:count], queue[count:]
    return taken


def training(load: Load, interval_s: float = 0.1, spans: Sequence[PhaseSpan] = ()) -> Training:
    """A training on one device with a counter."""
    channel = counter()
    readings = load.readings(channel, every(load, interval_s))
    return Training(list(spans) or list(load.spans()), readings, [(channel, START_S)])


def window(name: str, start_s: float, end_s: float) -> PhaseSpan:
    """A window, in seconds since the start."""
    return PhaseSpan(name=name, start_s=START_S + start_s, end_s=START_S + end_s)


def check(found: dict[str, Energy], load: Load, limit: float = 0.02) -> None:
    """Each phase has its energy within its interval, which is narrow; the sum is exact."""
    for name, energy in found.items():
        true_j = load.true_j(name)
        assert energy.energy_j is not None
        assert abs(energy.energy_j - true_j) <= energy.error_j <= limit * true_j, (name, energy)
    total_j = sum(energy.energy_j or 0.0 for energy in found.values())
    assert total_j == pytest.approx(sum(map(load.true_j, dict(load.parts))), rel=1e-6)


REPEATED = Load([("train", 2.03), ("validation", 0.51)] * 50)


def test_repeated_phases_have_their_energies() -> None:
    """Train and validation in turn, for two minutes: nothing is kept of old edges."""
    followed = training(REPEATED)
    check(followed.run(REPEATED.edges_s[-1])["cpu0"], REPEATED)
    assert max(followed.edges) < 60


def test_intervals_that_reach_beyond_the_training() -> None:
    """Of the first and the last interval, the phases have the part inside the training."""
    idle = Load([("", 0.73), *REPEATED.parts[:20], ("", 0.73)])
    start_s, end_s = float(idle.edges_s[1]), float(idle.edges_s[-2])
    spans = list(idle.spans())[1:-1]
    followed = training(idle, 0.5, spans)
    found = followed.run(end_s, later_s=0.73)["cpu0"]
    whole = followed.timeline.energy("cpu0", start_s, end_s)
    total_j = sum(energy.energy_j or 0.0 for energy in found.values())
    assert total_j == pytest.approx(whole.energy_j, rel=1e-8)


def test_counters_that_are_read_more_often_near_edges() -> None:
    """Every 50 ms for a second after each edge, every 0.8 s otherwise, as RAPL is read."""
    load = Load([("train", 7.03), ("validation", 3.51)] * 10)
    near_s = np.concatenate([np.arange(edge_s, edge_s + 1.0, 0.05) for edge_s in load.edges_s])
    t_s = np.unique(np.concatenate([near_s + 0.0173, every(load, 0.8)]))
    channel = counter()
    readings = load.readings(channel, t_s[t_s <= load.edges_s[-1]])
    followed = Training(list(load.spans()), readings, [(channel, START_S)])
    check(followed.run(load.edges_s[-1])["cpu0"], load)


def test_windows_inside_the_open_phase() -> None:
    """Checkpoints are known when they end, and the phase continues after them."""
    parts = [("train", 3.03), ("checkpoint", 0.51)] * 30 + [("train", 2.0)]
    load = Load(parts)
    whole = [PhaseSpan(name="train", start_s=START_S, end_s=float(load.edges_s[-1]))]
    followed = training(load, spans=whole)
    followed.windows = [(span.end_s, span) for span in load.spans() if span.name == "checkpoint"]
    check(followed.run(load.edges_s[-1])["cpu0"], load)


def test_windows_across_spans() -> None:
    """A window takes the end of a validation and the start of the training after it."""
    pieces = [("train", 3.03), ("validation", 1.0), ("checkpoint", 0.9)] * 20
    load = Load(pieces)
    edges_s = load.edges_s
    spans = []
    for number in range(20):
        low = 3 * number
        half_s = float(edges_s[low + 2] + 0.4)  # where the span of the validation ends
        begun_s = float(edges_s[low] - 0.5) if number else START_S
        spans.append(PhaseSpan(name="train", start_s=begun_s, end_s=float(edges_s[low + 1])))
        spans.append(PhaseSpan(name="validation", start_s=spans[-1].end_s, end_s=half_s))
    followed = training(load, spans=spans)
    followed.windows = [(span.end_s, span) for span in load.spans() if span.name == "checkpoint"]
    check(followed.run(edges_s[-1])["cpu0"], load)


def labels(phases: PhaseEnergy) -> list[tuple[float, str]]:
    """Edges with the phases after them, in seconds since the start."""
    names = [phases._names[label] for label in phases._labels]
    return [(edge_s - START_S, name) for edge_s, name in zip(phases._edges_s, names, strict=True)]


@pytest.fixture
def phases() -> PhaseEnergy:
    """``idle`` from 0 to 10 s, ``train`` from 10 to 20 s, then ``validation``."""
    found = PhaseEnergy(Timeline())
    found.add(window("idle", 0.0, 10.0))
    found.add(window("train", 10.0, 20.0))
    found.begin("validation", START_S + 20.0)
    return found


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([(12, 13)], "0 idle 10 train 12 w 13 train 20 validation"),
        ([(8, 21)], "0 idle 8 w 21 validation"),
        ([(10, 12)], "0 idle 10 w 12 train 20 validation"),
        ([(15, 20)], "0 idle 10 train 15 w 20 validation"),
        ([(10, 20)], "0 idle 10 w 20 validation"),
        ([(-5, 3)], "0 w 3 idle 10 train 20 validation"),
        ([(12, 15), (13, 17)], "0 idle 10 train 12 w 13 w 17 train 20 validation"),
        ([(12, 17), (13, 14)], "0 idle 10 train 12 w 13 w 14 w 17 train 20 validation"),
        ([(12, 12)], "0 idle 10 train 20 validation"),
        ([(21, 23)], "0 idle 10 train 20 validation 21 w 23 validation"),
    ],
)
def test_windows_change_the_phase_of_their_time(
    phases: PhaseEnergy, windows: list[tuple[float, float]], expected: str
) -> None:
    """Edges are ascending, and the phase after a window is that which was open."""
    for start_s, end_s in windows:
        phases.rename(window("w", start_s, end_s))
    assert " ".join(f"{t_s:g} {name}" for t_s, name in labels(phases)) == expected


def test_a_window_that_is_known_before_the_spans_in_it(phases: PhaseEnergy) -> None:
    """Edges stay in time order: the window ends, and then the phase that began inside it."""
    phases.rename(window("w", 21.0, 24.0))
    phases.add(window("validation", 20.0, 22.0))
    phases.add(window("train", 22.0, 30.0))
    times_s = [t_s for t_s, _ in labels(phases)]
    assert times_s == sorted(times_s)
    assert labels(phases)[-2:] == [(21.0, "w"), (24.0, "train")]


def test_phases_of_no_length_are_not_edges() -> None:
    """``idle`` is left at the moment at which it began."""
    found = PhaseEnergy(Timeline())
    found.begin("idle", START_S)
    found.add(window("idle", 0.0, 0.0))
    found.begin("train", START_S)
    assert labels(found) == [(0.0, "train")]


def test_a_window_that_is_known_too_late() -> None:
    """Its time is already in the sums of another phase, so there are no energies at all."""
    load = Load([("train", 10.0), ("validation", 2.0)] * 20)
    followed = training(load)
    followed.windows = [(START_S + 120.0, window("checkpoint", 30.0, 31.0))]
    assert followed.run(load.edges_s[-1]) == {}
    assert not followed.phases.is_complete
    assert followed.edges[-1] == 0


def test_a_window_is_known_in_time_for_a_minute() -> None:
    """Energies follow the readings by 60 s, so a window of 50 s is not too late."""
    parts = [("train", 50.0), ("checkpoint", 50.0), ("train", 50.0)]
    load = Load(parts)
    whole = [PhaseSpan(name="train", start_s=START_S, end_s=float(load.edges_s[-1]))]
    followed = training(load, spans=whole)
    followed.windows = [(START_S + 101.0, window("checkpoint", 50.0, 100.0))]
    check(followed.run(load.edges_s[-1])["cpu0"], load)


@pytest.mark.parametrize("count", [8, 9, 300])
def test_too_many_phases(count: int) -> None:
    """Up to eight are fitted; with more there are no energies, and nothing is kept."""
    names = [f"phase {number}" for number in range(count)]
    watts = {name: 100.0 + 200.0 * (number % 2) for number, name in enumerate(names)}
    load = Load([(name, 1.01) for name in names] * 2, watts)
    followed = training(load)
    found = followed.run(load.edges_s[-1])
    assert followed.phases.is_complete == (count == 8)
    assert len(found.get("cpu0", ())) == (count if count == 8 else 0)
    if count > 8:
        assert followed.edges[-1] == 0
        assert len(followed.phases._names) < 30


def test_a_phase_just_after_the_start() -> None:
    """Candidates with edges that are 20 ms earlier have no time in it; all phases are known."""
    load = Load([("idle", 0.002), ("setup", 0.01), *REPEATED.parts], POWERS_W | {"idle": 100.0})
    found = training(load).run(load.edges_s[-1])["cpu0"]
    assert set(found) == {"idle", "setup", "train", "validation"}
    for name in ("train", "validation"):
        error_j = abs(found[name].energy_j - load.true_j(name))
        assert error_j <= found[name].error_j <= 0.02 * load.true_j(name)


def test_phases_of_equal_power_are_left_to_the_spans() -> None:
    """A fit could only exchange energy between the first and the last phase."""
    load = Load([("train", 1.01), ("validation", 0.31)] * 10, {"train": 200.0, "validation": 201.0})
    assert training(load).run(load.edges_s[-1]) == {}


def gauge_training(load: Load, is_seen: Callable[[np.ndarray], np.ndarray]) -> Training:
    """A training whose power is read every 20 ms, except at some moments."""
    power = Channel(
        device=Device(key="gpu0", kind="gpu", scope="gpu", name="gpu0"),
        quantity="power",
        kind="gauge",
        sensor=Sensor(name="gauge", period_s=0.02),
    )
    t_s = every(load, 0.02)
    t_s = t_s[is_seen(t_s) | (t_s > load.edges_s[-1] - 1.0)]
    powers_w = np.array([load.watts[name] for name, _ in load.parts])
    parts = np.minimum(np.searchsorted(load.edges_s, t_s, side="right"), len(powers_w)) - 1
    columns = t_s.tolist(), powers_w[parts].tolist()
    readings = [Reading(power, at_s, value_w) for at_s, value_w in zip(*columns, strict=True)]
    return Training(list(load.spans()), readings, [(power, START_S)])


def test_gaps_reduce_the_coverage() -> None:
    """The power is not read for half of the validations, which have half of their energy."""
    load = Load([("train", 2.0), ("validation", 1.0)] * 40)
    followed = gauge_training(
        load, lambda t_s: ((t_s - START_S) % 6.0 < 2.0) | ((t_s - START_S) % 6.0 > 3.0)
    )
    found = followed.run(load.edges_s[-1])["gpu0"]
    assert found["train"].coverage == pytest.approx(1.0, abs=0.01)
    assert found["validation"].coverage == pytest.approx(0.5, abs=0.03)
    assert found["validation"].energy_j == pytest.approx(20 * VALIDATION_W, rel=0.05)
    assert found["train"].method == "power"


def test_a_phase_in_a_gap_has_no_energy() -> None:
    """All checkpoints, and a second around them, are not seen; other phases follow."""
    load = Load([("train", 4.0), ("checkpoint", 2.0), ("validation", 4.0)] * 10)
    followed = gauge_training(load, lambda t_s: np.abs((t_s - START_S) % 10.0 - 5.0) > 2.0)
    assert set(followed.run(load.edges_s[-1])["gpu0"]) == {"train", "validation"}


def test_a_phase_without_readings_has_no_energy() -> None:
    """The readings end before the last phase begins."""
    load = Load([("train", 10.0), ("validation", 2.0)] * 5 + [("checkpoint", 5.0)])
    channel = counter()
    t_s = every(load, 0.1)
    readings = load.readings(channel, t_s[t_s < load.edges_s[-2] - 0.5])
    followed = Training(list(load.spans()), readings, [(channel, START_S)])
    assert set(followed.run(load.edges_s[-1])["cpu0"]) == {"train", "validation"}


def test_a_device_that_appears_late() -> None:
    """It has the energies of its own time; the other device has all."""
    load = Load([("train", 2.03), ("validation", 0.51)] * 100)
    first, late = counter("cpu0"), counter("cpu1")
    t_s = every(load, 0.1)
    late_s = t_s[t_s > START_S + 150.0]
    readings = [*load.readings(first, t_s), *load.readings(late, late_s)]
    channels = [(first, START_S), (late, START_S + 150.0)]
    followed = Training(list(load.spans()), readings, channels)
    found = followed.run(load.edges_s[-1])
    check(found["cpu0"], load)
    share = (load.edges_s[-1] - late_s[0]) / (load.edges_s[-1] - START_S)
    for name, energy in found["cpu1"].items():
        assert energy.energy_j == pytest.approx(share * load.true_j(name), rel=0.02)


def test_a_lost_device_keeps_its_energies_and_no_edges() -> None:
    """Its readings end after a minute of half an hour; edges of later phases are forgotten."""
    load = Load([("train", 2.03), ("validation", 0.51)] * 700)
    first, lost = counter("cpu0"), counter("cpu1")
    t_s = every(load, 0.5)
    short_s = t_s[t_s < START_S + 60.0]
    readings = [*load.readings(first, t_s), *load.readings(lost, short_s)]
    channels = [(first, START_S), (lost, START_S)]
    followed = Training(list(load.spans()), readings, channels)
    found = followed.run(load.edges_s[-1])
    check(found["cpu0"], load)
    assert max(followed.edges[-100:]) < 450
    known_j = sum(energy.energy_j or 0.0 for energy in found["cpu1"].values())
    assert known_j == pytest.approx(load.energy_to_j(short_s[-1:])[0], rel=1e-6)


def test_readings_that_come_too_late_are_left_out() -> None:
    """A device hangs for ten minutes: the phases of its readings are not known any more."""
    load = Load([("train", 20.3), ("validation", 5.1)] * 40)
    first, hung = counter("cpu0"), counter("cpu1")
    t_s = every(load, 0.5)
    seen_s = t_s[(t_s < START_S + 60.0) | (t_s > START_S + 700.0)]
    readings = [*load.readings(first, t_s), *load.readings(hung, seen_s)]
    channels = [(first, START_S), (hung, START_S)]
    followed = Training(list(load.spans()), readings, channels)
    assert set(followed.run(load.edges_s[-1])) == {"cpu0"}


def test_intervals_that_the_timeline_has_thinned_are_not_used() -> None:
    """The journal's thread was blocked for twenty minutes."""
    load = Load([("train", 2.03), ("validation", 0.51)] * 500)
    followed = training(load, 0.5)
    assert followed.run(load.edges_s[-1], interval_s=1200.0) == {}


def test_hours_with_rare_phases() -> None:
    """Six hours of training with a validation of 30 s every hour: within 0.1 %."""
    load = Load([("train", 3570.0), ("validation", 30.0)] * 6)
    followed = training(load, 1.0)
    check(followed.run(load.edges_s[-1], interval_s=20.0)["cpu0"], load, 0.005)
    assert max(followed.edges) <= 3


def test_estimated_devices_have_the_error_of_the_model() -> None:
    """CodeCarbon's model gives means over a second: 30 % systematic, and its method."""
    device = Device(key="cpu0", kind="cpu", scope="host", name="model", origin="estimated")
    sensor = Sensor(name="model", period_s=1.0, relative_error=0.3)
    channel = Channel(device=device, quantity="power", kind="mean", sensor=sensor)
    load = Load([("train", 20.3), ("validation", 5.1)] * 10)
    t_s = every(load, 1.0)
    watts = np.diff(load.energy_to_j(t_s)) / np.diff(t_s)
    columns = t_s[1:].tolist(), watts.tolist()
    readings = [Reading(channel, START_S, TRAIN_W)]
    readings += [Reading(channel, at_s, value_w) for at_s, value_w in zip(*columns, strict=True)]
    followed = Training(list(load.spans()), readings, [(channel, START_S)])
    found = followed.run(load.edges_s[-1])["cpu0"]
    for name, energy in found.items():
        assert energy.method == "model"
        assert energy.energy_j == pytest.approx(load.true_j(name), rel=0.02)
        assert energy.systematic_j == pytest.approx(0.3 * (energy.energy_j or 0.0))
        assert energy.coverage == pytest.approx(1.0)


def test_a_device_without_readings_is_left_out() -> None:
    """Its source has opened, but never delivered anything."""
    load = Load([("train", 10.0), ("validation", 2.0)] * 5)
    first, silent = counter("cpu0"), counter("cpu1")
    readings = load.readings(first, every(load, 0.1))
    followed = Training(list(load.spans()), readings, [(first, START_S), (silent, START_S)])
    assert set(followed.run(load.edges_s[-1])) == {"cpu0"}


def test_energies_up_to_now_change_nothing() -> None:
    """In the middle, the energies so far are known; at the end, they are as if nobody had asked."""
    load = Load([("train", 0.23), ("validation", 0.11)] * 60)
    readings = load.readings(counter(), every(load, 0.05))

    def training() -> Training:
        return Training(list(load.spans()), readings, [(counter(), START_S)])

    asked, end_s = training(), float(load.edges_s[-1])
    asked._advance(START_S + 10.0)
    asked.phases.update(START_S + 10.0)
    so_far = asked.phases.energies_until(START_S + 10.0)["cpu0"]
    assert asked.phases.energies() == {}
    turns = 10.0 / 0.34
    for name, length_s in (("train", 0.23), ("validation", 0.11)):
        true_j = turns * length_s * POWERS_W[name]
        assert so_far[name].energy_j == pytest.approx(true_j, rel=0.05)
    assert asked.run(end_s) == training().run(end_s)


class MeasuredEdges(DeviceEdges):
    """Delays of the device ``gpu0`` behind the host, by the host's time.

    Args:
        delays_s: the delays; those of other times were not measured.
    """

    def __init__(self, delays_s: dict[float, float]) -> None:
        self.delays_s = delays_s

    def are_of(self, device: Device) -> bool:
        return device.key == "gpu0"

    def delay_s(self, t_s: float) -> float:
        return self.delays_s.get(t_s, math.nan)

    def forget(self, until_s: float) -> None:
        for t_s in [t_s for t_s in self.delays_s if t_s < until_s]:
            del self.delays_s[t_s]


def late(load: Load, share: float = 1.0) -> tuple[list[PhaseSpan], MeasuredEdges]:
    """The host's spans, 60 to 140 ms ahead, and the measured delays of this share of the edges."""
    dice = np.random.default_rng(0)
    host_s = load.edges_s - dice.uniform(0.06, 0.14, len(load.edges_s))
    host_s[0], host_s[-1] = load.edges_s[0], load.edges_s[-1]
    spans = [
        PhaseSpan(name=name, start_s=start_s, end_s=end_s)
        for (name, _), start_s, end_s in zip(
            load.parts, host_s.tolist(), host_s[1:].tolist(), strict=False
        )
    ]
    is_measured = dice.random(len(host_s)) < share
    delays_s = (load.edges_s - host_s)[is_measured].tolist()
    return spans, MeasuredEdges(dict(zip(host_s[is_measured].tolist(), delays_s, strict=True)))


def late_training(load: Load, key: str, spans: list[PhaseSpan], edges: DeviceEdges) -> Training:
    """A training on a device with a counter that is read every 100 ms."""
    channel = counter(key)
    readings = load.readings(channel, every(load, 0.1))
    return Training(spans, readings, [(channel, START_S)], edges)


ALIKE = Load(REPEATED.parts, {"train": 600.0, "validation": 560.0})


@pytest.mark.parametrize("load", [REPEATED, ALIKE])
def test_measured_delays_need_no_estimate(load: Load) -> None:
    """Delays of 60 to 140 ms, which vary: energies within 0.5 %, also of phases that are alike."""
    spans, edges = late(load)
    followed = late_training(load, "gpu0", spans, edges)
    check(followed.run(load.edges_s[-1])["gpu0"], load, 0.005)
    assert len(edges.delays_s) < 60, "old delays are kept"


def test_a_few_delays_that_were_not_measured_widen_the_interval() -> None:
    """One in 20 edges: each may be late by the longest delay of the others."""
    followed = late_training(REPEATED, "gpu0", *late(REPEATED, 0.95))
    check(followed.run(REPEATED.edges_s[-1])["gpu0"], REPEATED, 0.2)


@pytest.mark.parametrize(("key", "share"), [("cpu0", 1.0), ("gpu0", 0.0)])
def test_delays_that_were_not_measured_are_estimated(key: str, share: float) -> None:
    """On other devices, and if no event was recorded: as wide as the delays vary."""
    followed = late_training(REPEATED, key, *late(REPEATED, share))
    check(followed.run(REPEATED.edges_s[-1])[key], REPEATED, 0.15)


def test_power_that_changes_inside_a_phase_is_no_delay_if_delays_are_measured() -> None:
    """The GPU rests for 0.2 s after each validation, until the host queues the next work."""
    parts = [("train", 1.0), ("validation", 0.5), ("slow start", 0.2)] * 40
    load = Load(
        [*parts, ("train", 1.0)], {"train": 400.0, "validation": 100.0, "slow start": 100.0}
    )
    spans, edges = late(load)
    spans = [replace(s, name="train") if s.name == "slow start" else s for s in spans]
    found = late_training(load, "gpu0", spans, edges).run(load.edges_s[-1])["gpu0"]["validation"]
    assert abs(found.energy_j - load.true_j("validation")) <= found.error_j
    assert found.error_j <= 0.3 * found.energy_j


def test_phases_that_the_gpu_has_not_reached_have_no_energy() -> None:
    """At the end of the attempt the GPU still trains, and the host is in the next phase."""
    load = Load([*REPEATED.parts, ("train", 1.0), ("checkpoint", 0.1)])
    spans, edges = late(load)
    edges.delays_s[spans[-1].start_s] = math.inf
    found = late_training(load, "gpu0", spans, edges).run(load.edges_s[-1])["gpu0"]
    assert "checkpoint" not in found
    true_j = load.true_j("train") + load.true_j("checkpoint")
    assert found["train"].energy_j == pytest.approx(true_j, rel=2e-3)

"""Loads whose power and energy are known in closed form, and a card that measures them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.records import Channel, Device, Energy, Kind, Reading, Sensor
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve

Array = NDArray[np.float64]

GPU = Device(key="gpu0", kind="gpu", scope="gpu", name="scripted GPU")


@dataclass(frozen=True)
class Load:
    """Power over time and its integral."""

    name: str
    power_w: Callable[[float], float]
    energy_j: Callable[[float], float]


def constant(power_w: float = 200.0) -> Load:
    """The same power at all times."""
    return Load("constant", lambda _: power_w, lambda t_s: power_w * t_s)


def ramp(power_w: float = 50.0, slope_w_per_s: float = 7.0) -> Load:
    """Power that rises steadily."""
    return Load(
        "ramp",
        lambda t_s: power_w + slope_w_per_s * t_s,
        lambda t_s: power_w * t_s + slope_w_per_s * t_s**2 / 2.0,
    )


def step(low_w: float = 60.0, high_w: float = 640.0, at_s: float = 5.03) -> Load:
    """Power that jumps once."""
    return Load(
        "step",
        lambda t_s: low_w if t_s < at_s else high_w,
        lambda t_s: low_w * t_s + (high_w - low_w) * max(t_s - at_s, 0.0),
    )


def channel(quantity: str, kind: Kind, device: Device = GPU, **sensor: object) -> Channel:
    """A channel of a device, with what is known of its sensor."""
    known = Sensor(name="scripted", **sensor) if sensor else None  # type: ignore[arg-type]
    return Channel(device=device, quantity=quantity, kind=kind, sensor=known)  # type: ignore[arg-type]


def readings_of(load: Load, of: Channel, times_s: Array) -> list[Reading]:
    """What a perfect sensor says of a load: one reading at each time."""
    if of.kind == "gauge":
        return [Reading(of, float(t_s), load.power_w(float(t_s))) for t_s in times_s]
    totals = [load.energy_j(float(t_s)) for t_s in times_s]
    if of.kind == "counter":
        return [Reading(of, float(t_s), total) for t_s, total in zip(times_s, totals, strict=True)]
    means = np.diff(totals) / np.diff(times_s)
    values = [load.power_w(float(times_s[0])), *map(float, means)]
    return [Reading(of, float(t_s), value) for t_s, value in zip(times_s, values, strict=True)]


def measured(load: Load, channels: list[Channel], times_s: Array, chunk_s: float) -> EnergyCurve:
    """A finished curve that was fed each ``chunk_s``, as a sampler does."""
    curve = EnergyCurve(channels)
    feed(curve, [r for of in channels for r in readings_of(load, of, times_s)], chunk_s)
    curve.finish()
    return curve


def feed(curve: EnergyCurve, readings: list[Reading], chunk_s: float = 0.5) -> None:
    """Hand readings over in the order of time, a chunk at once, and look as the journal does."""
    for chunk in chunks(readings, chunk_s):
        curve.add(chunk)
        _ = curve.settled_s


def chunks(readings: list[Reading], chunk_s: float) -> Iterator[list[Reading]]:
    """Readings in the order of time, a chunk at once."""
    ordered = sorted(readings, key=lambda reading: reading.t_s)
    bins = [int(reading.t_s // chunk_s) for reading in ordered]
    for number in sorted(set(bins)):
        yield [r for r, b in zip(ordered, bins, strict=True) if b == number]


def joules(energy: Energy) -> float:
    """The joules, which must be known."""
    assert energy.energy_j is not None
    return energy.energy_j


@dataclass(frozen=True)
class Staircase:
    """Power that stands still between switches, and the exact answer of a first-order sensor."""

    switches_s: Array
    power_w: Array

    @classmethod
    def random(cls, seed: int, *, mean_s: float, until_s: float) -> "Staircase":
        random = np.random.default_rng(seed)
        count = int(1.5 * until_s / mean_s) + 20
        switches_s = np.concatenate([[0.0], np.cumsum(random.exponential(mean_s, count))])
        return cls(switches_s, random.uniform(90.0, 690.0, count + 1))

    @classmethod
    def square(cls, period_s: float, *, until_s: float) -> "Staircase":
        count = int(2.0 * until_s / period_s) + 2
        return cls(np.arange(count) * period_s / 2.0, np.where(np.arange(count) % 2, 100.0, 550.0))

    def _place(self, t_s: Array) -> NDArray[np.intp]:
        return np.searchsorted(self.switches_s, t_s, side="right") - 1

    def energy_j(self, t_s: Array) -> Array:
        widths = np.diff(self.switches_s)
        before = np.concatenate([[0.0], np.cumsum(self.power_w[:-1] * widths)])
        place = self._place(t_s)
        return before[place] + self.power_w[place] * (t_s - self.switches_s[place])

    def sensed_w(self, t_s: Array, response_s: float) -> Array:
        """Solution of ``response ds/dt = power - s`` that starts at rest."""
        at_switch = [self.power_w[0]]
        for power_w, width_s in zip(self.power_w[:-1], np.diff(self.switches_s), strict=True):
            at_switch.append(power_w + (at_switch[-1] - power_w) * np.exp(-width_s / response_s))
        place = self._place(t_s)
        fade = np.exp(-(t_s - self.switches_s[place]) / response_s)
        return self.power_w[place] + (np.array(at_switch)[place] - self.power_w[place]) * fade


@dataclass(frozen=True)
class Card:
    """A card like an H200 as far as its sensors go.

    Power is sampled each 20 ms with 3 ms of jitter, 5 ms late and with a response of 15 ms; the
    energy counter moves each 100 ms, and once a second one of these moments is known to 2 ms: the
    ticks of one clock, which are nearly all early or all late.
    """

    load: Staircase
    until_s: float
    seed: int
    power: Channel
    counter: Channel

    @classmethod
    def under(cls, load: Staircase, *, until_s: float, seed: int) -> "Card":
        power = channel(
            "power", "gauge", period_s=0.02, lag_s=0.005, response_s=0.015, is_buffered=True
        )
        return cls(load, until_s, seed, power, channel("energy", "counter"))

    def readings(self) -> list[Reading]:
        random = np.random.default_rng(self.seed)
        ticks_s = np.arange(0.1, self.until_s, 0.02)
        times_s = ticks_s + random.uniform(-0.003, 0.003, len(ticks_s))
        watts = self.load.sensed_w(times_s - 0.005, 0.015)
        samples = [Reading(self.power, float(t), float(w)) for t, w in zip(times_s, watts)]  # noqa: B905
        anchors_s = np.arange(0.4, self.until_s, 1.0)
        totals = self.load.energy_j(anchors_s)
        errors_s = random.uniform(-0.002, 0.002) + random.uniform(-0.0003, 0.0003, len(anchors_s))
        anchors = [
            Reading(self.counter, float(t + e), float(j), 0.003)
            for t, e, j in zip(anchors_s, errors_s, totals, strict=True)
        ]
        return samples + anchors

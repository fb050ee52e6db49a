"""Simulated sensors whose readings are computed at once, without a simulated driver.

``tests/fake_nvml`` simulates the driver, which the package then reads; this takes milliseconds for
each simulated second. Here the readings of a whole training are arrays. Values, times and time
errors are those of ``NvmlSource`` on the cards of ``tests/fake_nvml/presets.py``;
``tests/test_sensor_models.py`` compares the two. A gain multiplies all readings of a card.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final, Protocol

import numpy as np

from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.sensing.sources.nvidia.known_sensors import (
    counter_sensor,
    generation,
    samples_sensor,
)
from tests.benchmarks.common.power_signal import Array, PowerSignal

GPU: Final = Device(key="gpu0", kind="gpu", scope="gpu", name="simulated GPU")
CPU: Final = Device(key="cpu0", kind="cpu", scope="host", name="RAPL package-0")
Random = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The readings of one channel.

    Attributes:
        channel: the channel.
        t_s: times of the readings, (n,).
        value: values, (n,).
        t_error_s: bounds of the errors of the times, (n,).
    """

    channel: Channel
    t_s: Array
    value: Array
    t_error_s: Array

    def readings(self, start_s: float, end_s: float) -> list[Reading]:
        """Return the readings with ``start_s <= t_s < end_s``."""
        first, last = np.searchsorted(self.t_s, (start_s, end_s))
        columns = (column[first:last].tolist() for column in (self.t_s, self.value, self.t_error_s))
        return list(map(Reading, repeat(self.channel), *columns))


def batches(streams: list[Stream], interval_s: float) -> Iterator[tuple[float, list[Reading]]]:
    """Yield the end of each interval and the readings in it, stream by stream as a source does."""
    starts_s = [stream.t_s[0] for stream in streams]
    end_s = max(stream.t_s[-1] for stream in streams)
    before_s = float(min(starts_s))
    while before_s <= end_s:
        until_s = before_s + interval_s
        yield until_s, [r for stream in streams for r in stream.readings(before_s, until_s)]
        before_s = until_s


class Part(Protocol):
    """One channel of a simulated card."""

    def stream(self, power: PowerSignal, start_s: float, end_s: float, random: Random) -> Stream:
        """Return all readings from ``start_s`` to ``end_s``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Samples in the driver's buffer: the filtered power before each stamp.

    Attributes:
        sensor: what the package knows about the sensor.
        lag_s: true lag.
        response_s: true time constant of the response.
        window_s: time over which a sample averages; 0 for none.
        spacing_s: mean time between two stamps.
        jitter_s: bound of the deviation of each stamp from equal distances.
    """

    sensor: Sensor
    lag_s: float
    response_s: float
    window_s: float = 0.0
    spacing_s: float = 0.02
    jitter_s: float = 0.003

    def values(self, power: PowerSignal, stamps_s: Array) -> Array:
        """Return the samples with these stamps."""
        return power.mean_w(stamps_s - self.lag_s, self.window_s, self.response_s)

    def stream(self, power: PowerSignal, start_s: float, end_s: float, random: Random) -> Stream:
        """See ``Part``."""
        grid_s = np.arange(start_s + random.uniform(0.0, self.spacing_s), end_s, self.spacing_s)
        stamps_s = grid_s + random.uniform(-self.jitter_s, self.jitter_s, len(grid_s))
        values_w = self.values(power, stamps_s)
        return _stream(_gauge(self.sensor), stamps_s, values_w, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A polled gauge: the mean power in the window before its last update.

    Attributes:
        sensor: what the package knows about the sensor.
        window_s: time over which a value averages.
        period_s: time between two updates.
        interval_s: mean time between two readings, which varies by up to a quarter.
    """

    sensor: Sensor
    window_s: float
    period_s: float
    interval_s: float

    def values(self, power: PowerSignal, t_s: Array, update_s: float = 0.0) -> Array:
        """Return the values read at ``t_s`` if updates are periods away from ``update_s``."""
        updates_s = np.floor((t_s - update_s) / self.period_s) * self.period_s + update_s
        return power.mean_w(updates_s, self.window_s, 0.0)

    def stream(self, power: PowerSignal, start_s: float, end_s: float, random: Random) -> Stream:
        """See ``Part``."""
        count = int((end_s - start_s) / (0.75 * self.interval_s)) + 1
        steps_s = self.interval_s * random.uniform(0.75, 1.25, count)
        t_s = start_s + np.cumsum(steps_s)
        t_s = t_s[t_s < end_s]
        values_w = self.values(power, t_s, random.uniform(0.0, self.period_s))
        return _stream(_gauge(self.sensor), t_s, values_w, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """An energy counter that is read at every tick, or at few of them if a call takes long.

    Attributes:
        sensor: what the package knows about the sensor.
        period_s: time between two ticks.
        t_error_s: range of the stated time errors.
        bias_s: bound of the true error of the times, the same for all ticks of a run.
        interval_s: time between two ticks that are read.
        early_s: times of the first ticks that are read, before ``interval_s`` applies.
    """

    sensor: Sensor
    period_s: float
    t_error_s: tuple[float, float]
    bias_s: float
    interval_s: float = 0.0
    early_s: tuple[float, ...] = ()

    def values(self, power: PowerSignal, ticks_s: Array) -> Array:
        """Return the values at these ticks, J."""
        return power.energy_to_j(ticks_s)

    def stream(self, power: PowerSignal, start_s: float, end_s: float, random: Random) -> Stream:
        """See ``Part``."""
        first_s = start_s + random.uniform(0.0, self.period_s)
        every = max(round(self.interval_s / self.period_s), 1)
        early = [round(t_s / self.period_s) for t_s in self.early_s]
        last = int((end_s - first_s) / self.period_s)
        numbers = np.concatenate([early, np.arange(early[-1] if early else 0, last, every)])
        ticks_s = first_s + self.period_s * np.unique(numbers[numbers <= last])
        t_error_s = random.uniform(*self.t_error_s, len(ticks_s))
        bias_s = random.uniform(-self.bias_s, self.bias_s)
        values_j = self.values(power, ticks_s)
        return _stream(_counter(self.sensor), ticks_s + bias_s, values_j, t_error_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledCounter:
    """A counter that is read at moments unrelated to its updates, which are very frequent (RAPL).

    Attributes:
        sensor: what the package knows about the sensor.
        interval_s: time between two readings.
        late_s: bound of the delay of a reading.
    """

    sensor: Sensor
    interval_s: float
    late_s: float = 0.001

    def stream(self, power: PowerSignal, start_s: float, end_s: float, random: Random) -> Stream:
        """See ``Part``."""
        t_s = np.arange(start_s + random.uniform(0.0, self.interval_s), end_s, self.interval_s)
        t_s += random.uniform(0.0, self.late_s, len(t_s))
        period_s = self.sensor.period_s or 0.001
        updates_s = np.floor(t_s / period_s) * period_s
        values_j = power.energy_to_j(updates_s)
        return _stream(_counter(self.sensor, CPU), t_s, values_j, period_s + 10e-6)


def _gauge(sensor: Sensor) -> Channel:
    return Channel(device=GPU, quantity="power", kind="gauge", sensor=sensor)


def _counter(sensor: Sensor, device: Device = GPU) -> Channel:
    return Channel(device=device, quantity="energy", kind="counter", sensor=sensor)


def _stream(channel: Channel, t_s: Array, value: Array, t_error_s: Array | float) -> Stream:
    errors_s = np.broadcast_to(t_error_s, t_s.shape)
    return Stream(channel=channel, t_s=t_s, value=value, t_error_s=errors_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardModel:
    """A simulated card.

    Attributes:
        parts: returns its channels, the counter first; sensors whose properties are drawn at
            random use the argument.
        period_s: length of the shortest phase whose level the readings can determine.
    """

    parts: Callable[[Random], tuple[Part, ...]]
    period_s: float

    def streams(
        self, power: PowerSignal, start_s: float, end_s: float, random: Random, gain: float = 1.0
    ) -> list[Stream]:
        """Return the readings of all channels from ``start_s`` to ``end_s``."""
        found = [part.stream(power, start_s, end_s, random) for part in self.parts(random)]
        return [replace(stream, value=gain * stream.value) for stream in found]


_HOPPER, _VOLTA = generation((9, 0)), generation((7, 0))
_GA100, _GA10X, _PASCAL = generation((8, 0)), generation((8, 6)), generation((6, 0))

# H200: a call takes 2.6 ms, so the counter is read at few ticks. Times of the ticks that are read,
# their stated errors, and their true errors are those of ``NvmlSource`` on the simulated H200.
H200_COUNTER: Final = Counter(
    sensor=counter_sensor(_HOPPER),
    period_s=0.1,
    t_error_s=(0.0025, 0.0055),
    bias_s=0.0015,
    interval_s=4.0,
    early_s=(0.1, 0.3, 0.5, 1.4, 3.4),
)
H200_SAMPLES: Final = Samples(sensor=samples_sensor(_HOPPER, 0.02), lag_s=0.005, response_s=0.015)
# Cheap calls: the counter is read at each of its ticks, which are located within 0.5 ms.
A100_COUNTER: Final = Counter(
    sensor=counter_sensor(_GA100), period_s=0.1, t_error_s=(0.00012, 0.0002), bias_s=0.0001
)
A100_GAUGE: Final = Gauge(sensor=_GA100.usage, window_s=0.025, period_s=0.1, interval_s=0.1)
_RTX_COUNTER: Final = replace(A100_COUNTER, sensor=counter_sensor(_GA10X))
_RTX_GAUGE: Final = Gauge(sensor=_GA10X.usage, window_s=1.0, period_s=0.1, interval_s=0.1)
_V100_COUNTER: Final = replace(A100_COUNTER, sensor=counter_sensor(_VOLTA), period_s=0.02)
# The buffer of a V100 shows the power without the H200's response and lag.
_V100_SAMPLES: Final = Samples(
    sensor=samples_sensor(_VOLTA, 0.02), lag_s=0.0, response_s=0.0, window_s=0.01
)
_PASCAL_GAUGE: Final = Gauge(sensor=_PASCAL.usage, window_s=0.01, period_s=0.02, interval_s=0.02)
# As sensing/sources/rapl.py describes the counter of a package.
_RAPL: Final = PolledCounter(
    sensor=Sensor(name="intel-rapl:0/energy_uj", period_s=0.001, relative_error=0.1),
    interval_s=0.05,
)


def _other_h200(random: Random) -> tuple[Part, ...]:
    lag_s, response_s = random.uniform(0.0, 0.010), random.uniform(0.010, 0.020)
    return H200_COUNTER, replace(H200_SAMPLES, lag_s=lag_s, response_s=response_s)


def _fixed(*parts: Part) -> Callable[[Random], tuple[Part, ...]]:
    return lambda _: parts


CARD_MODELS: Final[Mapping[str, CardModel]] = {
    "H200": CardModel(parts=_fixed(H200_COUNTER, H200_SAMPLES), period_s=0.02),
    "H200 other": CardModel(parts=_other_h200, period_s=0.02),
    "A100": CardModel(parts=_fixed(A100_COUNTER, A100_GAUGE), period_s=0.1),
    "V100": CardModel(parts=_fixed(_V100_COUNTER, _V100_SAMPLES), period_s=0.02),
    "RTX 30xx": CardModel(parts=_fixed(_RTX_COUNTER, _RTX_GAUGE), period_s=0.1),
    "Pascal": CardModel(parts=_fixed(_PASCAL_GAUGE), period_s=0.02),
    "RAPL": CardModel(parts=_fixed(_RAPL), period_s=0.05),
}

"""On cards whose counter is cheap to read, windows are as accurate as the interpolated counter."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from energy_callbacks.core.records import Energy
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.timeline import Timeline
from tests.fake_nvml import (
    Buffer,
    Card,
    FakeNvml,
    Latency,
    Scenario,
    Signal,
    Sine,
    Square,
    a100,
    average_1s,
    card_uuid,
    v100,
)
from tests.fake_nvml.test_fake_card import CardClock

EPOCH_S, DURATION_S, SETTLING_S = 1.7e9, 24.0, 4.0
CHEAP = {"counter": Latency(median_s=10e-6, p99_s=60e-6)}


def v100_with_samples(signal: Signal) -> Card:
    """A V100 whose driver has a buffer of 20 ms samples, each the mean over 10 ms."""
    card = v100(signal)
    return replace(card, sensor=replace(card.sensor, buffer=Buffer(window_s=0.01)))


CARDS: list[Callable[[Signal], Card]] = [v100, v100_with_samples, a100, average_1s]
LOADS: dict[str, Signal] = {
    "97 ms": Square(low_w=100.0, high_w=400.0, period_s=0.0973),
    "170 ms sine": Sine(mean_w=250.0, amplitude_w=150.0, period_s=0.1713),
    "bursts": Square(low_w=100.0, high_w=400.0, period_s=0.507, duty=0.06),
}


class Measured:
    """A card that was measured for ``DURATION_S`` by a thread that wakes up late."""

    def __init__(self, card: Card, nvml: FakeNvml) -> None:
        self.card, clock = card, CardClock(nvml.time)
        clock.advance(3.3)
        random = np.random.default_rng(1)
        self.timeline, source = Timeline(), NvmlSource(clock, card_uuid(0))
        self.timeline.register(source.open())
        self.start_s = clock.monotonic_s()
        self.turns = 0
        while (turn_s := clock.monotonic_s()) < self.start_s + DURATION_S:
            self.timeline.extend(source.read())
            late_s = random.exponential(1e-4) + 0.005 * (random.random() < 0.03)
            clock.sleep(max(turn_s + source.interval_s - clock.monotonic_s(), 0.0) + late_s)
            self.turns += 1
        source.close()
        self.timeline.finish()
        self.ahead_s = clock.unix_s() - clock.monotonic_s() - EPOCH_S

    def energy(self, start_s: float, end_s: float) -> Energy:
        return self.timeline.energy("gpu0", start_s, end_s)

    def true_j(self, start_s: float, end_s: float) -> float:
        return self.card.signal.energy_j(start_s + self.ahead_s, end_s + self.ahead_s)

    def interpolated_j(self, start_s: float, end_s: float) -> float:
        """Energy by a straight line between two exact ticks of the counter."""
        return self._counter_j(end_s + self.ahead_s) - self._counter_j(start_s + self.ahead_s)

    def _counter_j(self, t_s: float) -> float:
        period_s = self.card.sensor.counter_period_s or 0.1
        before_s = np.floor(t_s / period_s) * period_s
        rise_j = self.card.signal.energy_j(before_s, before_s + period_s)
        share = (t_s - before_s) / period_s
        return self.card.signal.energy_j(0.0, before_s) + float(rise_j * share)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("make", CARDS)
def test_never_worse_than_the_counter_alone(tmp_path, make, load: str) -> None:
    """Mean errors of random windows are at most 10 % above those of the interpolated counter."""
    card = replace(make(LOADS[load]), latency=CHEAP)
    nvml = FakeNvml(Scenario(cards=(card,), epoch_unix_s=EPOCH_S), tmp_path)
    try:
        measured = Measured(card, nvml)
    finally:
        nvml.close()
    random = np.random.default_rng(2)
    for width_s in (0.05, 0.2, 1.0):
        first_s = measured.start_s + SETTLING_S
        starts = random.uniform(first_s, measured.start_s + DURATION_S - 2.0 - width_s, 300)
        errors, plain = np.array(
            [
                (
                    abs((measured.energy(s, s + width_s).energy_j or 0.0) - true_j) / true_j,
                    abs(measured.interpolated_j(s, s + width_s) - true_j) / true_j,
                )
                for s in starts
                for true_j in (measured.true_j(s, s + width_s),)
            ]
        ).T
        assert errors.mean() <= 1.1 * plain.mean() + 1e-5, width_s


@pytest.mark.parametrize(("make", "most"), [(v100, 56.0), (a100, 15.0)])
def test_power_is_read_together_with_the_counter(tmp_path, make, most: float) -> None:
    """The thread wakes up about once per tick, although power is polled as well."""
    card = make(LOADS["97 ms"])
    nvml = FakeNvml(Scenario(cards=(card,), epoch_unix_s=EPOCH_S), tmp_path)
    try:
        measured = Measured(card, nvml)
    finally:
        nvml.close()

    assert measured.turns / DURATION_S <= most

"""The simulated sensors of the benchmarks agree with the package's source on a simulated driver."""

import numpy as np
import pytest

from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.timeline import Timeline
from tests.benchmarks.common.power_signal import PowerSignal, square
from tests.benchmarks.common.sensor_models import CARD_MODELS, Counter, Gauge, Samples
from tests.fake_nvml import Scenario, Square, a100, average_1s, card_uuid, fixtures, h200, pascal
from tests.fake_nvml.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml
PRESETS = {"H200": h200, "A100": a100, "RTX 30xx": average_1s, "Pascal": pascal}
TURN_S, DURATION_S = 0.31, 30.0


def read(nvml, clock) -> list[Reading]:
    """All readings of power and energy of half a minute."""
    source = NvmlSource(clock, card_uuid(0))
    source.open()
    end_s = clock.monotonic_s() + DURATION_S
    readings: list[Reading] = []
    while (turn_s := clock.monotonic_s()) < end_s:
        readings += source.read()
        clock.sleep(max(turn_s + source.interval_s - clock.monotonic_s(), 0.0) + 50e-6)
    source.close()
    return [reading for reading in readings if reading.channel.quantity in ("power", "energy")]


@pytest.fixture(params=PRESETS)
def card(request, fake_nvml):
    """A card's model, its signal, the time of the driver's updates, and the source's readings."""
    signal = Square(low_w=100.0, high_w=400.0, period_s=TURN_S, phase_s=0.02)
    nvml = fake_nvml(Scenario(cards=(PRESETS[request.param](signal),), epoch_unix_s=1.7e9))
    clock = CardClock(nvml.time)
    clock.advance(5.0)
    epoch_s = 1.7e9 - (clock.unix_s() - clock.monotonic_s())
    readings = read(nvml, clock)
    first_s, last_s = readings[0].t_s - 4.0, clock.monotonic_s() + 1.0
    power = square(first_s, last_s, levels_w=(400.0, 100.0), turn_s=TURN_S, phase_s=epoch_s + 0.02)
    model = CARD_MODELS[request.param]
    return model.parts(np.random.default_rng(0)), power, epoch_s, readings


def modelled(part, power: PowerSignal, epoch_s: float, t_s):
    """The values of a model's channel at the times of the source's readings."""
    if isinstance(part, Counter):
        number = np.round((t_s - epoch_s) / part.period_s)
        return part.values(power, epoch_s + part.period_s * number)
    if isinstance(part, Gauge):
        return part.values(power, t_s, epoch_s)
    assert isinstance(part, Samples)
    return part.values(power, t_s)


def of(readings: list[Reading], part) -> list[Reading]:
    """The readings of the channel that a part of a model simulates."""
    quantity = "energy" if isinstance(part, Counter) else "power"
    return [reading for reading in readings if reading.channel.quantity == quantity]


def curve(channels, readings) -> Timeline:
    """A timeline of these readings."""
    timeline = Timeline()
    timeline.register(channels)
    timeline.extend(readings)
    timeline.finish()
    return timeline


def test_values_give_the_energy_that_the_source_gives(card):
    """At the source's times, the model's values give the same energy of any window (0.1 J)."""
    parts, power, epoch_s, readings = card
    same: list[Reading] = []
    for part in parts:
        found = of(readings, part)
        t_s = np.array([reading.t_s for reading in found])
        values = modelled(part, power, epoch_s, t_s).tolist()
        same += [
            Reading(reading.channel, reading.t_s, value, reading.t_error_s)
            for reading, value in zip(found, values, strict=True)
        ]
    channels = list({reading.channel: None for reading in readings})
    ours, theirs = curve(channels, same), curve(channels, readings)
    starts_s = np.random.default_rng(1).uniform(readings[0].t_s + 5.0, readings[0].t_s + 25.0, 100)
    for width_s in (0.05, 0.2, 1.0):
        for start_s in starts_s.tolist():
            pair = [c.energy("gpu0", start_s, start_s + width_s) for c in (ours, theirs)]
            assert pair[0].energy_j == pytest.approx(pair[1].energy_j, abs=0.1)
            assert pair[0].error_j == pytest.approx(pair[1].error_j, rel=0.02, abs=0.1)


def test_times_are_those_of_the_source(card):
    """Channels, number of readings, and time errors are similar, so that both are alike overall."""
    parts, power, _, readings = card
    for part in parts:
        found = of(readings, part)
        start_s, end_s = power.edges_s[0] + 4.0, power.edges_s[-1] - 1.0
        stream = part.stream(power, start_s, end_s, np.random.default_rng(0))
        assert stream.channel.quantity == found[0].channel.quantity
        assert stream.channel.kind == found[0].channel.kind
        period_s, found_s = stream.channel.sensor.period_s, found[0].channel.sensor.period_s
        assert period_s == pytest.approx(found_s, rel=0.02)
        assert len(stream.t_s) == pytest.approx(len(found), rel=0.2, abs=3)
        error_s = np.median([reading.t_error_s for reading in found])
        assert np.median(stream.t_error_s) == pytest.approx(error_s, rel=0.5)

"""Cards of known energy, measured for a minute in virtual time."""

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.timeline import Timeline
from tests.fake_nvml import (
    Buffer,
    Card,
    Constant,
    FakeNvml,
    Fault,
    Scenario,
    Sine,
    Square,
    Staircase,
    a100,
    average_1s,
    card_uuid,
    h200,
    pascal,
    v100,
)
from tests.fake_nvml.signals import Signal
from tests.fake_nvml.test_fake_card import CardClock

Array = NDArray[np.float64]
WIDTHS_S: Final = (0.05, 0.2, 1.0, 5.0)
_LOW_W, _HIGH_W = 100.0, 400.0
_DURATION_S: Final = 64.0
_BURST: Final = 0.125
_OFFSET_S: Final = 0.007
# Before this time the period of the counter is not known yet.
_SETTLING_S: Final = 4.0


Load = Callable[[int, float], Signal]
"""A load of a seed, whose times are stretched by a factor."""


def square(period_s: float) -> Load:
    """Return 100 and 400 W, half a period each; the phase depends on the seed."""

    def make(seed: int, stretch: float) -> Signal:
        turn_s = stretch * period_s
        return Square(low_w=_LOW_W, high_w=_HIGH_W, period_s=turn_s, phase_s=0.1 * seed * turn_s)

    return make


def staircase(step_s: float) -> Load:
    """Return levels between 100 and 400 W, a new one at each step."""

    def make(seed: int, stretch: float) -> Signal:
        return Staircase(low_w=_LOW_W, high_w=_HIGH_W, step_s=stretch * step_s, seed=seed)

    return make


def sine(period_s: float) -> Load:
    """Return a sine between 100 and 400 W; the phase depends on the seed."""

    def make(seed: int, stretch: float) -> Signal:
        turn_s = stretch * period_s
        mean_w, amplitude_w = (_HIGH_W + _LOW_W) / 2.0, (_HIGH_W - _LOW_W) / 2.0
        phase_s = 0.1 * seed * turn_s
        return Sine(mean_w=mean_w, amplitude_w=amplitude_w, period_s=turn_s, phase_s=phase_s)

    return make


def bursts(period_s: float) -> Load:
    """Return 400 W for an eighth of each period, and otherwise 100 W."""

    def make(seed: int, stretch: float) -> Signal:
        turn_s = stretch * period_s
        phase_s = 0.1 * seed * turn_s
        return Square(low_w=_LOW_W, high_w=_HIGH_W, period_s=turn_s, duty=_BURST, phase_s=phase_s)

    return make


def constant(seed: int, stretch: float) -> Signal:
    """Return 250 W all the time."""
    return Constant((_LOW_W + _HIGH_W) / 2.0)


LOADS: Final[Mapping[str, Load]] = {
    "constant": constant,
    "21 ms": square(0.021),
    "31 ms": square(0.031),
    "53 ms": square(0.053),
    "97 ms": square(0.097),
    "130 ms": square(0.13),
    "170 ms": square(0.17),
    "230 ms": square(0.23),
    "1030 ms": square(1.03),
    "170 ms sine": sine(0.17),
    "bursts": bursts(0.31),
    "staircase": staircase(0.06),
    "staircase 150": staircase(0.15),
}


def _v100(signal: Signal) -> Card:
    """Return a V100 whose counter does not change at the very steps of a staircase of 60 ms."""
    card = v100(signal)
    return replace(card, sensor=replace(card.sensor, update_offset_s=_OFFSET_S))


def _v100_with_samples(signal: Signal) -> Card:
    """Return a V100 whose driver buffers its samples: means of 10 of each 20 ms, at once."""
    card = _v100(signal)
    buffer = Buffer(jitter_s=0.003, window_s=0.01)
    return replace(card, sensor=replace(card.sensor, buffer=buffer))


# Card to the capabilities that it lacks.
CARDS: Final[Mapping[str, tuple[Callable[..., Card], tuple[str, ...]]]] = {
    "samples and counter (H200)": (h200, ()),
    "25 % duty and counter (A100)": (a100, ()),
    "counter only (A100)": (a100, ("power", "instant", "average")),
    "25 % duty only (A100)": (a100, ("counter",)),
    "50 % duty and counter (V100)": (_v100, ()),
    "samples and counter (V100)": (_v100_with_samples, ()),
    "50 % duty only (Pascal)": (pascal, ()),
    "1 s average and counter": (average_1s, ()),
    "1 s average only": (average_1s, ("counter",)),
}


@dataclass(frozen=True, slots=True)
class Windows:
    """The results for windows of one length, (n,) each, in joules.

    Attributes:
        error_j: found minus true.
        true_j: the truth.
        random_j: half-width of the 95 % interval of the random error alone.
        total_j: half-width of the whole interval.
        method: method of the first window.
        counter_error_j: error of the energy interpolated between all ticks of the counter; ``None``
            without a counter.
    """

    error_j: Array
    true_j: Array
    random_j: Array
    total_j: Array
    method: str
    counter_error_j: Array | None = None


def measured(
    name: str,
    load: str,
    seed: int,
    count: int,
    *,
    gain: float = 1.0,
    spread: float = 0.0,
    duration_s: float = _DURATION_S,
) -> dict[float, Windows]:
    """Measure random windows of each length on one card under one load.

    Args:
        name: one of ``CARDS``.
        load: one of ``LOADS``.
        seed: seed of the load, of its start and of the windows.
        count: number of windows of each length.
        gain: factor of the card's power and counter.
        spread: periods and lengths vary by up to this share, so that none is a multiple of another
            by design.
        duration_s: duration of the measurement.
    """
    make, missing = CARDS[name]
    random = np.random.default_rng(seed)
    card = make(LOADS[load](seed, random.uniform(1.0 - spread, 1.0 + spread)))
    card = replace(card, sensor=replace(card.sensor, gain=gain, counter_gained=True))
    faults = tuple(Fault(group=group, kind="error", start_s=0.0, value=3.0) for group in missing)
    scenario = Scenario(cards=(card,), faults=faults, epoch_unix_s=1.7e9 + 13.37 * seed)
    with tempfile.TemporaryDirectory() as folder:
        nvml = FakeNvml(scenario, Path(folder))
        try:
            return _windows(nvml, random, count, spread, duration_s)
        finally:
            nvml.close()


def _windows(
    nvml: FakeNvml, random: np.random.Generator, count: int, spread: float, duration_s: float
) -> dict[float, Windows]:
    clock = CardClock(nvml.time)
    clock.advance(random.uniform(3.0, 4.0))
    timeline, source = Timeline(), NvmlSource(clock, card_uuid(0))
    timeline.register(source.open())
    period_s = _period_s(nvml.scenario.cards[0].signal)
    if period_s is not None:
        timeline.note_period(period_s)
    start_s = clock.monotonic_s()
    while (turn_s := clock.monotonic_s()) < start_s + duration_s:
        timeline.extend(source.read())
        clock.sleep(max(turn_s + source.interval_s - clock.monotonic_s(), 0.0) + 50e-6)
    source.close()
    timeline.finish()
    ahead_s = clock.unix_s() - clock.monotonic_s()
    counter_j = _interpolated(nvml, start_s + ahead_s, start_s + duration_s + ahead_s)
    found, changes = {}, nvml.changes()
    for width_s in WIDTHS_S:
        widths = width_s * random.uniform(1.0 - spread, 1.0 + spread, count)
        starts = random.uniform(start_s + _SETTLING_S, start_s + duration_s - 2.0 - widths)
        pairs = list(zip(starts, starts + widths, strict=True))
        energies = [timeline.energy("gpu0", s, e) for s, e in pairs]
        unix = [(s + ahead_s, e + ahead_s) for s, e in pairs]
        true_j = np.array([nvml.scenario.energy_j(0, *pair, changes) for pair in unix])
        found[width_s] = Windows(
            error_j=np.array([energy.energy_j or 0.0 for energy in energies]) - true_j,
            true_j=true_j,
            random_j=np.array([energy.resolution_j for energy in energies]),
            total_j=np.array([energy.error_j for energy in energies]),
            method=energies[0].method,
            counter_error_j=counter_j and np.array([counter_j(*pair) for pair in unix]) - true_j,
        )
    return found


def _period_s(signal: Signal) -> float | None:
    """Return the period of the steps of a training with this load; ``None`` if none repeats."""
    return signal.period_s if isinstance(signal, Square | Sine) else None


def _interpolated(
    nvml: FakeNvml, start_s: float, end_s: float
) -> Callable[[float, float], float] | None:
    """Return a function that gives the energy between two moments by a card's counter alone.

    The counter is known at the exact time of each of its ticks, and interpolated in between. All
    times are Unix times.

    Returns:
        The function; ``None`` for a card without a counter.
    """
    scenario = nvml.scenario
    sensor, signal = scenario.cards[0].sensor, scenario.cards[0].signal
    period_s, offset_s = sensor.counter_period_s, sensor.update_offset_s
    if not period_s or any(fault.group == "counter" for fault in scenario.faults):
        return None
    epoch_s = scenario.epoch_unix_s
    first, last = (math.floor((t_s - epoch_s) / period_s) for t_s in (start_s, end_s))
    ticks_s = offset_s + period_s * np.arange(first - 1, last + 2)
    rises_j = [signal.energy_j(*pair) for pair in pairwise(ticks_s.tolist())]
    total_j = sensor.gain * np.concatenate([[0.0], np.cumsum(rises_j)])

    def energy_j(start_s: float, end_s: float) -> float:
        before_j, after_j = np.interp([start_s - epoch_s, end_s - epoch_s], ticks_s, total_j)
        return float(after_j - before_j)

    return energy_j

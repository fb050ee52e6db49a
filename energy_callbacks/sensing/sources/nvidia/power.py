"""Reads power and energy of an NVIDIA card."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Final

import numpy as np

from energy_callbacks.core.records import Channel, Reading, Sensor
from energy_callbacks.core.units import (
    joules_from_millijoules,
    seconds_from_microseconds,
    watts_from_milliwatts,
)
from energy_callbacks.sensing.clock import PUNCTUAL_S
from energy_callbacks.sensing.schedule import next_reading_s
from energy_callbacks.sensing.sources.nvidia.card import (
    NO_VALUE,
    NvmlCard,
    PolledQuantities,
    Query,
    Reader,
    fields,
    known,
    polled,
    tried,
)
from energy_callbacks.sensing.sources.nvidia.counter_ticks import CounterTicks, Tick
from energy_callbacks.sensing.sources.nvidia.driver_stamps import DriverStamps
from energy_callbacks.sensing.sources.nvidia.known_sensors import counter_sensor, samples_sensor

# Mean intervals at which power is polled, s. The shorter interval is used if the sensor's period is
# less than _POLL_INTERVAL_S.
_POLL_INTERVAL_S: Final = 0.1
_QUICK_INTERVAL_S: Final = 0.02
# Width of the range in which a polling interval varies randomly, as a fraction of the mean
# interval: from 0.75 to 1.25 times the mean.
_SWING: Final = 0.5
# If the buffer of power samples is empty at first, it is read again after this number of seconds,
# and not used if it is still empty. An H200 adds a sample every 20 ms, so that three samples would
# have been added in this time.
_FIRST_SAMPLE_S: Final = 0.06
# Minimum number of time differences between samples from which their period is determined.
_FEWEST_SPACINGS: Final = 10
# Layouts of nvmlSample_t, one for each member of nvmlValue_t, in the order of nvmlValueType_t.
_SAMPLE_LAYOUTS: Final = tuple(
    np.dtype({"names": ("stamp", "mw"), "formats": ("u8", mw), "offsets": (0, 8), "itemsize": 16})
    for mw in ("f8", "u4", "L", "u8", "i8", "i4", "u2")
)


def power(card: NvmlCard, counter: Reader | None = None) -> Reader | None:
    """Return the best power reader that the card supports; ``None`` if it supports none.

    If ``counter`` is read at every tick, polled power is read together with it, because the
    thread's wake-ups cost more than the calls.

    From best to worst, the readers are: buffered samples, instant power, power usage.
    """
    buffered = tried(card, SampledPower.found_on)
    if buffered is not None:
        return buffered
    polls = (tried(card, make) for make in (_polled_instant, _polled_usage))
    found = next(filter(None, polls), None)
    if isinstance(found, PolledQuantities) and isinstance(counter, EnergyCounter):
        found.next_s = _with_counter(counter, found.next_s)
    return found


def _with_counter(
    counter: "EnergyCounter", alone: Callable[[float], float]
) -> Callable[[float], float]:
    """Return a function that returns the time of the next reading, at a reading of ``counter``.

    Several readings of the counter in a row, which locate a tick, have one reading of power. While
    the counter is not read at every tick, the time is that which ``alone`` returns.
    """

    def next_s(now_s: float) -> float:
        alone_s = alone(now_s)
        if not counter.is_at_every_tick:
            return alone_s
        return max(counter.due_s, now_s + (1.0 - _SWING) * (alone_s - now_s))

    return next_s


class SampledPower:
    """Reads power from the driver's buffer of samples, so that no sample between two calls is lost.

    Attributes:
        stamps: converts and checks the time stamps of the samples.

    Args:
        card: the card to read.
        period_s: time between two samples, s; ``None`` if not known.
    """

    def __init__(self, card: NvmlCard, period_s: float | None) -> None:
        self._card = card
        self.stamps = DriverStamps(card.clock)
        sensor = samples_sensor(card.generation, period_s)
        channel = Channel(device=card.device, quantity="power", kind="gauge", sensor=sensor)
        self.channels = (channel,)
        self.due_s = card.clock.monotonic_s()

    @classmethod
    def found_on(cls, card: NvmlCard) -> "SampledPower | None":
        """Return a reader; ``None`` if the buffer has no valid sample, neither now nor 60 ms later.

        Raises:
            NVMLError: if the query fails, for example because the card has no buffer.
        """
        samples = _samples(card)
        if not samples:
            card.clock.sleep(_FIRST_SAMPLE_S)
            samples = _samples(card)
        return cls(card, _median_spacing_s(samples)) if samples else None

    def read(self, *, at_once: bool = False) -> list[Reading]:
        """See ``Reader``."""
        now_s = self._card.clock.monotonic_s()
        if now_s < self.due_s - PUNCTUAL_S and not at_once:
            return []
        self.due_s = next_reading_s(now_s)
        (channel,) = self.channels
        placed = self.stamps.new(_samples(self._card))
        return [Reading(channel, t_s, watts_from_milliwatts(mw)) for t_s, mw in placed]


def _samples(card: NvmlCard) -> list[tuple[int, float]]:
    """Return the whole buffer as (Unix time in microseconds, mW), without missing values and zeros.

    The driver can also return only the samples whose stamp is later than a given time. This is not
    used: after the wall clock is set back, new samples have earlier stamps than samples that were
    read before, and would be left out. Reading the whole buffer takes 0.2 ms (H200).
    """
    try:
        value_type, samples = card.nvml.nvmlDeviceGetSamples(
            card.handle, card.nvml.NVML_TOTAL_POWER_SAMPLES, 0
        )
    except (card.nvml.NVMLError_NotFound, card.nvml.NVMLError_NoData):
        return []
    if value_type >= len(_SAMPLE_LAYOUTS):
        return []
    # Reading the fields of each structure by ctypes would take most of the time of this function.
    values = np.frombuffer(b"".join(samples), _SAMPLE_LAYOUTS[value_type]).tolist()
    return [(stamp, mw) for stamp, mw in values if mw and mw not in NO_VALUE and mw == mw]  # noqa: PLR0124 - NaN


def _median_spacing_s(samples: Sequence[tuple[int, float]]) -> float | None:
    stamps = sorted({stamp for stamp, _ in samples})
    spacings = sorted(after - before for before, after in pairwise(stamps))
    if len(spacings) < _FEWEST_SPACINGS:
        return None
    return seconds_from_microseconds(spacings[len(spacings) // 2])


def _polled_instant(card: NvmlCard) -> Reader | None:
    field = card.nvml.NVML_FI_DEV_POWER_INSTANT
    instant = card.generation.instant
    if instant is None:
        return None
    return _polled_power(card, instant, lambda card: fields(card, [field]).get(field))


def _polled_usage(card: NvmlCard) -> Reader | None:
    def power_mw(card: NvmlCard) -> float | None:
        return known(card.nvml.nvmlDeviceGetPowerUsage(card.handle))

    return _polled_power(card, card.generation.usage, power_mw)


def _polled_power(card: NvmlCard, sensor: Sensor, power_mw: Query) -> Reader | None:
    channel = Channel(device=card.device, quantity="power", kind="gauge", sensor=sensor)
    is_quick = sensor.period_s is not None and sensor.period_s < _POLL_INTERVAL_S
    random = Random(0)  # noqa: S311 - no secret

    def next_s(now_s: float) -> float:
        """Return the time of the next reading; the interval is random to avoid aliasing."""
        interval_s = _QUICK_INTERVAL_S if is_quick else _POLL_INTERVAL_S
        return now_s + interval_s * (1.0 + _SWING * (random.random() - 0.5))

    def power_w(card: NvmlCard) -> float | None:
        value = power_mw(card)
        return watts_from_milliwatts(value) if value else None

    return polled(card, channel, power_w, next_s)


class EnergyCounter:
    """Reads the energy counter, J since the driver was loaded, at its ticks (``counter_ticks``).

    Raises:
        NVMLError: if the card has no counter.
    """

    def __init__(self, card: NvmlCard) -> None:
        self._card = card
        card.nvml.nvmlDeviceGetTotalEnergyConsumption(card.handle)
        sensor = counter_sensor(card.generation)
        channel = Channel(device=card.device, quantity="energy", kind="counter", sensor=sensor)
        self.channels = (channel,)
        shortest_s = 0.6 * card.generation.counter_period_s
        self._ticks = CounterTicks(card.clock, self._energy_j, shortest_s)

    @property
    def due_s(self) -> float:
        """See ``Reader``."""
        return self._ticks.due_s

    @property
    def is_at_every_tick(self) -> bool:
        """Whether the counter is read each time its value changes."""
        return self._ticks.is_at_every_tick

    def _energy_j(self) -> float | None:
        energy_mj = known(self._card.nvml.nvmlDeviceGetTotalEnergyConsumption(self._card.handle))
        return joules_from_millijoules(energy_mj) if energy_mj else None

    def read(self, *, at_once: bool = False) -> list[Reading]:
        """See ``Reader``."""
        return self._readings(self._ticks.last_tick() if at_once else self._ticks.next_tick())

    def read_newest(self) -> list[Reading]:
        """Return the reading of ``CounterTicks.newest_tick``, if there is one."""
        return self._readings(self._ticks.newest_tick())

    def _readings(self, tick: Tick | None) -> list[Reading]:
        return [Reading(*self.channels, tick.t_s, tick.value, tick.t_error_s)] if tick else []

"""Readers of an NVIDIA card: power from its best sensor, energy at its ticks.

What is only asked for now and then is in ``nvml_gauges``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, Final, Protocol

import numpy as np

from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.core.units import (
    joules_from_millijoules,
    seconds_from_microseconds,
    watts_from_milliwatts,
)
from energy_callbacks.sensing.clock import PUNCTUAL_S, Clock
from energy_callbacks.sensing.schedule import next_reading_s
from energy_callbacks.sensing.sources.nvidia.counter_ticks import CounterTicks
from energy_callbacks.sensing.sources.nvidia.driver_stamps import DriverStamps
from energy_callbacks.sensing.sources.nvidia.known_sensors import (
    CardGeneration,
    counter_sensor,
    samples_sensor,
)

_POLL_INTERVAL_S: Final = 0.1
_QUICK_INTERVAL_S: Final = 0.02
_SWING: Final = 0.5
# The newest sample of an H200 is 3 to 16 ms old; a buffer that is empty for this long is none.
_FIRST_SAMPLE_S: Final = 0.06
_FEWEST_SPACINGS: Final = 10
# NVML writes "no value" as all ones (nvml.h, NVML_VALUE_NOT_AVAILABLE).
_NO_VALUE: Final = frozenset({2**32 - 1, 2**64 - 1})
# Members of an nvmlValue_t in the order of nvmlValueType_t, and an nvmlSample_t with each of them.
_SAMPLE_LAYOUTS: Final = tuple(
    np.dtype({"names": ("stamp", "mw"), "formats": ("u8", mw), "offsets": (0, 8), "itemsize": 16})
    for mw in ("f8", "u4", "L", "u8", "i8", "i4", "u2")
)
_UNION_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlCard:
    """An opened card.

    Attributes:
        at_close: what readers must give back before NVML is shut down.
    """

    nvml: Any
    handle: Any
    clock: Clock
    device: Device
    generation: CardGeneration
    at_close: list[Callable[[], None]] = field(default_factory=list)

    def is_gone(self, error: Exception) -> bool:
        """Whether an ``NVMLError`` means that this card will never answer again."""
        return getattr(error, "value", None) in {
            self.nvml.NVML_ERROR_UNINITIALIZED,
            self.nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            self.nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            self.nvml.NVML_ERROR_GPU_IS_LOST,
            self.nvml.NVML_ERROR_GPU_NOT_FOUND,
            self.nvml.NVML_ERROR_RESET_REQUIRED,
        }


class Reader(Protocol):
    """Reads one channel."""

    @property
    def channel(self) -> Channel:
        """What it reads."""
        ...

    @property
    def due_s(self) -> float:
        """When there is something to read; earlier it reads nothing."""
        ...

    def read(self, *, at_once: bool = False) -> list[Reading]:
        """What is new, if it is due or all is wanted at once; raises ``NVMLError``."""
        ...


def tried(card: NvmlCard, make: Callable[[NvmlCard], Reader | None]) -> Reader | None:
    """The reader, if the card answers its first call.

    Raises:
        NVMLError: if the card is gone.
    """
    try:
        return make(card)
    except card.nvml.NVMLError as error:
        if card.is_gone(error):
            raise
        return None


# --- power


def power(card: NvmlCard) -> Reader | None:
    """Power, W: the driver's samples, else an instant reading, else the common one."""
    makers = (SampledPower.found_on, _polled_instant, _polled_usage)
    found = (tried(card, make) for make in makers)
    return next((reader for reader in found if reader is not None), None)


class SampledPower:
    """Power from the driver's buffer of samples: nothing is lost between two drains."""

    def __init__(self, card: NvmlCard, period_s: float | None) -> None:
        self._card = card
        self._stamps = DriverStamps(card.clock)
        sensor = samples_sensor(card.generation, period_s)
        self.channel = Channel(device=card.device, quantity="power", kind="gauge", sensor=sensor)
        self.due_s = card.clock.monotonic_s()

    @classmethod
    def found_on(cls, card: NvmlCard) -> "SampledPower | None":
        """The reader, if the card keeps a buffer that fills."""
        samples = _samples(card)
        if not samples:
            card.clock.sleep(_FIRST_SAMPLE_S)
            samples = _samples(card)
        return cls(card, _median_spacing_s(samples)) if samples else None

    @property
    def untidy(self) -> int:
        """See ``DriverStamps``."""
        return self._stamps.untidy

    def read(self, *, at_once: bool = False) -> list[Reading]:
        """See ``Reader``."""
        now_s = self._card.clock.monotonic_s()
        if now_s < self.due_s - PUNCTUAL_S and not at_once:
            return []
        self.due_s = next_reading_s(now_s)
        placed = self._stamps.new(_samples(self._card))
        return [Reading(self.channel, t_s, watts_from_milliwatts(mw)) for t_s, mw in placed]


def _samples(card: NvmlCard) -> list[tuple[int, float]]:
    """The whole buffer, (Unix time in microseconds, mW), without what is no value.

    The whole buffer each time (0.2 ms on an H200): asked for "newer than", the driver would hide
    what it stamps after the wall clock was set back.
    """
    try:
        value_type, samples = card.nvml.nvmlDeviceGetSamples(
            card.handle, card.nvml.NVML_TOTAL_POWER_SAMPLES, 0
        )
    except (card.nvml.NVMLError_NotFound, card.nvml.NVMLError_NoData):
        return []
    if value_type >= len(_SAMPLE_LAYOUTS):
        return []
    # All at once: to ask each structure by itself takes most of what a drain costs.
    found = np.frombuffer(b"".join(samples), _SAMPLE_LAYOUTS[value_type]).tolist()
    return [(stamp, mw) for stamp, mw in found if mw and mw not in _NO_VALUE and mw == mw]  # noqa: PLR0124 - NaN


def _median_spacing_s(samples: Sequence[tuple[int, float]]) -> float | None:
    stamps = sorted({stamp for stamp, _ in samples})
    spacings = sorted(after - before for before, after in pairwise(stamps))
    if len(spacings) < _FEWEST_SPACINGS:
        return None
    return seconds_from_microseconds(spacings[len(spacings) // 2])


def _polled_instant(card: NvmlCard) -> Reader | None:
    field = card.nvml.NVML_FI_DEV_POWER_INSTANT

    def power_w(card: NvmlCard) -> float | None:
        power_mw = fields(card, [field]).get(field)
        return watts_from_milliwatts(power_mw) if power_mw else None

    instant = card.generation.instant
    return _polled_power(card, instant, power_w) if instant is not None else None


def _polled_usage(card: NvmlCard) -> Reader | None:
    def power_w(card: NvmlCard) -> float | None:
        power_mw = known(card.nvml.nvmlDeviceGetPowerUsage(card.handle))
        return watts_from_milliwatts(power_mw) if power_mw else None

    return _polled_power(card, card.generation.usage, power_w)


def _polled_power(
    card: NvmlCard, sensor: Sensor, power_w: Callable[[NvmlCard], float | None]
) -> Reader | None:
    channel = Channel(device=card.device, quantity="power", kind="gauge", sensor=sensor)
    is_quick = sensor.period_s is not None and sensor.period_s < _POLL_INTERVAL_S
    random = Random(0)  # noqa: S311 - no secret

    def next_s(now_s: float) -> float:
        """Intervals that differ, so that no load aliases with them."""
        interval_s = _QUICK_INTERVAL_S if is_quick else _POLL_INTERVAL_S
        return now_s + interval_s * (1.0 + _SWING * (random.random() - 0.5))

    return offered(PolledQuantity(card, channel, power_w, next_s))


# --- energy


class _NvmlCounter:
    """The energy counter: the moments at which it moved, and its value from then on, in J."""

    def __init__(self, card: NvmlCard) -> None:
        self._card = card
        sensor = counter_sensor(card.generation)
        self.channel = Channel(device=card.device, quantity="energy", kind="counter", sensor=sensor)
        shortest_s = 0.6 * card.generation.counter_period_s
        self._ticks = CounterTicks(card.clock, self._energy_j, shortest_s)

    @property
    def due_s(self) -> float:
        return self._ticks.due_s

    def _energy_j(self) -> float | None:
        energy_mj = known(self._card.nvml.nvmlDeviceGetTotalEnergyConsumption(self._card.handle))
        return joules_from_millijoules(energy_mj) if energy_mj else None

    def read(self, *, at_once: bool = False) -> list[Reading]:
        tick = self._ticks.last_tick() if at_once else self._ticks.next_tick()
        return [Reading(self.channel, tick.t_s, tick.value, tick.t_error_s)] if tick else []


def counter(card: NvmlCard) -> Reader:
    """Energy, J, since the driver was loaded."""
    card.nvml.nvmlDeviceGetTotalEnergyConsumption(card.handle)
    return _NvmlCounter(card)


class PolledQuantity:
    """A quantity that has a value whenever it is asked for.

    Args:
        card: whom to ask.
        channel: what its values are.
        value: asks; in SI, ``None`` if the driver says that there is none.
        next_s: from a moment at which it was asked to the next.
    """

    def __init__(
        self,
        card: NvmlCard,
        channel: Channel,
        value: Callable[[NvmlCard], float | None],
        next_s: Callable[[float], float],
    ) -> None:
        self.channel = channel
        self._card = card
        self._value = value
        self._next_s = next_s
        self.due_s = card.clock.monotonic_s()

    def value(self) -> float | None:
        """In SI; ``None`` if the driver says that there is none."""
        return self._value(self._card)

    def read(self, *, at_once: bool = False) -> list[Reading]:
        """One value, stamped in the middle of the call, if one is due."""
        start_s = self._card.clock.monotonic_s()
        if start_s < self.due_s - PUNCTUAL_S and not at_once:
            return []
        self.due_s = self._next_s(start_s)
        value = self.value()
        end_s = self._card.clock.monotonic_s()
        if value is None:
            return []
        t_s, t_error_s = (start_s + end_s) / 2.0, (end_s - start_s) / 2.0
        return [Reading(self.channel, t_s, value, t_error_s)]


def offered(reader: PolledQuantity) -> Reader | None:
    """The reader, if it has a value now."""
    return reader if reader.value() is not None else None


# --- values as NVML hands them over


def fields(card: NvmlCard, ids: Sequence[int]) -> dict[int, float]:
    """Fields by their number, asked for in one call, without those that have no value."""
    values: dict[int, float] = {}
    for answer in card.nvml.nvmlDeviceGetFieldValues(card.handle, list(ids)):
        value = _number(answer.value, answer.valueType)
        if answer.nvmlReturn == card.nvml.NVML_SUCCESS and value is not None:
            values[int(answer.fieldId)] = value
    return values


def _number(value: Any, value_type: int) -> float | None:
    """The member of an ``nvmlValue_t`` that its type names."""
    if value_type >= len(_UNION_MEMBERS):
        return None
    return known(getattr(value, _UNION_MEMBERS[value_type]))


def known(value: float) -> float | None:
    """``value``, or ``None`` if NVML means "not available"."""
    return None if value in _NO_VALUE or value != value else value  # noqa: PLR0124 - NaN

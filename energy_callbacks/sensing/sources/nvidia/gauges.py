"""Makes readers of an NVIDIA card's memory, load, temperature, clock and throttling."""

from collections.abc import Callable
from functools import partial
from typing import Final

from energy_callbacks.core.records import Channel, Kind, Quantity, Sensor
from energy_callbacks.core.units import (
    hertz_from_megahertz,
    seconds_from_nanoseconds,
    watts_from_milliwatts,
)
from energy_callbacks.sensing.schedule import next_reading_s
from energy_callbacks.sensing.sources.nvidia.card import (
    NvmlCard,
    PolledQuantities,
    Query,
    Reader,
    fields,
    known,
    polled,
)

# Interval of gauges, in multiples of ``schedule.BEAT_S``. Power samples are read at these moments
# too, so that the thread wakes up once for both.
_BEATS: Final = 2
# Interval of counters, in multiples of ``schedule.BEAT_S``. It is longer, because counters miss
# nothing between two readings, and a query takes 1.6 ms of processor time (H200, driver 580).
_COUNTER_BEATS: Final = 6
# Numbers of the fields NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, _HW_THERM_SLOWDOWN and
# _HW_POWER_BRAKE_SLOWDOWN of nvml.h, for which nvidia-ml-py 12.560 has no names.
_SOFT_HEAT: Final = 269
_HARD_HEAT: Final = 270
_BRAKE: Final = 271


def _gauge(
    quantity: Quantity,
    query: Query,
    name: str,
    kind: Kind = "gauge",
    beats: int = _BEATS,
) -> Callable[[NvmlCard], Reader | None]:
    """Return a function that returns a card's reader, or ``None`` if the card has no value."""

    def make(card: NvmlCard) -> Reader | None:
        sensor = Sensor(name=name)
        channel = Channel(device=card.device, quantity=quantity, kind=kind, sensor=sensor)
        return polled(card, channel, query, partial(next_reading_s, beats=beats))

    return make


def _memory_used_bytes(card: NvmlCard) -> float | None:
    """Return the used memory in bytes as nvidia-smi shows it, without the memory of the driver.

    A driver without version 2 of this query includes its own memory.
    """
    nvml = card.nvml
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(card.handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):
        info = nvml.nvmlDeviceGetMemoryInfo(card.handle)
    return known(info.used)


def _utilisation(card: NvmlCard) -> Reader | None:
    """Return a reader of both utilisations, which the driver returns from one call.

    They are the shares of the driver's last sample period in which at least one kernel ran, and in
    which memory was read or written. The second is read even if the card has the counter
    ``dram_active``, so that cards of all generations can be compared.
    """
    sensor = Sensor(name="nvmlDeviceGetUtilizationRates")
    quantities: tuple[Quantity, ...] = ("utilisation", "memory_utilisation")
    channels = tuple(
        Channel(device=card.device, quantity=quantity, kind="gauge", sensor=sensor)
        for quantity in quantities
    )
    is_known = any(share is not None for share in _busy_shares(card))
    next_s = partial(next_reading_s, beats=_BEATS)
    return PolledQuantities(card, channels, _busy_shares, next_s) if is_known else None


def _busy_shares(card: NvmlCard) -> tuple[float | None, ...]:
    rates = card.nvml.nvmlDeviceGetUtilizationRates(card.handle)
    return tuple(
        percent / 100.0 if known(percent) is not None and percent <= 100.0 else None
        for percent in (rates.gpu, rates.memory)
    )


def _temperature_c(card: NvmlCard) -> float | None:
    return known(card.nvml.nvmlDeviceGetTemperature(card.handle, card.nvml.NVML_TEMPERATURE_GPU))


def _sm_clock_hz(card: NvmlCard) -> float | None:
    return _clock_hz(card, card.nvml.NVML_CLOCK_SM)


def _memory_clock_hz(card: NvmlCard) -> float | None:
    return _clock_hz(card, card.nvml.NVML_CLOCK_MEM)


def _clock_hz(card: NvmlCard, kind: int) -> float | None:
    clock_mhz = known(card.nvml.nvmlDeviceGetClockInfo(card.handle, kind))
    return hertz_from_megahertz(clock_mhz) if clock_mhz is not None else None


def _power_limit_w(card: NvmlCard) -> float | None:
    limit_mw = known(card.nvml.nvmlDeviceGetEnforcedPowerLimit(card.handle))
    return watts_from_milliwatts(limit_mw) if limit_mw else None


def _throttled(card: NvmlCard) -> Reader | None:
    """Return a reader of the seconds in which power limit, power brake or heat reduced the clocks.

    The value is a sum of nanosecond counters (nvml.h, NVML_FI_DEV_PERF_POLICY_* and
    _CLOCKS_EVENT_REASON_*): power policy, thermal policy, and the brake of the power supply. If
    the card does not count the thermal policy, its counters of software and hardware slowdown by
    heat are used instead. Counters that the card does not have are left out; ``None`` if it has
    none. Seconds with two reasons count twice. Limits set by the user (application clocks, sync
    boost) are not counted.
    """
    nvml = card.nvml
    limit = nvml.NVML_FI_DEV_PERF_POLICY_POWER
    heat = nvml.NVML_FI_DEV_PERF_POLICY_THERMAL
    answered = fields(card, [limit, heat, _SOFT_HEAT, _HARD_HEAT, _BRAKE])
    by_heat = (heat,) if heat in answered else (_SOFT_HEAT, _HARD_HEAT)
    counters = [field for field in (limit, _BRAKE, *by_heat) if field in answered]

    def throttled_s(card: NvmlCard) -> float | None:
        values_ns = fields(card, counters)
        # If a counter is missing in this reading, the value is unknown: the sum of the other
        # counters could be less than earlier sums, although throttled time never decreases.
        if not counters or len(values_ns) < len(counters):
            return None
        return seconds_from_nanoseconds(sum(values_ns.values()))

    name = "nvmlDeviceGetFieldValues PERF_POLICY_*"
    return _gauge("throttled", throttled_s, name, "counter", _COUNTER_BEATS)(card)


GAUGES: Final[tuple[Callable[[NvmlCard], Reader | None], ...]] = (
    _gauge("memory_used", _memory_used_bytes, "nvmlDeviceGetMemoryInfo"),
    _utilisation,
    _gauge("temperature", _temperature_c, "nvmlDeviceGetTemperature"),
    _gauge("clock", _sm_clock_hz, "nvmlDeviceGetClockInfo SM"),
    _gauge("memory_clock", _memory_clock_hz, "nvmlDeviceGetClockInfo MEM"),
    # Limits change rarely, so they are read as rarely as counters.
    _gauge("power_limit", _power_limit_w, "nvmlDeviceGetEnforcedPowerLimit", beats=_COUNTER_BEATS),
    _throttled,
)

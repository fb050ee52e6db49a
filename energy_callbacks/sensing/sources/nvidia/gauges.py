"""Gauges of an NVIDIA card: memory, load, temperature, clock, throttling."""

from collections.abc import Callable
from typing import Final

from energy_callbacks.core.records import Channel, Kind, Quantity, Sensor
from energy_callbacks.core.units import hertz_from_megahertz, seconds_from_nanoseconds
from energy_callbacks.sensing.schedule import next_reading_s
from energy_callbacks.sensing.sources.nvidia.readers import (
    NvmlCard,
    PolledQuantity,
    Reader,
    fields,
    known,
    offered,
)

# At the moments when the samples are read as well, so that the thread wakes once for both.
_BEATS: Final = 2
# A counter misses nothing; asking for these takes 1.6 ms of a core (H200, driver 580).
_COUNTER_BEATS: Final = 6
# NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN, _HW_THERM_SLOWDOWN, _HW_POWER_BRAKE_SLOWDOWN
# of nvml.h, which nvidia-ml-py 12.560 has no names for.
_SOFT_HEAT: Final = 269
_HARD_HEAT: Final = 270
_BRAKE: Final = 271


def _gauge(
    quantity: Quantity,
    value: Callable[[NvmlCard], float | None],
    name: str,
    kind: Kind = "gauge",
    beats: int = _BEATS,
) -> Callable[[NvmlCard], Reader | None]:
    def make(card: NvmlCard) -> Reader | None:
        sensor = Sensor(name=name)
        channel = Channel(device=card.device, quantity=quantity, kind=kind, sensor=sensor)
        return offered(
            PolledQuantity(card, channel, value, lambda now_s: next_reading_s(now_s, beats))
        )

    return make


def _memory_used_bytes(card: NvmlCard) -> float | None:
    """Without what the driver keeps for itself, as nvidia-smi shows it, if it can say that."""
    nvml = card.nvml
    try:
        info = nvml.nvmlDeviceGetMemoryInfo(card.handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):
        info = nvml.nvmlDeviceGetMemoryInfo(card.handle)
    return known(info.used)


def _utilisation(card: NvmlCard) -> float | None:
    """Share of time in which at least one kernel ran."""
    percent = known(card.nvml.nvmlDeviceGetUtilizationRates(card.handle).gpu)
    return percent / 100.0 if percent is not None and percent <= 100.0 else None


def _temperature_c(card: NvmlCard) -> float | None:
    return known(card.nvml.nvmlDeviceGetTemperature(card.handle, card.nvml.NVML_TEMPERATURE_GPU))


def _sm_clock_hz(card: NvmlCard) -> float | None:
    clock_mhz = known(card.nvml.nvmlDeviceGetClockInfo(card.handle, card.nvml.NVML_CLOCK_SM))
    return hertz_from_megahertz(clock_mhz) if clock_mhz is not None else None


def _throttled(card: NvmlCard) -> Reader | None:
    """Seconds in which clocks were held down by the power limit, the power brake or heat.

    The sum of nanosecond counters (nvml.h, NVML_FI_DEV_PERF_POLICY_* and _CLOCKS_EVENT_REASON_*):
    power policy and thermal policy, and the brake of the power supply; if there is no thermal
    policy, software and hardware slowdown by heat in its place. Seconds with two reasons count
    twice. Not counted are limits that the user sets (application clocks, sync boost).
    """
    nvml = card.nvml
    limit = nvml.NVML_FI_DEV_PERF_POLICY_POWER
    heat = nvml.NVML_FI_DEV_PERF_POLICY_THERMAL
    answered = fields(card, [limit, heat, _SOFT_HEAT, _HARD_HEAT, _BRAKE])
    other_heat = (heat,) if heat in answered else (_SOFT_HEAT, _HARD_HEAT)
    wanted = (limit, _BRAKE, *other_heat)
    counters = [field for field in wanted if field in answered]

    def throttled_s(card: NvmlCard) -> float | None:
        values_ns = fields(card, counters)
        # A sum without one of its counters would fall.
        if not counters or len(values_ns) < len(counters):
            return None
        return seconds_from_nanoseconds(sum(values_ns.values()))

    name = "nvmlDeviceGetFieldValues PERF_POLICY_*"
    return _gauge("throttled", throttled_s, name, "counter", _COUNTER_BEATS)(card)


GAUGES: Final[tuple[Callable[[NvmlCard], Reader | None], ...]] = (
    _gauge("memory_used", _memory_used_bytes, "nvmlDeviceGetMemoryInfo"),
    _gauge("utilisation", _utilisation, "nvmlDeviceGetUtilizationRates"),
    _gauge("temperature", _temperature_c, "nvmlDeviceGetTemperature"),
    _gauge("clock", _sm_clock_hz, "nvmlDeviceGetClockInfo SM"),
    _throttled,
)

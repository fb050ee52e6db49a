"""Sensor readings of a window as counters of a Chrome trace.

The Trace Event format ("Trace Event Format", Google, section *Counter Events*): ``ph`` ``C``, one
value that holds until the next of the same process and name. Power is that of the energy curve,
from reading to reading, and so already moved back by the sensor's lag.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from energy_callbacks.core.records import Device, Quantity
from energy_callbacks.core.units import gibibytes, megahertz, microseconds
from energy_callbacks.sensing.timeline import Timeline

# No process has such a number (Linux: at most 2**22), so that it is a group of its own.
_PROCESS: Final = 2**30
# So long before and after the window: the context of it, and two readings of a slow gauge.
AROUND_S: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One counter.

    Attributes:
        name: with the device.
        unit: of the values.
        t_s: by the meter's clock; each value holds from here to the next.
        values: at these moments.
    """

    name: str
    unit: str
    t_s: tuple[float, ...]
    values: tuple[float, ...]


_GAUGES: Final[Mapping[Quantity, tuple[str, str, Callable[[float], float]]]] = {
    "clock": ("SM clock", "MHz", megahertz),
    "temperature": ("temperature", "°C", float),
    "throttled": ("throttled so far", "s", float),
    "memory_used": ("memory", "GiB", gibibytes),
    "utilisation": ("utilisation", "%", lambda share: 100.0 * share),
    "sm_active": ("SM active", "%", lambda share: 100.0 * share),
    "tensor_active": ("tensor active", "%", lambda share: 100.0 * share),
    "dram_active": ("DRAM active", "%", lambda share: 100.0 * share),
}


def tracks(
    timeline: Timeline, devices: Sequence[Device], start_s: float, end_s: float
) -> list[Track]:
    """The sensor readings of a window, with some time around it.

    Args:
        timeline: of the meter.
        devices: of the meter.
        start_s: start of the window.
        end_s: its end.
    """
    first_s, last_s = start_s - AROUND_S, end_s + AROUND_S
    found: list[Track] = []
    for device in devices:
        found += _energy(timeline, device.key, first_s, last_s)
        for quantity, (name, unit, scaled) in _GAUGES.items():
            t_s, values = timeline.readings(device.key, quantity, first_s, last_s)
            if t_s:
                told = tuple(map(scaled, values))
                found.append(
                    Track(name=f"{device.key} {name}", unit=unit, t_s=tuple(t_s), values=told)
                )
    return found


def _energy(timeline: Timeline, key: str, start_s: float, end_s: float) -> Iterator[Track]:
    known = timeline.intervals(key, start_s, end_s, provisional=True)
    if known is None:
        return
    t_s = tuple(known.t_s.tolist())
    power_w = (known.energy_j / (known.t_s[1:] - known.t_s[:-1])).tolist()
    yield Track(name=f"{key} power", unit="W", t_s=t_s, values=(*power_w, power_w[-1]))
    energy_j = (0.0, *known.energy_j.cumsum().tolist())
    yield Track(name=f"{key} energy", unit="J", t_s=t_s, values=energy_j)


def events(found: Sequence[Track], offset_s: float, base_s: float) -> Iterator[dict[str, Any]]:
    """The lines that make a trace show the tracks.

    Args:
        found: what to show.
        offset_s: how far Unix time is ahead of the meter's clock.
        base_s: Unix time of the trace's zero.
    """
    if not found:
        return
    head = {"ph": "M", "pid": _PROCESS, "tid": 0, "ts": 0}
    yield {**head, "name": "process_name", "args": {"name": "energy_callbacks: sensors"}}
    yield {**head, "name": "process_sort_index", "args": {"sort_index": -1}}
    for track in found:
        for t_s, value in zip(track.t_s, track.values, strict=True):
            yield {
                "ph": "C",
                "pid": _PROCESS,
                "tid": 0,
                "ts": microseconds(t_s + offset_s - base_s),
                "name": f"{track.name} ({track.unit})",
                "args": {track.unit: value},
            }

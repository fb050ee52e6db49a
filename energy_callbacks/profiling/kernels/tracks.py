"""Converts the sensor readings of a window to counters of a Chrome trace.

In the Trace Event format ("Trace Event Format", Google, section *Counter Events*) a counter event
has ``ph`` ``C`` and a value that applies until the next event of the same process and name. Power
is the slope of the energy curve between readings; the curve is corrected for the sensor's lag.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from energy_callbacks.core.records import Device, Quantity
from energy_callbacks.core.units import gibibytes, megahertz, microseconds
from energy_callbacks.sensing.timeline import Timeline

# Process id of the counters. Viewers show counters of the same process as a group. No real process
# has this id (Linux: at most 2**22).
_PROCESS: Final = 2**30
# Readings are included from this many seconds before the window until this many seconds after it.
# Even a slow sensor gives two readings in 1.5 s.
AROUND_S: Final = 1.5


class Track(NamedTuple):
    """The values of one counter over time.

    Attributes:
        name: name of the counter, with the device.
        unit: unit of the values.
        t_s: times, in seconds of the meter's clock.
        values: values at these times; each value applies until the next time.
    """

    name: str
    unit: str
    t_s: tuple[float, ...]
    values: tuple[float, ...]


_GAUGES: Final[Mapping[Quantity, tuple[str, str, Callable[[float], float]]]] = {
    "clock": ("SM clock", "MHz", megahertz),
    "memory_clock": ("memory clock", "MHz", megahertz),
    "temperature": ("temperature", "°C", float),
    "throttled": ("throttled so far", "s", float),
    "memory_used": ("memory", "GiB", gibibytes),
    "utilisation": ("utilisation", "%", lambda share: 100.0 * share),
    "sm_active": ("SM active", "%", lambda share: 100.0 * share),
    "tensor_active": ("tensor active", "%", lambda share: 100.0 * share),
    "dram_active": ("DRAM active", "%", lambda share: 100.0 * share),
    "memory_utilisation": ("memory utilisation", "%", lambda share: 100.0 * share),
}


def tracks(
    timeline: Timeline, devices: Sequence[Device], start_s: float, end_s: float
) -> list[Track]:
    """Return the readings from ``AROUND_S`` before a window until ``AROUND_S`` after it.

    Args:
        timeline: readings of the attempt.
        devices: devices to include.
        start_s: start of the window, in seconds of the meter's clock.
        end_s: end of the window, by the same clock.
    """
    first_s, last_s = start_s - AROUND_S, end_s + AROUND_S
    shown: list[Track] = []
    for device in devices:
        shown += _energy(timeline, device.key, first_s, last_s)
        for quantity, (name, unit, scaled) in _GAUGES.items():
            t_s, values = timeline.readings(device.key, quantity, first_s, last_s)
            if t_s:
                scaled_values = tuple(map(scaled, values))
                shown.append(Track(f"{device.key} {name}", unit, tuple(t_s), scaled_values))
    return shown


def _energy(timeline: Timeline, key: str, start_s: float, end_s: float) -> Iterator[Track]:
    known = timeline.intervals(key, start_s, end_s, provisional=True)
    if known is None:
        return
    t_s = tuple(known.t_s.tolist())
    power_w = (known.energy_j / np.diff(known.t_s)).tolist()
    yield Track(f"{key} power", "W", t_s, (*power_w, power_w[-1]))
    yield Track(f"{key} energy", "J", t_s, (0.0, *known.energy_j.cumsum().tolist()))


def events(shown: Sequence[Track], offset_s: float, base_s: float) -> Iterator[dict[str, Any]]:
    """Yield the values of counters as events of a Chrome trace.

    Args:
        shown: values of the counters.
        offset_s: Unix time minus the time of the meter's clock, in seconds.
        base_s: Unix time of the trace's time zero, in seconds.
    """
    if not shown:
        return
    head = {"ph": "M", "pid": _PROCESS, "tid": 0, "ts": 0}
    yield {**head, "name": "process_name", "args": {"name": "energy_callbacks: sensors"}}
    yield {**head, "name": "process_sort_index", "args": {"sort_index": -1}}
    for track in shown:
        for t_s, value in zip(track.t_s, track.values, strict=True):
            yield {
                "ph": "C",
                "pid": _PROCESS,
                "tid": 0,
                "ts": microseconds(t_s + offset_s - base_s),
                "name": f"{track.name} ({track.unit})",
                "args": {track.unit: value},
            }

"""Computes the use of each physical device over the whole run, and peak and mean memory."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.report.collect import activity
from energy_callbacks.report.collect.curves import growth, seen_s
from energy_callbacks.report.collect.figures import as_figure
from energy_callbacks.report.collect.merge import Identity, MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.rows import Array, DeviceColumns
from energy_callbacks.report.model.runs import DeviceUse, Memory, SensorUse

# Fields of ``DeviceUse`` and of ``SensorUse`` that are copied from a ``device`` line of a journal.
_DEVICE_FIELDS = ("name", "kind", "scope", "origin", "uuid")
_SENSOR_FIELDS = ("name", "period_s", "citation")


def device_table(attempts: Iterable[MergedAttempt]) -> tuple[DeviceUse, ...]:
    """Return one row for each device: whole machines, GPUs, CPUs and RAM, others."""
    by_identity: dict[Identity, list[OwnedDevice]] = defaultdict(list)
    for attempt in attempts:
        for device in attempt.owned:
            by_identity[device.identity].append(device)
    order = {"machine": 0, "gpu": 1, "host": 2, None: 3}
    rows = (_row(parts) for parts in by_identity.values())
    return tuple(sorted(rows, key=lambda row: (order[row.scope], row.host, row.key)))


def _row(parts: Sequence[OwnedDevice]) -> DeviceUse:
    newest = parts[-1]
    columns = [part.owner.columns.get(part.key, DeviceColumns()) for part in parts]
    energy = total([part.energy for part in parts], [part.owner.end_s for part in parts])
    # Time for which power is known, in seconds. The mean power is the energy divided by this time.
    seen = math.fsum(seen_s(one) for one in columns)
    return DeviceUse(
        key=newest.key,
        host=newest.identity.host,
        **{name: newest.properties[name] for name in _DEVICE_FIELDS},
        counted_in=newest.counted_in,
        sensors=tuple(
            SensorUse(quantity=quantity, **{name: sensor[name] for name in _SENSOR_FIELDS})
            for quantity, sensor in newest.record["sensors"].items()
        ),
        energy=as_figure(energy, [newest.properties["origin"]]),
        mean_power_w=energy.energy_j / seen if energy.energy_j is not None and seen > 0.0 else None,
        peak_power_w=_overall(np.max, [one["power_w"] for one in columns]),
        memory_peak_bytes=_overall(np.max, [one.memory_bytes for one in columns]),
        utilisation_mean=_overall(np.mean, [one["utilisation"] for one in columns]),
        temperature_max_c=_overall(np.max, [one["temperature_c"] for one in columns]),
        throttled_s=_throttled_s(columns),
        notes=newest.notes,
        activity=activity.whole(columns),
        limit_w=newest.properties.get("limit_w"),
        memory_utilisation_mean=_overall(np.mean, [one["memory_utilisation"] for one in columns]),
    )


def _overall(reduce: Callable[[Array], Any], columns: Iterable[Array]) -> float | None:
    """Return ``reduce`` of the known values of all columns; ``None`` if no value is known."""
    known = _known(columns)
    return float(reduce(known)) if len(known) else None


def _known(columns: Iterable[Array]) -> Array:
    values: Array = np.concatenate([*columns, np.empty(0)])
    return values[~np.isnan(values)]


def _throttled_s(columns: Iterable[DeviceColumns]) -> float | None:
    """Return the time in which the driver reduced the clocks, in s; ``None`` if not known."""
    counters = [one["throttled_s"] for one in columns]
    if all(np.isnan(counter).all() for counter in counters):
        return None
    return math.fsum(_known([growth(counter)]).sum() for counter in counters)


def memory(attempts: Iterable[MergedAttempt]) -> Memory:
    """Return peak and mean memory, in bytes.

    The three peaks are the highest memory of any GPU, of any allocator and of any process. The two
    means are those of the GPU and of the process with the highest peak, over the journal that
    contains this peak.
    """
    by_kind: dict[str, list[DeviceColumns]] = defaultdict(list)
    for attempt in attempts:
        for process in attempt.processes:
            for key in process.columns.keys() & process.devices.keys():
                kind = process.devices[key]["device"]["kind"]
                by_kind[kind].append(process.columns[key])
    device_peak, device_mean = _fullest(by_kind["gpu"])
    rss_peak, rss_mean = _fullest(by_kind["process"])
    allocated = (one["peak_allocated_bytes"] for columns in by_kind.values() for one in columns)
    return Memory(
        device_used_peak_bytes=device_peak,
        device_used_mean_bytes=device_mean,
        peak_allocated_bytes=_overall(np.max, allocated),
        host_rss_peak_bytes=rss_peak,
        host_rss_mean_bytes=rss_mean,
    )


def _fullest(columns: Iterable[DeviceColumns]) -> tuple[float | None, float | None]:
    """Return peak and mean memory of the device with the highest peak; ``None`` if not known.

    Args:
        columns: readings of a device in a journal, for each device and each journal.
    """
    known = [values for one in columns if len(values := _known([one.memory_bytes]))]
    peaks = ((float(values.max()), float(values.mean())) for values in known)
    return max(peaks, default=(None, None))

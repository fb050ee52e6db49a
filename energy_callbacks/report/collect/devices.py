"""Each physical device over the whole run, and peak memory."""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.report.collect import activity
from energy_callbacks.report.collect.curves import seen_s
from energy_callbacks.report.collect.figures import as_figure
from energy_callbacks.report.collect.merge import Identity, MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.rows import Array, DeviceColumns
from energy_callbacks.report.model.models import (
    DeviceUse,
    Memory,
    SensorUse,
)


def device_table(attempts: Iterable[MergedAttempt]) -> tuple[DeviceUse, ...]:
    """One row for each device; those with energy first, GPUs before hosts."""
    by_identity: dict[Identity, list[OwnedDevice]] = {}
    for attempt in attempts:
        for device in attempt.owned:
            by_identity.setdefault(device.identity, []).append(device)
    order = {"gpu": 0, "host": 1, None: 2}
    rows = (_row(parts) for parts in by_identity.values())
    return tuple(sorted(rows, key=lambda row: (order[row.scope], row.host, row.key)))


def _row(parts: Sequence[OwnedDevice]) -> DeviceUse:
    newest = parts[-1]
    device = newest.record["device"]
    columns = [part.owner.columns.get(part.key, DeviceColumns()) for part in parts]
    energy = total([part.energy for part in parts], [part.owner.end_s for part in parts])
    return DeviceUse(
        key=newest.key,
        host=newest.identity.host,
        name=device["name"],
        kind=device["kind"],
        scope=device["scope"],
        origin=device["origin"],
        uuid=device["uuid"],
        counted_in=newest.counted_in,
        sensors=_sensors(newest),
        energy=as_figure(energy, [device["origin"]]),
        mean_power_w=_mean_power_w(energy.energy_j, columns),
        peak_power_w=_highest(one["power_w"] for one in columns),
        memory_peak_bytes=_highest(one.memory_bytes for one in columns),
        utilisation_mean=_mean(one["utilisation"] for one in columns),
        temperature_max_c=_highest(one["temperature_c"] for one in columns),
        throttled_s=_grown(columns),
        notes=newest.notes,
        activity=activity.whole(columns),
    )


def _sensors(device: OwnedDevice) -> tuple[SensorUse, ...]:
    return tuple(
        SensorUse(
            quantity=quantity,
            name=sensor["name"],
            period_s=sensor["period_s"],
            citation=sensor["citation"],
        )
        for quantity, sensor in device.record["sensors"].items()
    )


def _mean_power_w(energy_j: float | None, columns: Sequence[DeviceColumns]) -> float | None:
    """Energy over the time in which the rows saw power."""
    duration_s = math.fsum(seen_s(one) for one in columns)
    return energy_j / duration_s if energy_j is not None and duration_s > 0.0 else None


def _highest(columns: Iterable[Array]) -> float | None:
    known = _known(columns)
    return float(known.max()) if len(known) else None


def _mean(columns: Iterable[Array]) -> float | None:
    known = _known(columns)
    return float(known.mean()) if len(known) else None


def _known(columns: Iterable[Array]) -> Array:
    values: Array = np.concatenate([*columns, np.empty(0)])
    return values[~np.isnan(values)]


def _grown(columns: Iterable[DeviceColumns]) -> float | None:
    """Growth of the throttling counter within each attempt; a step back is a driver's restart."""
    known = [_known([one["throttled_s"]]) for one in columns]
    if not any(map(len, known)):
        return None
    return math.fsum(np.maximum(np.diff(values), 0.0).sum() for values in known)


def memory(attempts: Iterable[MergedAttempt]) -> Memory:
    """The highest memory of any one GPU, allocator and rank, and the means of those."""
    rows = list(_columns_by_kind(attempts))
    device_peak, device_mean = _fullest(one for kind, one in rows if kind == "gpu")
    rss_peak, rss_mean = _fullest(one for kind, one in rows if kind == "process")
    return Memory(
        device_used_peak_bytes=device_peak,
        device_used_mean_bytes=device_mean,
        peak_allocated_bytes=_highest(one["peak_allocated_bytes"] for _, one in rows),
        host_rss_peak_bytes=rss_peak,
        host_rss_mean_bytes=rss_mean,
    )


def _fullest(found: Iterable[DeviceColumns]) -> tuple[float | None, float | None]:
    """Peak and mean of the memory that was highest."""
    known = [values for one in found if len(values := _known([one.memory_bytes]))]
    peaks = ((float(values.max()), float(values.mean())) for values in known)
    return max(peaks, default=(None, None))


def _columns_by_kind(attempts: Iterable[MergedAttempt]) -> Iterator[tuple[str, DeviceColumns]]:
    for attempt in attempts:
        for process in attempt.processes:
            for key, columns in process.columns.items():
                if key in process.devices:
                    yield process.devices[key]["device"]["kind"], columns

"""Each physical device over the whole run, and the memory at its highest."""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from energy_callbacks.accounting.energy_sums import total
from energy_callbacks.report.curves import seen_s
from energy_callbacks.report.figures import as_figure
from energy_callbacks.report.merge import Identity, MergedAttempt, Owned
from energy_callbacks.report.parts import (
    DeviceUse,
    Memory,
    SensorUse,
)
from energy_callbacks.report.process import Columns


def device_table(attempts: Iterable[MergedAttempt]) -> tuple[DeviceUse, ...]:
    """One row for each device; those with energy first, GPUs before hosts."""
    by_identity: dict[Identity, list[Owned]] = {}
    for attempt in attempts:
        for device in attempt.owned:
            by_identity.setdefault(device.identity, []).append(device)
    order = {"gpu": 0, "host": 1, None: 2}
    rows = (_row(parts) for parts in by_identity.values())
    return tuple(sorted(rows, key=lambda row: (order[row.scope], row.host, row.key)))


def _row(parts: Sequence[Owned]) -> DeviceUse:
    newest = parts[-1]
    device = newest.record["device"]
    columns = [part.owner.columns.get(part.key, Columns()) for part in parts]
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
        peak_power_w=_highest(value for one in columns for value in one.power_w),
        memory_peak_bytes=_highest(value for one in columns for value in one.memory_bytes),
        utilisation_mean=_mean(value for one in columns for value in one.utilisation),
        temperature_max_c=_highest(value for one in columns for value in one.temperature_c),
        throttled_s=_grown(columns),
        notes=newest.notes,
    )


def _sensors(device: Owned) -> tuple[SensorUse, ...]:
    return tuple(
        SensorUse(
            quantity=quantity,
            name=sensor["name"],
            period_s=sensor["period_s"],
            citation=sensor["citation"],
        )
        for quantity, sensor in device.record["sensors"].items()
    )


def _mean_power_w(energy_j: float | None, columns: Sequence[Columns]) -> float | None:
    """Energy over the time in which the rows saw power."""
    duration_s = math.fsum(seen_s(one) for one in columns)
    return energy_j / duration_s if energy_j is not None and duration_s > 0.0 else None


def _highest(values: Iterable[float]) -> float | None:
    return max((value for value in values if not math.isnan(value)), default=None)


def _mean(values: Iterable[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return math.fsum(known) / len(known) if known else None


def _grown(columns: Iterable[Columns]) -> float | None:
    """Growth of the throttling counter within each attempt; a step back is a driver's restart."""
    known = [[v for v in one.throttled_s if not math.isnan(v)] for one in columns]
    if not any(known):
        return None
    return math.fsum(max(b - a, 0.0) for values in known for a, b in pairwise(values))


def memory(attempts: Iterable[MergedAttempt]) -> Memory:
    """The highest memory of any one GPU, allocator and rank."""
    rows = list(_columns_by_kind(attempts))
    ranks = [
        (_highest(one.memory_bytes) or 0.0, _mean(one.memory_bytes))
        for kind, one in rows
        if kind == "process"
    ]
    rss_peak, rss_mean = max((rank for rank in ranks if rank[1] is not None), default=(None, None))
    return Memory(
        device_used_peak_bytes=_highest(
            value for kind, one in rows if kind == "gpu" for value in one.memory_bytes
        ),
        peak_allocated_bytes=_highest(
            value for _, one in rows for value in one.peak_allocated_bytes
        ),
        host_rss_peak_bytes=rss_peak,
        host_rss_mean_bytes=rss_mean,
    )


def _columns_by_kind(attempts: Iterable[MergedAttempt]) -> Iterator[tuple[str, Columns]]:
    for attempt in attempts:
        for process in attempt.processes:
            for key, columns in process.columns.items():
                if key in process.devices:
                    yield process.devices[key]["device"]["kind"], columns

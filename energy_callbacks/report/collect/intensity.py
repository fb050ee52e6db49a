"""Finds the carbon intensity of a run in its journals.

If no attempt has a file of intensities, or no device has an energy, the location of the newest
attempt applies to the whole run. Otherwise, the intensities are weighted with the energy that was
used at each of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from energy_callbacks.accounting.grid.grid import mean
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.carbon import Intensity, Place
from energy_callbacks.core import formatting
from energy_callbacks.core.guard import logger
from energy_callbacks.report.collect.merge import MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.process import ProcessJournal
from energy_callbacks.report.collect.rows import Array, DeviceColumns
from energy_callbacks.report.model.schema import from_record

Part = tuple[float, Intensity]
"""Energy in J and its carbon intensity."""


def run_intensity(merged: Sequence[MergedAttempt]) -> Intensity | None:
    """Return the carbon intensity of a run; ``None`` if it cannot be found.

    The location of the machine that builds the report is not used, so that a journal results in the
    same emissions on every machine.
    """
    processes = [process for attempt in merged for process in attempt.processes]
    try:
        has_file = any(process.intensities for process in processes)
        parts = list(_parts(merged)) if has_file else []
        return _described(parts) if parts else _of_place(merged[-1].lead)
    except Exception as error:  # noqa: BLE001 - a report without emissions is better than none
        logger.warning("emissions cannot be computed: %s", error)
        return None


def _of_place(process: ProcessJournal) -> Intensity:
    """Return the intensity in the header; journals of earlier versions only have the location."""
    config: Record = process.header.get("config") or {}
    place: dict[str, Any] = dict(config.get("place") or {})
    stated = place.pop("intensity", None)
    if stated is not None:
        return from_record(Intensity, stated)
    given = {name: place.get(name) for name in ("country", "country_name", "region")}
    return carbon.intensity(Place(**given, origin=place.get("origin") or "not set"))


def _parts(merged: Sequence[MergedAttempt]) -> Iterator[Part]:
    """Yield the energies of all devices by carbon intensity, in time order."""
    for attempt in merged:
        for device in attempt.counted:
            yield from _device_parts(device)


def _device_parts(device: OwnedDevice) -> Iterator[Part]:
    process, energy_j = device.owner, device.energy.energy_j or 0.0
    intensities = process.intensities or [(0.0, _of_place(process))]
    edges_s = [start_s for start_s, _ in intensities[1:]]
    # The energy of the attempt includes the time after the last row of the journal.
    before_j = np.minimum(_energy_until(process, device.key, edges_s, energy_j), energy_j)
    bounds_j = [0.0, *before_j.tolist(), energy_j]
    for (start_j, end_j), (_, intensity) in zip(pairwise(bounds_j), intensities, strict=True):
        yield end_j - start_j, intensity


def _energy_until(
    process: ProcessJournal, key: str, times_s: Sequence[float], energy_j: float
) -> Array:
    """Return the energy of a device up to each time, J, (n,).

    Between two rows of the journal, the energy is interpolated. Without rows, ``energy_j`` is
    spread evenly over the attempt.
    """
    columns = process.columns.get(key, DeviceColumns())
    is_known = ~np.isnan(columns["energy_j"])
    seen_s, known_j = [0.0, *columns.seen_s[is_known]], [0.0, *columns["energy_j"][is_known]]
    if not is_known.any():
        seen_s, known_j = [0.0, process.end_s], [0.0, energy_j]
    found: Array = np.interp(times_s, seen_s, known_j)
    return found


def _described(parts: Sequence[Part]) -> Intensity:
    """Return the mean of the parts, with a source that names the sources of all parts."""
    used = [part for part in parts if part[0] > 0.0] or parts[-1:]
    result = mean(used)
    values = {intensity.kg_per_kwh for _, intensity in used}
    total_j = sum(energy_j for energy_j, _ in used)
    by_source: dict[str, float] = {}
    for energy_j, intensity in used:
        by_source[intensity.source] = by_source.get(intensity.source, 0.0) + energy_j
    texts = list(by_source)
    if len(by_source) > 1:
        texts = [
            f"{source} ({formatting.percent(used_j / total_j)} of the energy)"
            for source, used_j in by_source.items()
        ]
    if len(values) > 1:
        texts.append(f"mean of {len(values)} intensities, weighted by the energy used at each")
    return replace(result, source="; ".join(texts))

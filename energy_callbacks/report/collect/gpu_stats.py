"""Converts the readings of GPUs to samples with the field names of GPU loggers.

The names are those of gputop and of scripts that read its files. Units are MiB, percent, degrees
Celsius, watts and MHz. Unknown values are ``null``; if the clock is unknown, ``clocks`` is empty.
``training_metadata`` is the state of the training at the time of the sample.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks.core import atomic_files, formatting
from energy_callbacks.core.units import mebibytes, megahertz
from energy_callbacks.report.collect import phases
from energy_callbacks.report.collect.merge import MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.process import ProcessJournal
from energy_callbacks.report.collect.rows import Array

Sample = Mapping[str, Any]
# Times of rows are rounded to microseconds (``JournalRecorder``), s.
_ROUNDED_S: Final = 1e-6
# Columns of the journal that become fields of a sample.
_COLUMNS: Final = (
    "t_s", "utilisation", "memory_used_bytes", "memory_utilisation", "power_w", "temperature_c",
    "clock_hz", "memory_clock_hz",
)  # fmt: skip
# Rows of the summary: (name, field of a sample, unit).
_SUMMED_UP: Final = (
    ("power", "power", "W"),
    ("utilisation", "utilization", "%"),
    ("memory", "memory_used", "MiB"),
    ("memory busy", "memory_utilization", "%"),
    ("temperature", "temperature", "°C"),
)


def samples(attempts: Sequence[MergedAttempt]) -> list[Sample]:
    """Return the samples of all GPUs of a run, in time order."""
    found = (
        sample
        for attempt in attempts
        for device in attempt.owned
        if device.properties["kind"] == "gpu" and device.key in device.owner.columns
        for sample in _samples(attempt, device)
    )
    return sorted(found, key=itemgetter("elapsed_seconds", "gpu_index"))


def write(found: Sequence[Sample], path: Path) -> None:
    """Write the samples as a JSON array, one sample per line."""
    lines = ",\n".join(json.dumps(sample, allow_nan=False) for sample in found)
    atomic_files.write(path, f"[\n{lines}\n]\n")


def summary(found: Sequence[Sample]) -> str:
    """Return a plain-text table with the mean and highest values of each GPU."""
    lines = [f"{'card':8}{'':14}{'mean':>12}{'highest':>12}"]
    for index in sorted({sample["gpu_index"] for sample in found}):
        mine = [sample for sample in found if sample["gpu_index"] == index]
        lines.append(f"gpu{index:<5}{mine[0]['gpu_name']}, {len(mine)} samples")
        for name, field, unit in _SUMMED_UP:
            known = [sample[field] for sample in mine if sample[field] is not None]
            if known:
                mean, highest = math.fsum(known) / len(known), max(known)
                mean_text, most = (f"{formatting.significant(v)} {unit}" for v in (mean, highest))
                lines.append(f"{'':8}{name:14}{mean_text:>12}{most:>12}")
    return "\n".join(lines) + "\n"


def _samples(attempt: MergedAttempt, device: OwnedDevice) -> Iterator[Sample]:
    line, process = device.properties, device.owner
    columns = process.columns[device.key]
    zero_s, first_s = process.unix_s, attempt.start_of(process)
    lead_s = attempt.start_of(attempt.lead) - first_s
    states = _training_states(attempt.lead, columns["t_s"] - lead_s)
    rows = zip(*(columns[name].tolist() for name in _COLUMNS), strict=True)
    total = line.get("memory_bytes")
    for (t_s, *values), state in zip(rows, states, strict=True):
        load, memory, memory_load, power_w, celsius, *clocks_hz = (
            None if math.isnan(v) else v for v in values
        )
        share = None if memory is None or not total else memory / total
        yield {
            "timestamp": datetime.fromtimestamp(zero_s + t_s, tz=UTC).isoformat(),
            "elapsed_seconds": round(first_s + t_s, 3),
            "gpu_index": line["index"] or 0,
            "gpu_name": line["name"],
            "gpu_type": _vendor(line["name"]),
            "utilization": None if load is None else round(100.0 * load, 1),
            "memory_used": None if memory is None else round(mebibytes(memory), 1),
            "memory_total": None if total is None else round(mebibytes(total), 1),
            "memory_percent": None if share is None else round(100.0 * share, 2),
            "memory_utilization": None if memory_load is None else round(100.0 * memory_load, 1),
            "power": power_w,
            "temperature": celsius,
            "fan_speed": None,
            "clocks": {
                name: round(megahertz(clock_hz))
                for name, clock_hz in zip(("gpu", "memory"), clocks_hz, strict=True)
                if clock_hz is not None
            },
            "training_metadata": state,
        }


def _vendor(name: str) -> str:
    """Return the vendor of a GPU; older names of NVIDIA's cards begin with a series (Tesla)."""
    first = name.partition(" ")[0].lower()
    return first if first in ("amd", "apple", "intel", "jetson") else "nvidia"


def _training_states(process: ProcessJournal, t_s: Array) -> Iterator[Mapping[str, Any]]:
    """Yield phase, finished epochs and finished steps of a process at each time.

    Args:
        process: lead process of the attempt.
        t_s: (n,), times on the time axis of the process, in order.
    """
    header = process.header
    command = (header.get("environment") or {}).get("command")
    epochs = np.searchsorted([line["t_s"] for line in process.epochs], t_s, side="right")
    lines = np.searchsorted([line["end_s"] for line in process.steps], t_s, side="right")
    steps = np.cumsum([0, *(line["steps"] for line in process.steps)])[lines]
    # The last row is at the end of the attempt, and has means over the time before it.
    is_last = np.abs(t_s - process.end_s) <= _ROUNDED_S
    seen_s = np.where(is_last, np.nextafter(process.end_s, 0.0), t_s)
    names = _phases_at(phases.stretches(process), seen_s)
    for name, epoch, step in zip(names, epochs, steps, strict=True):
        yield {
            "model": header.get("run_name"),
            "training_command": command,
            "phase": name,
            "epoch": int(epoch) if process.epochs else None,
            "batch": int(step) if process.steps else None,
        }


def _phases_at(stretches: Sequence[tuple[str, float, float]], t_s: Array) -> Sequence[str | None]:
    """Return the phase at each time, or ``None``; later entries of ``stretches`` take precedence.

    Args:
        stretches: name, start and end of each phase.
        t_s: (n,), times in order.
    """
    names: list[str | None] = [None] * len(t_s)
    for name, start_s, end_s in stretches:
        first, end = np.searchsorted(t_s, (start_s, end_s)).tolist()
        names[first:end] = [name] * (end - first)
    return names

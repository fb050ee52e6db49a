"""One record for each sample of each card, in the field names that GPU loggers have.

They are those of gputop and of the scripts that read its files: MiB, per cent, degrees Celsius,
watts. ``null`` is not known. ``training_metadata`` says what the training was doing at that moment.
"""

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import atomic_files, formatting
from energy_callbacks.core.units import mebibytes, megahertz
from energy_callbacks.report.collect import phases
from energy_callbacks.report.collect.merge import MergedAttempt, OwnedDevice
from energy_callbacks.report.collect.process import ProcessJournal

Sample = Mapping[str, Any]
# Columns of the summary: name, field, unit.
_SUMMED_UP: Final = (
    ("power", "power", "W"),
    ("utilisation", "utilization", "%"),
    ("memory", "memory_used", "MiB"),
    ("temperature", "temperature", "°C"),
)


def samples(attempts: Sequence[MergedAttempt]) -> list[Sample]:
    """All samples of all cards, in the order of time."""
    found = (
        sample
        for attempt in attempts
        for device in attempt.owned
        if device.record["device"]["kind"] == "gpu" and device.key in device.owner.columns
        for sample in _samples(attempt, device)
    )
    return sorted(found, key=itemgetter("elapsed_seconds", "gpu_index"))


def write(found: Sequence[Sample], path: Path) -> None:
    """A JSON array, one sample a line."""
    lines = ",\n".join(json.dumps(sample, allow_nan=False) for sample in found)
    atomic_files.write(path, f"[\n{lines}\n]\n")


def summary(found: Sequence[Sample]) -> str:
    """Mean and highest value of each card as a table in plain text."""
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
    line, process = device.record["device"], device.owner
    columns, state = process.columns[device.key], _TrainingState(attempt.lead)
    zero_s, first_s = process.unix_s, attempt.start_of(process)
    lead_s = attempt.start_of(attempt.lead) - first_s
    names = ("t_s", "utilisation", "memory_used_bytes", "power_w", "temperature_c", "clock_hz")
    for row in zip(*(columns[name].tolist() for name in names), strict=True):
        t_s, *values = row
        load, memory, power_w, celsius, clock_hz = (None if math.isnan(v) else v for v in values)
        total = line.get("memory_bytes")
        share = None if memory is None or not total else memory / total
        yield {
            "timestamp": datetime.fromtimestamp(zero_s + t_s, tz=UTC).isoformat(),
            "elapsed_seconds": round(first_s + t_s, 3),
            "gpu_index": line["index"] or 0,
            "gpu_name": line["name"],
            "gpu_type": "nvidia",
            "utilization": None if load is None else round(100.0 * load, 1),
            "memory_used": None if memory is None else round(mebibytes(memory), 1),
            "memory_total": None if total is None else round(mebibytes(total), 1),
            "memory_percent": None if share is None else round(100.0 * share, 2),
            "power": power_w,
            "temperature": celsius,
            "fan_speed": None,
            "clocks": {} if clock_hz is None else {"gpu": round(megahertz(clock_hz))},
            "training_metadata": state.at(t_s - lead_s),
        }


class _TrainingState:
    """Phase, epoch and step of a process at any moment of its own time."""

    def __init__(self, process: ProcessJournal) -> None:
        header = process.header
        self._always = {
            "model": header.get("run_name"),
            "training_command": (header.get("environment") or {}).get("command"),
        }
        self._edges_s, self._phases = _flatten_spans(phases.stretches(process))
        self._epoch_ends_s = [line["t_s"] for line in process.epochs]
        self._step_ends_s = [line["end_s"] for line in process.steps]
        self._steps = [0]
        for line in process.steps:
            self._steps.append(self._steps[-1] + line["steps"])

    def at(self, t_s: float) -> Mapping[str, Any]:
        """The phase, and the numbers of finished epochs and steps if the journal has them."""
        place = bisect_right(self._edges_s, t_s) - 1
        steps = self._steps[bisect_right(self._step_ends_s, t_s)]
        return {
            **self._always,
            "phase": self._phases[place] if place >= 0 else None,
            "epoch": bisect_right(self._epoch_ends_s, t_s) if self._epoch_ends_s else None,
            "batch": steps if self._step_ends_s else None,
        }


def _flatten_spans(
    stretches: Sequence[tuple[str, float, float]],
) -> tuple[list[float], list[str | None]]:
    """Moments at which the phase may change, and the phase from each; later spans override."""
    edges_s = sorted({edge_s for _, start_s, end_s in stretches for edge_s in (start_s, end_s)})
    names: list[str | None] = [None] * len(edges_s)
    for name, start_s, end_s in stretches:
        first, end = bisect_left(edges_s, start_s), bisect_left(edges_s, end_s)
        names[first:end] = [name] * (end - first)
    return edges_s, names

"""Writes the results of ``quick.py`` as a table of models: text, CSV, JSON and Markdown."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

from energy_callbacks.core import atomic_files, formatting
from energy_callbacks.core.tables import aligned
from energy_callbacks.report.model.schema import EnergyReport

HEAD = ("model", "parameters", "samples/s", "peak memory", "J/sample", "device busy", "kernels")
# Maximum number of classes of kernels in the last column.
_CLASSES = 2
_IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """The results of one model.

    Attributes:
        model: name of the model.
        dataset: name of the data set.
        steps: number of optimizer steps.
        samples_per_s: samples per second in training; ``None`` if unknown.
        parameters: number of parameters of the model with ten classes.
        peak_bytes: peak of the memory that PyTorch allocated on the GPU; for a training on the CPU,
            peak of the host memory of the process. ``None`` if unknown.
        scope: scope of ``j_per_sample``: ``gpu`` if the energy of the GPU is known, else ``total``.
        j_per_sample: energy per sample in joules; ``None`` if unknown or not resolved.
        j_per_sample_low: lower end of the 95 % interval of ``j_per_sample``; ``None`` if
            ``j_per_sample`` is ``None``.
        j_per_sample_high: upper end of this interval; ``None`` if ``j_per_sample`` is ``None``.
        busy_share: share of the time in which the device works; ``None`` if unknown.
        kernel_shares: share of the time by class of kernels; class ``idle`` is idle time. Empty if
            unknown.
    """

    model: str
    dataset: str
    parameters: int
    steps: int
    samples_per_s: float | None
    peak_bytes: float | None
    scope: Literal["gpu", "total"]
    j_per_sample: float | None
    j_per_sample_low: float | None
    j_per_sample_high: float | None
    busy_share: float | None
    kernel_shares: dict[str, float]


def row(model: str, dataset: str, parameters: int, report: EnergyReport) -> ModelRow:
    """Return the row of a model from its report."""
    has_gpu = report.efficiency.gpu.j_per_sample is not None
    found = (report.efficiency.gpu if has_gpu else report.efficiency.total).j_per_sample
    known = found if found is not None and found.is_resolved else None
    kernels = None if report.profile is None else report.profile.kernels
    allocated = report.memory.peak_allocated_bytes
    return ModelRow(
        model=model,
        dataset=dataset,
        parameters=parameters,
        steps=report.throughput.steps,
        samples_per_s=report.throughput.samples_per_s,
        peak_bytes=allocated or report.memory.host_rss_peak_bytes,
        scope="gpu" if has_gpu else "total",
        j_per_sample=known.value_j if known else None,
        j_per_sample_low=known.low_j if known else None,
        j_per_sample_high=known.high_j if known else None,
        busy_share=kernels.busy_share if kernels else None,
        kernel_shares={one.name: one.share for one in kernels.classes} if kernels else {},
    )


def cells(one: ModelRow) -> tuple[str, ...]:
    """Return the text of each column of ``HEAD``; unknown values are ``-``."""
    busy = [pair for pair in one.kernel_shares.items() if pair[0] != _IDLE]
    largest = sorted(busy, key=lambda pair: pair[1], reverse=True)
    return (
        one.model,
        formatting.grouped(one.parameters),
        formatting.or_dash(one.samples_per_s, formatting.grouped),
        formatting.or_dash(one.peak_bytes, formatting.size),
        formatting.or_dash(one.j_per_sample, lambda j: f"{formatting.joules(j)} ({one.scope})"),
        formatting.or_dash(one.busy_share, formatting.percent),
        ", ".join(f"{name} {formatting.percent(share)}" for name, share in largest[:_CLASSES])
        or "-",
    )


def markdown(rows: Sequence[ModelRow]) -> str:
    """Return the table in Markdown."""
    lines = [HEAD, ("---", *["---:"] * 5, "---"), *map(cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def text(rows: Sequence[ModelRow]) -> str:
    """Return the table for a terminal."""
    return "\n".join(aligned([HEAD, *map(cells, rows)], "<"))


def save(rows: Sequence[ModelRow], folder: Path) -> None:
    """Write ``table.csv``, ``table.json`` and ``table.md`` into a folder.

    Unknown numbers are empty in CSV, ``null`` in JSON, and ``-`` in Markdown.
    """
    atomic_files.write(folder / "table.md", markdown(rows))
    lines = [asdict(one) for one in rows]
    atomic_files.write(folder / "table.json", json.dumps(lines, indent=2) + "\n")
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [field.name for field in fields(ModelRow)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(line | {"kernel_shares": json.dumps(line["kernel_shares"])} for line in lines)
    atomic_files.write(folder / "table.csv", stream.getvalue())

"""The rows of a run: one line of CSV for each window, first the published columns, then ours.

The published columns are those of PctoDL's benchmark, in its order. Lists are JSON; an empty cell
is an unknown value.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from energy_callbacks.core import atomic_files
from energy_callbacks.inference.control.protocols import Window
from energy_callbacks.inference.records import Source

PUBLISHED: Final = (
    "iter",
    "mps_resources",
    "batch_sizes",
    "sm_freq_mhz",
    "mem_freq_mhz",
    "sm_util",
    "mem_util",
    "throughput_total",
    "power_avg",
    "power_max",
    "power_cap_w",
    "timestamp",
)
OWN: Final = (
    "source",
    "gpu",
    "dataset",
    "algorithm",
    "seed",
    "models",
    "start_s",
    "end_s",
    "energy_j",
    "is_steady",
    "duty",
    "power_limit_w",
    "sm_mhz_measured",
    "latency_p95_ms",
    "temperature_c",
    "tenant_throughputs_per_s",
    "degraded",
)
COLUMNS: Final = (*PUBLISHED, *OWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The columns of a row from which figures and curves are made.

    Attributes:
        start_s: start of the window on the clock of the run, s.
        end_s: its end, s.
        cap_w: the cap, W.
        power_mean_w: mean power, W.
        throughput_per_s: samples per second of all tenants.
        energy_j: energy of the GPU, J.
        degraded: how the controller worked in the window without some of its settings, or without
            a plan for the cap; empty if it had all.
    """

    start_s: float
    end_s: float
    cap_w: float
    power_mean_w: float
    throughput_per_s: float
    energy_j: float
    degraded: str = ""

    @property
    def duration_s(self) -> float:
        """Length of the window, s."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The columns that are the same in all rows of a run."""

    source: Source
    gpu: str
    dataset: str
    algorithm: str
    seed: int
    degraded: str = ""


def cells(
    iteration: int,
    window: Window,
    cap_w: float,
    labels: Labels,
    *,
    start_s: float,
    timestamp: str,
) -> dict[str, Any]:
    """Return the cells of a window by column.

    Args:
        iteration: number of the window, from 0.
        window: what the GPU did.
        cap_w: the cap, W.
        labels: the columns that are the same in all rows of the run.
        start_s: start of the run on the clock of the windows, s.
        timestamp: end of the window, ISO 8601.
    """
    chosen = window.point.configuration
    sm_mhz = chosen.sm_mhz if chosen.sm_mhz is not None else window.sm_mhz_measured
    return {
        "iter": iteration,
        "mps_resources": json.dumps([one.share_pct for one in chosen.tenants]),
        "batch_sizes": json.dumps([one.batch for one in chosen.tenants]),
        "sm_freq_mhz": sm_mhz,
        "mem_freq_mhz": chosen.mem_mhz,
        "sm_util": window.sm_util_pct,
        "mem_util": window.mem_util_pct,
        "throughput_total": window.throughput_per_s,
        "power_avg": window.power_mean_w,
        "power_max": window.power_max_w,
        "power_cap_w": cap_w,
        "timestamp": timestamp,
        "source": labels.source,
        "gpu": labels.gpu,
        "dataset": labels.dataset,
        "algorithm": labels.algorithm,
        "seed": labels.seed,
        "models": json.dumps([one.model for one in chosen.tenants]),
        "start_s": round(window.start_s - start_s, 6),
        "end_s": round(window.end_s - start_s, 6),
        "energy_j": window.power_mean_w * (window.end_s - window.start_s),
        "is_steady": str(window.is_steady).lower(),
        "duty": window.point.duty,
        "power_limit_w": chosen.power_limit_w,
        "sm_mhz_measured": window.sm_mhz_measured,
        "latency_p95_ms": window.latency_p95_ms,
        "temperature_c": window.temperature_c,
        "tenant_throughputs_per_s": json.dumps(window.tenant_throughputs_per_s),
        "degraded": labels.degraded,
    }


class RowFile:
    """A new file of rows. Each row is on the disk before ``append`` returns.

    Args:
        path: the file; an older one is replaced.

    Raises:
        OSError: if the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(atomic_files.open_new(path), "wb")
        self._write(_line(COLUMNS))

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row, given as cells by column."""
        self._write(_line([row[name] for name in COLUMNS]))

    def _write(self, text: str) -> None:
        self._file.write(text.encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        """Return the file."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path) -> list[Row]:
    """Return the rows of a finished run.

    Raises:
        ValueError: if a column or a number is missing; the message has the file and the line.
        OSError: if the file cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        lines = csv.DictReader(file)
        if missing := [name for name in COLUMNS if name not in (lines.fieldnames or ())]:
            raise ValueError(
                f"{path} has no column {missing[0]!r}; it is not a file of this benchmark"
            )
        return [_row(path, number, line) for number, line in enumerate(lines, start=2)]


def _row(path: Path, number: int, line: Mapping[str, str]) -> Row:
    if line[COLUMNS[-1]] is None:
        raise ValueError(f"{path}, line {number}: it has fewer columns than the first line")
    try:
        return Row(
            start_s=_number(line["start_s"]),
            end_s=_number(line["end_s"]),
            cap_w=_number(line["power_cap_w"]),
            power_mean_w=_number(line["power_avg"]),
            throughput_per_s=_number(line["throughput_total"]),
            energy_j=_number(line["energy_j"]),
            degraded=line["degraded"],
        )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}, line {number}: {error}") from error


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _line(values: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()

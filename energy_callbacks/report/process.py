"""What one process of one attempt wrote: a journal read once, its rows kept as plain columns."""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from energy_callbacks.accounting import journal
from energy_callbacks.accounting.journal import Record
from energy_callbacks.records import Energy

_NAN = math.nan
_MEMORY_KEYS = ("memory_used_bytes", "rss_bytes", "allocated_bytes")


@dataclass(slots=True)
class Columns:
    """The series rows of one device; NaN where a row does not say.

    A day of eight GPUs is over a million rows: numbers in arrays take 8 bytes each, records
    would take a hundred times that.
    """

    t_s: "array[float]" = field(default_factory=lambda: array("d"))
    seen_s: "array[float]" = field(default_factory=lambda: array("d"))
    energy_j: "array[float]" = field(default_factory=lambda: array("d"))
    power_w: "array[float]" = field(default_factory=lambda: array("d"))
    memory_bytes: "array[float]" = field(default_factory=lambda: array("d"))
    utilisation: "array[float]" = field(default_factory=lambda: array("d"))
    temperature_c: "array[float]" = field(default_factory=lambda: array("d"))
    throttled_s: "array[float]" = field(default_factory=lambda: array("d"))
    peak_allocated_bytes: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, t_s: float, row: Record) -> None:
        """Append one row."""
        self.t_s.append(t_s)
        self.seen_s.append(row.get("seen_s", t_s))
        self.energy_j.append(_number(row.get("energy_j")))
        self.power_w.append(_number(row.get("power_w")))
        self.memory_bytes.append(_first_number(row, _MEMORY_KEYS))
        self.utilisation.append(_number(row.get("utilisation")))
        self.temperature_c.append(_number(row.get("temperature_c")))
        self.throttled_s.append(_number(row.get("throttled_s")))
        self.peak_allocated_bytes.append(_number(row.get("peak_allocated_bytes")))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedEnergy:
    """A span or window of a journal: its name, its time and its energy by device key."""

    name: str
    start_s: float
    end_s: float
    energy: dict[str, Energy]


@dataclass(slots=True, kw_only=True)
class Process:
    """One journal.

    Attributes:
        end_s: the last moment that any line speaks of.
        open_phase: the phase that the process was in when the journal ended.
        resumed_at_step: optimizer steps of earlier attempts that this one continues from.
        totals: the last line, ``None`` where the attempt was cut off or still runs.
    """

    path: Path
    header: Record
    end_s: float = 0.0
    open_phase: str = "idle"
    resumed_at_step: int | None = None
    devices: dict[str, Record] = field(default_factory=dict)
    unavailable: list[Record] = field(default_factory=list)
    warnings: list[Record] = field(default_factory=list)
    columns: dict[str, Columns] = field(default_factory=dict)
    spans: list[TimedEnergy] = field(default_factory=list)
    windows: list[TimedEnergy] = field(default_factory=list)
    steps: list[Record] = field(default_factory=list)
    totals: Record | None = None

    @property
    def run_id(self) -> str:
        """Which training it belongs to."""
        return str(self.header["run_id"])

    @property
    def attempt(self) -> int:
        """Number of the process start."""
        return int(self.header["attempt"])

    @property
    def host(self) -> str:
        """Name of the machine."""
        return str(self.header["host"])

    @property
    def rank(self) -> int:
        """Number of the process among all."""
        return int(self.header["rank"])

    @property
    def unix_s(self) -> float:
        """Wall time at which it began."""
        return float(self.header["unix_s"])

    def last_energy_j(self, key: str) -> float | None:
        """The newest cumulative energy of a device's series, ``None`` where no row has one."""
        column = self.columns.get(key)
        known = (e for e in reversed(column.energy_j) if not math.isnan(e)) if column else None
        return next(known, None) if known else None


def load(path: Path) -> Process:
    """Read one journal.

    Raises:
        JournalError: see ``journal.read``.
    """
    records = journal.read(path)
    process = Process(path=path, header=_encodable(next(records)))
    damaged = 0
    for record in records:
        take = _TAKERS.get(record["type"])
        if take is None:
            continue
        try:
            take(process, record if _is_bulk(record) else _encodable(record))
        except (AttributeError, KeyError, TypeError, ValueError):
            damaged += 1
    if damaged:
        message = f"{damaged} damaged lines of {path.name} are left out"
        process.warnings.append({"code": "damaged_lines", "message": message, "t_s": 0.0})
    return process


def _is_bulk(record: Record) -> bool:
    """Rows and steps are nearly all of a journal, and hold no words of the user."""
    return record["type"] == "series" or record.get("kind") == "steps"


def _encodable(value: Any) -> Any:
    """``value`` without lone surrogates, which a command line of undecodable bytes brings."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value


def _take_device(process: Process, record: Record) -> None:
    process.devices[record["device"]["key"]] = record


def _take_series(process: Process, record: Record) -> None:
    t_s = record["t_s"]
    process.end_s = max(process.end_s, t_s)
    for key, row in record["devices"].items():
        process.columns.setdefault(key, Columns()).add(t_s, row)


def _take_event(process: Process, record: Record) -> None:
    process.end_s = max(process.end_s, record.get("t_s", 0.0), record.get("end_s", 0.0))
    kind = record["kind"]
    if kind == "span":
        process.spans.append(_timed(record, "phase"))
    elif kind == "window":
        process.windows.append(_timed(record, "name"))
    elif kind == "steps":
        _settle(process.steps, record)
        process.steps.append(_counts(process, record))
    elif kind == "phase":
        process.open_phase = record["phase"]
    elif kind == "resume":
        process.resumed_at_step = record["step"]


def _settle(earlier: list[Record], line: Record) -> None:
    """A line that knows its samples counts those of the lines before that did not."""
    for name in ("samples", "tokens"):
        if line[name] is None:
            continue
        for record in reversed(earlier):
            if record[name] is not None:
                break
            record[name] = 0.0


def _counts(process: Process, record: Record) -> Record:
    """A line of steps; its energy only as long as no span tells that of the attempt."""
    return {**record, "energy": {}} if process.spans else record


def _take_totals(process: Process, record: Record) -> None:
    process.totals = record
    process.end_s = record["t_s"]


_TAKERS: dict[str, Callable[[Process, Record], None]] = {
    "device": _take_device,
    "series": _take_series,
    "event": _take_event,
    "unavailable": lambda process, record: process.unavailable.append(record),
    "warning": lambda process, record: process.warnings.append(record),
    "totals": _take_totals,
}


def _timed(record: Record, name_key: str) -> TimedEnergy:
    return TimedEnergy(
        name=record[name_key],
        start_s=record["start_s"],
        end_s=record["end_s"],
        energy=energies(record["energy"]),
    )


def energies(record: Record) -> dict[str, Energy]:
    """The ``energy`` of a line, by device key."""
    return {key: journal.energy_from_json(value) for key, value in record.items()}


def _number(value: Any) -> float:
    return _NAN if value is None else float(value)


def _first_number(row: Record, keys: tuple[str, ...]) -> float:
    return next((float(row[key]) for key in keys if row.get(key) is not None), _NAN)

"""The journal of one process of one attempt, with its rows as columns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.records import Energy
from energy_callbacks.report.collect.rows import DeviceColumns, RowLog


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedEnergy:
    """A span or window of a journal: its name, its time and its energy by device key."""

    name: str
    start_s: float
    end_s: float
    energy: dict[str, Energy]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A training that ran inside a measured command.

    Attributes:
        start_s: on the time axis of the command.
    """

    process: "ProcessJournal"
    start_s: float


@dataclass(slots=True, kw_only=True)
class ProcessJournal:
    """One journal.

    Attributes:
        folders_back: how many run folders before the newest one this journal lies in.
        end_s: the last moment in any line.
        open_phase: the phase that the process was in when the journal ended.
        resumed_at_step: optimizer steps of earlier attempts that this one continues from.
        forecast: the newest one.
        batch_sizes: what searches for one have found.
        profiles: by kind, the newest.
        metrics: of the user, in time order.
        epochs: their ends.
        so_far: energy by device key, at the last moment whose quality was written down.
        data_wait: the newest seconds and energy of waiting for data; empty if not reported.
        used: keys of devices on which a process of the command was seen.
        trainings: of a measured command, those that ran in it, one after the other.
        totals: the last line, ``None`` if the attempt was cut off or still runs.
    """

    path: Path
    header: Record
    folders_back: int = 0
    end_s: float = 0.0
    open_phase: str = "idle"
    resumed_at_step: int | None = None
    devices: dict[str, Record] = field(default_factory=dict)
    unavailable: list[Record] = field(default_factory=list)
    warnings: list[Record] = field(default_factory=list)
    remarks: list[Record] = field(default_factory=list)
    rows: RowLog = field(default_factory=RowLog)
    columns: dict[str, DeviceColumns] = field(default_factory=dict)
    spans: list[TimedEnergy] = field(default_factory=list)
    windows: list[TimedEnergy] = field(default_factory=list)
    steps: list[Record] = field(default_factory=list)
    forecast: Record | None = None
    batch_sizes: list[Record] = field(default_factory=list)
    profiles: dict[str, Record] = field(default_factory=dict)
    metrics: list[Record] = field(default_factory=list)
    epochs: list[Record] = field(default_factory=list)
    so_far: Record = field(default_factory=dict)
    data_wait: Record = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    trainings: tuple[Training, ...] = ()
    totals: Record | None = None

    @property
    def run_id(self) -> str:
        """Which training it belongs to."""
        return str(self.header["run_id"])

    @property
    def attempt(self) -> int:
        """Number of the process start, in its run folder."""
        return int(self.header["attempt"])

    @property
    def folder(self) -> Path:
        """The run folder that it lies in."""
        return self.path.parent.parent.parent

    @property
    def before(self) -> Record:
        """What the run had used, and where, before it came to this folder; mostly empty."""
        return self.header.get("before") or {}

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
        """The newest cumulative energy of a device's series, ``None`` if no row has one."""
        if key not in self.columns:
            return None
        energy_j = self.columns[key]["energy_j"]
        known = energy_j[~np.isnan(energy_j)]
        return float(known[-1]) if len(known) else None


def load(path: Path) -> ProcessJournal:
    """Read one journal.

    Raises:
        JournalError: see ``journal.read``.
    """
    return of_records(path, journal.read(path))


def of_records(path: Path, records: Iterator[Record]) -> ProcessJournal:
    """The same from its lines, header first.

    Args:
        path: of the file that they come from.
        records: of one journal.
    """
    process = ProcessJournal(path=path, header=_encodable(next(records)))
    damaged = 0
    for record in records:
        take = _TAKERS.get(record["type"])
        if take is None:
            continue
        try:
            take(process, record if _is_bulk(record) else _encodable(record))
        except (AttributeError, KeyError, TypeError, ValueError):
            damaged += 1
    process.columns = process.rows.columns(_names(process))
    process.rows = RowLog()
    if damaged:
        message = f"{damaged} damaged lines of {path.name} are left out"
        process.warnings.append({"code": "damaged_lines", "message": message, "t_s": 0.0})
    return process


def _is_bulk(record: Record) -> bool:
    """Nearly all of a journal, and without words of the user."""
    return record["type"] in ("series", "so_far") or record.get("kind") == "steps"


def _encodable(value: Any) -> Any:
    """``value`` without lone surrogates, which a command line of undecodable bytes brings."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value


def _take_device(process: ProcessJournal, record: Record) -> None:
    process.devices[record["device"]["key"]] = record


def _take_series(process: ProcessJournal, record: Record) -> None:
    t_s = record["t_s"]
    process.end_s = max(process.end_s, t_s)
    process.rows.add(t_s, record["rows"] if "rows" in record else _unnamed(record["devices"]))


def _names(process: ProcessJournal) -> tuple[str, ...]:
    return tuple(process.header.get("columns") or journal.COLUMNS)


def _unnamed(devices: dict[str, Record]) -> dict[str, list[float | None]]:
    """Rows as version 1 wrote them, each value with its name."""
    return {key: [row.get(name) for name in journal.COLUMNS] for key, row in devices.items()}


def _take_event(process: ProcessJournal, record: Record) -> None:
    process.end_s = max(process.end_s, record.get("t_s", 0.0), record.get("end_s", 0.0))
    if (take := _EVENT_TAKERS.get(record["kind"])) is not None:
        take(process, record)


def _take_steps(process: ProcessJournal, record: Record) -> None:
    _settle(process.steps, record)
    record.pop("energy", None)  # version 1 had here what rows and spans hold
    process.steps.append(record)


def _take_phase(process: ProcessJournal, record: Record) -> None:
    process.open_phase = record["phase"]


def _take_resume(process: ProcessJournal, record: Record) -> None:
    process.resumed_at_step = record["step"]


def _take_forecast(process: ProcessJournal, record: Record) -> None:
    process.forecast = record


def _take_metrics(process: ProcessJournal, record: Record) -> None:
    values = {name: float(value) for name, value in record["values"].items()}
    process.metrics.append(record | {"values": values})


def _settle(earlier: list[Record], line: Record) -> None:
    """A line that knows its samples counts those of the lines before that did not."""
    for name in ("samples", "tokens"):
        if line[name] is None:
            continue
        for record in reversed(earlier):
            if record[name] is not None:
                break
            record[name] = 0.0


def _take_so_far(process: ProcessJournal, record: Record) -> None:
    process.so_far = record["energy"]
    process.data_wait = record.get("data_wait", {})


def _take_profile(process: ProcessJournal, record: Record) -> None:
    process.profiles[record["of"]] = record["record"]


def _take_totals(process: ProcessJournal, record: Record) -> None:
    process.totals = record
    process.data_wait = record.get("data_wait", {})
    process.end_s = record["t_s"]


_EVENT_TAKERS: dict[str, Callable[[ProcessJournal, Record], None]] = {
    "span": lambda process, record: process.spans.append(_timed(record, "phase")),
    "window": lambda process, record: process.windows.append(_timed(record, "name")),
    "steps": _take_steps,
    "phase": _take_phase,
    "resume": _take_resume,
    "forecast": _take_forecast,
    "batch_sizes": lambda process, record: process.batch_sizes.append(record),
    "profile": _take_profile,
    "metrics": _take_metrics,
    "epoch": lambda process, record: process.epochs.append(record),
    "used": lambda process, record: process.used.update(record["devices"]),
}
_TAKERS: dict[str, Callable[[ProcessJournal, Record], None]] = {
    "device": _take_device,
    "series": _take_series,
    "event": _take_event,
    "unavailable": lambda process, record: process.unavailable.append(record),
    "warning": lambda process, record: process.warnings.append(record),
    "remark": lambda process, record: process.remarks.append(record),
    "so_far": _take_so_far,
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

"""Reads the journal of one process of one attempt, and converts its ``series`` lines to columns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from energy_callbacks import importers
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.records import Energy
from energy_callbacks.report.collect.rows import DeviceColumns, RowLog


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedEnergy:
    """A span or window of a journal: name, times on the journal's axis, energy by device key."""

    name: str
    start_s: float
    end_s: float
    energy: dict[str, Energy]


class Training(NamedTuple):
    """A training that ran inside a measured command; see ``command.py``.

    Attributes:
        process: journal of rank 0 of the training.
        start_s: start of the training on the time axis of the command, in seconds.
    """

    process: "ProcessJournal"
    start_s: float


@dataclass(slots=True, kw_only=True)
class ProcessJournal:
    """The contents of one journal.

    Attributes:
        header: first line of the journal.
        folders_back: number of times the run moved to a new folder after this journal.
        end_s: end of the journal in seconds: the time of the totals line. If there is none, the
            latest time in an ``event`` or ``series`` line.
        newest_s: time of the newest line in seconds, if there is no totals line.
        is_settled: whether the journal of a running process was shortened; see ``running``.
        open_phase: phase of the process at ``end_s``.
        changes: time and new phase of each change of phase, in time order.
        resumed_at_step: optimizer step of an earlier attempt from which this attempt continues;
            ``None`` if it does not continue from a checkpoint.
        devices: ``device`` lines by device key.
        unavailable: lines on sensors that could not be opened.
        rows: series lines; empty after the journal has been read.
        columns: readings as columns, by device key.
        spans: the times from one change of phase to the next, in time order.
        windows: time spans that were named when they ended.
        steps: lines with the counts of steps and samples since the previous such line.
        forecast: newest forecast; ``None`` if there is none.
        batch_sizes: results of batch-size searches.
        profiles: newest profile of each kind.
        metrics: metrics that the user logged, in time order.
        epochs: ends of epochs.
        so_far: energies by device key, from the newest ``so_far`` line; empty if there is none.
        so_far_s: time up to which ``so_far`` has the energies, in seconds.
        phases: energy by device key and phase, over all spans up to ``phases_s``.
        phases_s: time of the newest line ``phases``, in seconds; 0 if there is none.
        phases_so_far: ``so_far`` at ``phases_s``.
        data_wait: newest total time and energy of waiting for data; empty if not reported.
        used: keys of devices on which a process of a measured command was seen.
        trainings: the trainings inside a measured command; they do not overlap.
        totals: the line with totals, which is the last line; ``None`` if the attempt was cut off or
            is still running.
    """

    path: Path
    header: Record
    folders_back: int = 0
    end_s: float = 0.0
    newest_s: float = 0.0
    is_settled: bool = False
    open_phase: str = "idle"
    changes: list[tuple[float, str]] = field(default_factory=list)
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
    so_far_s: float = 0.0
    phases: dict[str, dict[str, Energy]] = field(default_factory=dict)
    phases_s: float = 0.0
    phases_so_far: Record = field(default_factory=dict)
    data_wait: Record = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    trainings: tuple[Training, ...] = ()
    totals: Record | None = None

    @property
    def run_id(self) -> str:
        """Id of the run, shared by all its attempts."""
        return str(self.header["run_id"])

    @property
    def attempt(self) -> int:
        """Number of the attempt within its run folder."""
        return int(self.header["attempt"])

    @property
    def folder(self) -> Path:
        """Run folder that contains the journal."""
        return self.path.parent.parent.parent

    @property
    def before(self) -> Record:
        """Energy and folder of the run before it moved to this folder; usually empty."""
        return self.header.get("before") or {}

    @property
    def host(self) -> str:
        """Name of the machine."""
        return str(self.header["host"])

    @property
    def rank(self) -> int:
        """Rank of the process in a distributed training."""
        return int(self.header["rank"])

    @property
    def unix_s(self) -> float:
        """Wall time of the start, in seconds since 1970."""
        return float(self.header["unix_s"])

    @property
    def fitted(self) -> dict[str, dict[str, Energy]]:
        """The energies ``phases`` if they reach to the end of the journal; otherwise empty."""
        return self.phases if self.phases_s >= self.end_s else {}

    def last_energy_j(self, key: str) -> float | None:
        """Return the newest cumulative energy of a device; ``None`` if no row has one."""
        energy_j = self.columns.get(key, DeviceColumns())["energy_j"]
        known = energy_j[~np.isnan(energy_j)]
        return float(known[-1]) if len(known) else None


def load(path: Path) -> ProcessJournal:
    """Read a journal, or a log of another program that an importer recognises.

    Lines that cannot be parsed are skipped without a warning. Lines with missing or invalid values
    are skipped too, and a warning states their number.

    Raises:
        JournalError: see ``journal.read`` and ``importers.records``.
    """
    imported = importers.records(path)
    records = journal.read(path) if imported is None else imported
    process = ProcessJournal(path=path, header=_encodable(next(records)))
    damaged = 0
    for record in records:
        try:
            _take(process, record)
        except (AttributeError, KeyError, TypeError, ValueError):
            damaged += 1
    names = tuple(process.header.get("columns") or journal.COLUMNS)
    process.columns = process.rows.columns(names)
    process.rows = RowLog()
    process.newest_s = process.end_s
    if damaged:
        message = f"{damaged} damaged lines of {path.name} are left out"
        process.warnings.append({"code": "damaged_lines", "message": message, "t_s": 0.0})
    return process


def _take(process: ProcessJournal, record: Record) -> None:
    """Add one line to the process; lines of unknown kinds are ignored."""
    kind = record["type"]
    if kind == "event":
        process.end_s = max(process.end_s, record.get("t_s", 0.0), record.get("end_s", 0.0))
        kind = record["kind"]
    # Lines of these kinds make up nearly the whole journal, and contain no text from users. To
    # save time, they are not passed to ``_encodable``.
    is_bulk = kind in ("series", "so_far", "steps")
    if take := _TAKERS.get(kind):
        take(process, record if is_bulk else _encodable(record))


def _encodable(value: Any) -> Any:
    """Replace lone surrogates in all texts of a JSON value.

    Undecodable bytes of a command line become lone surrogates, which UTF-8 cannot encode.
    """
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
    process.end_s = max(process.end_s, record["t_s"])
    rows = record.get("rows")
    if rows is None:  # version 1 of the format has the name of each value
        devices = record["devices"].items()
        rows = {key: [row.get(name) for name in journal.COLUMNS] for key, row in devices}
    process.rows.add(record["t_s"], rows)


def _take_steps(process: ProcessJournal, record: Record) -> None:
    _settle(process.steps, record)
    record.pop("energy", None)  # version 1 repeats the energy of rows and spans
    process.steps.append(record)


def _take_metrics(process: ProcessJournal, record: Record) -> None:
    values = {name: float(value) for name, value in record["values"].items()}
    process.metrics.append(record | {"values": values})


def _settle(earlier: list[Record], line: Record) -> None:
    """Set unknown counts in the last lines of ``earlier`` to 0, because ``line`` includes them.

    A count that is known in ``line`` includes those of all lines since the last known count.
    """
    known = [name for name in ("samples", "tokens") if line[name] is not None]
    for name in known:
        for record in reversed(earlier):
            if record[name] is not None:
                break
            record[name] = 0.0


def _take_phase(process: ProcessJournal, record: Record) -> None:
    process.open_phase = record["phase"]
    process.changes.append((record["t_s"], record["phase"]))


def _take_so_far(process: ProcessJournal, record: Record) -> None:
    process.so_far, process.so_far_s = record["energy"], record["t_s"]
    process.data_wait = record.get("data_wait", {})


def _take_phases(process: ProcessJournal, record: Record) -> None:
    process.phases_s, process.phases_so_far = record["t_s"], process.so_far
    process.phases = {key: energies(by_phase) for key, by_phase in record["energy"].items()}


def _take_forecast(process: ProcessJournal, record: Record) -> None:
    process.forecast = record


def _take_totals(process: ProcessJournal, record: Record) -> None:
    process.totals = record
    process.data_wait = record.get("data_wait", {})
    process.end_s = record["t_s"]


def _set(name: str, key: str) -> Callable[[ProcessJournal, Record], None]:
    """Return a function that stores the value ``key`` of a line in the field ``name``."""
    return lambda process, record: setattr(process, name, record[key])


# Functions that add a line to the process, by the kind of an ``event`` line, or by the type of any
# other line.
_TAKERS: Mapping[str, Callable[[ProcessJournal, Record], None]] = {
    "device": _take_device,
    "series": _take_series,
    "unavailable": lambda process, record: process.unavailable.append(record),
    "warning": lambda process, record: process.warnings.append(record),
    "remark": lambda process, record: process.remarks.append(record),
    "so_far": _take_so_far,
    "phases": _take_phases,
    "totals": _take_totals,
    "span": lambda process, record: process.spans.append(_timed(record, "phase")),
    "window": lambda process, record: process.windows.append(_timed(record, "name")),
    "steps": _take_steps,
    "phase": _take_phase,
    "resume": _set("resumed_at_step", "step"),
    "forecast": _take_forecast,
    "batch_sizes": lambda process, record: process.batch_sizes.append(record),
    "profile": lambda process, record: process.profiles.update({record["of"]: record["record"]}),
    "metrics": _take_metrics,
    "epoch": lambda process, record: process.epochs.append(record),
    "used": lambda process, record: process.used.update(record["devices"]),
}


def _timed(record: Record, name_key: str) -> TimedEnergy:
    return TimedEnergy(
        name=record[name_key],
        start_s=record["start_s"],
        end_s=record["end_s"],
        energy=energies(record["energy"]),
    )


def energies(record: Record) -> dict[str, Energy]:
    """Convert the value ``energy`` of a journal line to energies by device key."""
    return {key: journal.energy_from_json(value) for key, value in record.items()}

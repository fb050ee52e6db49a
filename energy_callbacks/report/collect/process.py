"""Reads the journal of one process of one attempt, and converts its ``series`` lines to columns."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np

from energy_callbacks import importers
from energy_callbacks.accounting.journal import headers, journal, redaction
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics.carbon import Intensity
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.json_lines import Damage
from energy_callbacks.core.records import Device, Energy, Sensor
from energy_callbacks.report.collect import checks
from energy_callbacks.report.collect.rows import DeviceColumns, RowLog
from energy_callbacks.report.model.runs import Status
from energy_callbacks.report.model.schema import from_record

_STATUSES = get_args(Status)


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
        power_changes: changes of power limits and clocks.
        so_far: energies by device key, from the newest ``so_far`` line; empty if there is none.
        so_far_s: time up to which ``so_far`` has the energies, in seconds.
        phases: energy by device key and phase, over all spans up to ``phases_s``.
        phases_s: time of the newest line ``phases``, in seconds; 0 if there is none.
        phases_so_far: ``so_far`` at ``phases_s``.
        data_wait: newest total time and energy of waiting for data; empty if not reported.
        intensities: start in seconds and value of each carbon intensity, in time order; empty if
            the settings have no file of intensities.
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
    power_changes: list[Record] = field(default_factory=list)
    so_far: Record = field(default_factory=dict)
    so_far_s: float = 0.0
    phases: dict[str, dict[str, Energy]] = field(default_factory=dict)
    phases_s: float = 0.0
    phases_so_far: Record = field(default_factory=dict)
    data_wait: Record = field(default_factory=dict)
    intensities: list[tuple[float, Intensity]] = field(default_factory=list)
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


_Taker = Callable[[ProcessJournal, Record], None]


def load(path: Path) -> ProcessJournal:
    """Read a journal, or a log of another program that an importer recognises.

    Lines that cannot be parsed and lines with missing or invalid values are skipped, and a warning
    states their number. Only a last line without line end is skipped without a warning.

    Raises:
        JournalError: see ``journal.read`` and ``importers.records``.
    """
    imported, damage = importers.records(path), Damage()
    records = journal.read(path, damage) if imported is None else imported
    process = ProcessJournal(path=path, header=_header(next(records), path, damage.line))
    for record in records:
        try:
            _take(process, record)
        except checks.INVALID:
            damage.add()
    names = tuple(process.header.get("columns") or journal.COLUMNS)
    process.columns = process.rows.columns(names)
    process.rows = RowLog()
    process.newest_s = process.end_s
    if damage.count:
        where = f" (the first is line {damage.first})" if damage.first else ""
        lines = "damaged line of {} is" if damage.count == 1 else "damaged lines of {} are"
        message = f"{damage.count} {lines.format(path.name)} not included{where}."
        process.warnings.append({"code": "damaged_lines", "message": message, "t_s": 0.0})
    return process


def _header(record: Record, path: Path, line: int) -> Record:
    """Return a header for the report; journals of earlier versions may contain secrets.

    Raises:
        JournalError: if a value of the header is invalid.
    """
    headers.check(record, path, line)
    try:
        header: Record = redaction.record(checks.encodable(record))
    except checks.INVALID as error:
        raise JournalError(f"{path}, line {line}: the header is damaged ({error!r})") from error
    return header


def _take(process: ProcessJournal, record: Record) -> None:
    """Add one line to the process; lines of unknown kinds are ignored.

    Raises:
        Exception: one of ``checks.INVALID`` if a value of the line is missing or invalid.
    """
    kind, end_s = record["type"], 0.0
    if kind == "event":
        kind = record["kind"]
        end_s = max(checks.number(record.get("t_s", 0.0)), checks.number(record.get("end_s", 0.0)))
    if take := _TAKERS.get(kind):
        # ``series`` lines make up most of the journal and contain no text from users. To save time,
        # they are not passed to ``encodable``.
        take(process, record if kind == "series" else checks.encodable(record))
    process.end_s = max(process.end_s, end_s)


def _take_device(process: ProcessJournal, record: Record) -> None:
    device = from_record(Device, record["device"])
    sensors = {name: from_record(Sensor, value) for name, value in record["sensors"].items()}
    process.devices[device.key] = record | {
        "device": asdict(device),
        "sensors": {name: asdict(sensor) for name, sensor in sensors.items()},
    }


def _take_series(process: ProcessJournal, record: Record) -> None:
    end_s, rows = max(process.end_s, checks.number(record["t_s"])), record.get("rows")
    if rows is None:  # version 1 of the format has the name of each value
        devices = record["devices"].items()
        rows = {key: [row.get(name) for name in journal.COLUMNS] for key, row in devices}
    process.rows.add(record["t_s"], rows)
    process.end_s = end_s


def _take_steps(process: ProcessJournal, record: Record) -> None:
    checks.optional(checks.number, record, ("samples", "tokens", "data_wait_s"))
    checks.optional(checks.whole, record, ("last_step",))
    for name in ("start_s", "end_s"):
        checks.number(record[name])
    checks.whole(record["steps"])
    _settle(process.steps, record)
    record.pop("energy", None)  # version 1 repeats the energy of rows and spans
    process.steps.append(record)


def _take_metrics(process: ProcessJournal, record: Record) -> None:
    checks.number(record["t_s"])
    values = {name: checks.number(value) for name, value in record["values"].items()}
    checks.optional(checks.number, record, ("epoch",))
    checks.optional(checks.whole, record, ("step",))
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
    process.changes.append((checks.number(record["t_s"]), checks.text(record["phase"])))
    process.open_phase = record["phase"]


def _take_so_far(process: ProcessJournal, record: Record) -> None:
    energies(record["energy"])  # raises an exception if an energy is invalid
    data_wait = _data_wait(record)
    process.so_far, process.so_far_s = record["energy"], checks.number(record["t_s"])
    process.data_wait = data_wait


def _data_wait(record: Record) -> Record:
    found: Record = record.get("data_wait", {})
    if found:
        checks.number(found["duration_s"])
        energies(found["energy"])
    return found


def _take_phases(process: ProcessJournal, record: Record) -> None:
    process.phases = {key: energies(by_phase) for key, by_phase in record["energy"].items()}
    process.phases_s, process.phases_so_far = checks.number(record["t_s"]), process.so_far


def _take_forecast(process: ProcessJournal, record: Record) -> None:
    process.forecast = record


def _take_totals(process: ProcessJournal, record: Record) -> None:
    energies(record["energy"])  # raises an exception if an energy is invalid
    if record["status"] not in _STATUSES:
        raise ValueError(f"no status is called {record['status']!r}")
    checks.optional(checks.text, record, ("error",))
    checks.optional(checks.number, record, ("sampler_cpu_s",))
    for missed in (record.get("missed_readings") or {}).values():
        checks.whole(missed)
    process.data_wait = _data_wait(record)
    process.end_s = checks.number(record["t_s"])
    process.totals = record


def _take_resume(process: ProcessJournal, record: Record) -> None:
    process.resumed_at_step = checks.whole(record["step"])


def _take_intensity(process: ProcessJournal, record: Record) -> None:
    values = {one.name: record[one.name] for one in fields(Intensity)}
    intensity = from_record(Intensity, values)
    checks.optional(checks.number, values, ("kg_per_kwh",))
    for name in ("low_kg_per_kwh", "high_kg_per_kwh"):
        checks.number(values[name])
    process.intensities.append((checks.number(record["t_s"]), intensity))


def _take_epoch(process: ProcessJournal, record: Record) -> None:
    checks.number(record["t_s"])
    process.epochs.append(record)


def _take_power_change(process: ProcessJournal, record: Record) -> None:
    checks.number(record["t_s"])
    checks.optional(checks.number, record, ("value",))
    for name in ("knob", "why"):
        checks.text(record[name])
    process.power_changes.append(record)


def _take_note(lines: Callable[[ProcessJournal], list[Record]], *texts: str) -> _Taker:
    """Return a function that appends a line to a list of the process.

    Args:
        lines: returns the list.
        texts: names of the values that must be texts.
    """

    def take(process: ProcessJournal, record: Record) -> None:
        for name in texts:
            checks.text(record[name])
        checks.optional(checks.text, {"fix": None, **record}, ("fix",))
        lines(process).append(record)

    return take


# Functions that add a line to the process, by the kind of an ``event`` line, or by the type of any
# other line.
_TAKERS: Mapping[str, _Taker] = {
    "device": _take_device,
    "series": _take_series,
    "unavailable": _take_note(lambda process: process.unavailable, "source", "reason"),
    "warning": _take_note(lambda process: process.warnings, "code", "message"),
    "remark": _take_note(lambda process: process.remarks, "source", "message"),
    "so_far": _take_so_far,
    "phases": _take_phases,
    "totals": _take_totals,
    "span": lambda process, record: process.spans.append(_timed(record, "phase")),
    "window": lambda process, record: process.windows.append(_timed(record, "name")),
    "steps": _take_steps,
    "phase": _take_phase,
    "resume": _take_resume,
    "forecast": _take_forecast,
    "batch_sizes": lambda process, record: process.batch_sizes.append(record),
    "profile": lambda process, record: process.profiles.update({record["of"]: record["record"]}),
    "metrics": _take_metrics,
    "epoch": _take_epoch,
    "power_limit": _take_power_change,
    "carbon_intensity": _take_intensity,
    "used": lambda process, record: process.used.update(map(checks.text, record["devices"])),
}


def _timed(record: Record, name_key: str) -> TimedEnergy:
    return TimedEnergy(
        name=checks.text(record[name_key]),
        start_s=checks.number(record["start_s"]),
        end_s=checks.number(record["end_s"]),
        energy=energies(record["energy"]),
    )


def energies(record: Record) -> dict[str, Energy]:
    """Convert the value ``energy`` of a journal line to energies by device key.

    Raises:
        TypeError: if a value of an energy has the wrong type.
    """
    found = {key: journal.energy_from_json(value) for key, value in record.items()}
    for energy in found.values():
        checks.text(energy.method)
        for number in (energy.stderr_j, energy.systematic_j, energy.edge_j, energy.coverage):
            checks.number(number)
        if energy.energy_j is not None:
            checks.number(energy.energy_j)
    return found

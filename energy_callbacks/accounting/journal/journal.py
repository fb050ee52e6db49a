"""Reads and writes journals: append-only files of JSON lines.

A journal contains the data of one process of one attempt; ``report.build`` reads it. Each line is a
JSON object, called a record, with a key ``type``. The first line is the header. Times ``t_s`` are
seconds since this process started the attempt; ``unix_s`` in the header is the wall time of that
start. ``docs/reference/journal.md`` describes the format. ``VERSION`` increases when code that
reads journals must change.
"""

import contextlib
import json
import math
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from io import FileIO
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.journal import headers, redaction
from energy_callbacks.core import atomic_files, json_lines
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.guard import logger
from energy_callbacks.core.records import Channel, Device, Energy
from energy_callbacks.core.settings.layers import ARGUMENT, DEFAULT

FORMAT = "energy_callbacks.journal"
VERSION = 2
Record = json_lines.Record

# Columns of a device's row in a ``series`` line, in the order of the header's ``columns``, with the
# number of decimals. The decimals are finer than the resolution of any sensor, but few enough to
# keep the journal of a day small.
COLUMNS: Final[Mapping[str, int]] = {
    "energy_j": 6,
    "seen_s": 6,
    "power_w": 4,
    "utilisation": 4,
    "temperature_c": 2,
    "clock_hz": 0,
    "memory_used_bytes": 0,
    "throttled_s": 6,
    "rss_bytes": 0,
    "allocated_bytes": 0,
    "peak_allocated_bytes": 0,
    "sm_active": 4,
    "sm_occupancy": 4,
    "tensor_active": 4,
    "dram_active": 4,
    "memory_utilisation": 4,
    "memory_clock_hz": 0,
}

# Fields of every energy; ``edge_j`` is optional.
_ENERGY: Final = tuple(field.name for field in fields(Energy) if field.name != "edge_j")
# Number of bytes that are read from the end of a journal to find its last line. They are enough for
# a ``totals`` line with 100 devices.
_TAIL_BYTES: Final = 65536
# Most bytes that a writer keeps in memory: 20 minutes of a journal with eight GPUs. The records
# between two calls of ``flush`` have a few thousand bytes.
_MOST_BYTES: Final = 1 << 20

_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class JournalWriter:
    """Appends records to one file; ``flush`` passes them to the operating system.

    Flushed records survive ``kill -9`` of this process. Records are kept in memory until ``flush``
    writes them with one system call, so that a forked child has nothing to write at its exit. A
    full disk raises no exception: records stay in memory until there is space again. If they
    become too many, they are lost.

    Attributes:
        path: path of the file.
        failures: number of failed calls to write or close the file.
        lost: number of records that were lost.
        last_error: error of the last failed call; ``None`` if no call has failed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures = self.lost = 0
        self.last_error: OSError | None = None
        self._unwritten = bytearray()
        self._file: FileIO | None = FileIO(atomic_files.open_to_append(path), "a")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record; NaN and infinity become ``null``, unsupported objects become text."""
        if self._file is not None:
            self._unwritten += _as_json(record).encode() + b"\n"
            if len(self._unwritten) > _MOST_BYTES:
                self.flush()

    def flush(self) -> None:
        """Pass everything written so far to the operating system."""
        with self._counting_failures():
            while self._file is not None and self._unwritten:
                written = self._file.write(self._unwritten)
                del self._unwritten[:written]
        if len(self._unwritten) > _MOST_BYTES:
            self.lost += self._unwritten.count(b"\n")
            # The last line in the file may be incomplete; the next record begins on a new line.
            self._unwritten[:] = b"\n"

    def close(self) -> None:
        """Flush and close the file; a second call does nothing."""
        self.flush()
        file, self._file = self._file, None
        if file is not None:
            with self._counting_failures():
                file.close()

    @contextlib.contextmanager
    def _counting_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not self.failures:
                logger.warning("the energy journal %s cannot be written: %s", self.path, error)
            self.failures += 1
            self.last_error = error


def _as_json(record: Mapping[str, Any]) -> str:
    """Return a record as JSON.

    Values are converted to JSON types only if encoding fails. Most records contain only JSON types,
    and the conversion takes longer than writing.
    """
    try:
        return _encode(record)
    except (TypeError, ValueError):
        return _encode(_plain(record))


def _plain(value: Any) -> Any:
    """Convert a value to JSON types; NaN and infinity become ``None``, other types become text."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)


def read(path: Path, damage: json_lines.Damage | None = None) -> Iterator[Record]:
    """Yield the records of one journal, in the order in which they were written.

    Damaged lines are skipped, such as a last line that was cut off by a crash.

    Args:
        path: path of the journal.
        damage: counts the damaged lines.

    Raises:
        JournalError: if the file cannot be read, or unless the first undamaged line is the header
            of a journal, with values of the right types and a version of at most ``VERSION``.
    """
    damage = json_lines.Damage() if damage is None else damage
    try:
        if not path.is_file() and path.exists():
            raise JournalError(f"{path} is not a regular file; remove it from the run folder")
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from _records(path, json_lines.parsed(json_lines.lines(file), damage), damage)
    except OSError as error:
        raise JournalError(f"{path} cannot be read: {error.strerror or error}") from error


def _records(path: Path, records: Iterator[Record], damage: json_lines.Damage) -> Iterator[Record]:
    first = next(records, None)
    if first is None or first.get("format") != FORMAT:
        raise JournalError(
            f"{path} is not a journal of energy_callbacks: its first line is not a header; give "
            "a run folder, a *.jsonl file of its folder attempts/, an energy_report.json, or a "
            "log of a program that docs/old-logs.md lists"
        )
    json_lines.check_version(first, VERSION, "journal", path)
    headers.check(first, path, damage.line)
    yield first
    yield from records


def header(path: Path) -> Record:
    """Return the header of a journal: its first record.

    Raises:
        JournalError: see ``read``.
    """
    return next(read(path))


def find(folder: Path) -> list[Path]:
    """Return all journals in a run folder, sorted by attempt, host and rank."""
    return sorted(folder.glob("attempts/*/*.jsonl"), key=_place)


def newest_run_id(folder: Path) -> str | None:
    """Return the run id in the newest journal; ``None`` if this journal is missing or damaged."""
    journals = find(folder)
    try:
        return header(journals[-1]).get("run_id") if journals else None
    except JournalError:
        return None


def _place(path: Path) -> tuple[int, str, int, str]:
    host, _, rank = path.stem.rpartition("-")
    return _number(path.parent.name), host, _number(rank), path.name


def has_ended(path: Path) -> bool:
    """Return whether a journal is complete: its last line is ``totals``."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().splitlines()
    return bool(lines) and b'"type":"totals"' in lines[-1]


def has_lost_its_writer(path: Path) -> bool:
    """Return whether the process that wrote a journal is known to have ended; see ``is_gone``."""
    try:
        return is_gone(header(path))
    except JournalError:
        return False


def is_gone(header: Record) -> bool:
    """Return whether the process of a journal ran on this host and has ended or is a zombie."""
    import psutil

    pid = header.get("pid")
    if header.get("host") != socket.gethostname() or not isinstance(pid, int):
        return False
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def path_for(folder: Path, attempt: int, host: str, rank: int) -> Path:
    """Return the path of a process's journal; unsafe characters of the host name become ``_``."""
    safe_host = re.sub(r"[^A-Za-z0-9._-]", "_", host) or "host"
    return folder / "attempts" / str(attempt) / f"{safe_host}-{rank}.jsonl"


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 0


def check_writable(folder: Path, origin: str = ARGUMENT) -> None:
    """Check that a run folder can be written, and create it.

    Args:
        folder: the run folder.
        origin: where the folder comes from, as in ``EnergyConfig.origins``; for the message.

    Raises:
        PermissionError: if the folder cannot be written, or if its path is a file.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    problem = f"{str(existing)!r} is not a writable folder"
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        try:
            atomic_files.make_folder(folder / "attempts")
        except OSError as error:  # some file systems refuse only when a folder is created
            problem = str(error)
        else:
            return
    is_argument = origin in (ARGUMENT, DEFAULT)
    raise PermissionError(
        f"cannot write the energy report to {str(folder)!r}: {problem}; give a writable "
        f"folder: {'report_dir=, on the command line --out' if is_argument else origin}"
    )


def energy_as_json(energy: Energy) -> Record:
    """Convert an ``Energy`` to its record in a journal, without ``edge_j`` if it is 0."""
    record = {name: getattr(energy, name) for name in _ENERGY}
    return record | ({"edge_j": energy.edge_j} if energy.edge_j else {})


def energies_as_json(energies: Mapping[str, Energy]) -> Record:
    """Convert energies by device to their record in a journal."""
    return {key: energy_as_json(energy) for key, energy in energies.items()}


def energy_from_json(record: Mapping[str, Any]) -> Energy:
    """Convert a record in a journal to an ``Energy``.

    Journals of earlier versions have no ``edge_j``: there, ``stderr_j`` includes it.
    """
    return Energy(**{name: record[name] for name in _ENERGY}, edge_j=record.get("edge_j", 0.0))


def row_as_json(row: Mapping[str, float | None]) -> list[float | None]:
    """Return the rounded values of a row in the order of ``COLUMNS``, without nulls at the end."""
    values = [_rounded(row.get(name), decimals) for name, decimals in COLUMNS.items()]
    while values and values[-1] is None:
        values.pop()
    return values


def _rounded(value: float | None, decimals: int) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return round(value, decimals or None)


def totals(t_s: float, status: str, error: str | None, energy: Record, **values: Any) -> Record:
    """Return the ``totals`` line, the last one of a journal: the attempt's energy by device.

    Secrets in the text of the error are replaced, such as the address of a server.
    """
    error = error and redaction.text(error)
    line = {"type": "totals", "t_s": t_s, "status": status, "error": error, "energy": energy}
    return line | values


def device_record(
    device: Device, channels: Iterable[Channel], used_since_s: float | None = None
) -> Record:
    """Return the ``device`` line of a journal: a device and the sensors of its channels.

    Args:
        device: the device.
        channels: its channels.
        used_since_s: time from which the run uses the device, if that is not the start; in seconds
            since the start.
    """
    used = {} if used_since_s is None else {"used_since_s": used_since_s}
    return {
        "type": "device",
        "device": asdict(device)
        | {"notes": list(device.notes), "instances": list(device.instances)},
        "sensors": {c.quantity: asdict(c.sensor) for c in channels if c.sensor is not None},
    } | used

"""The journal: append-only JSON lines, the data model of every run.

A journal is written by one process of one attempt of a run and read by ``report.build``.
Each line is one record with a ``type``; times ``t_s`` are seconds since the start of the attempt,
``unix_s`` in the header maps them to wall time. The format is described in
``docs/reference/journal.md``; ``VERSION`` grows when a reader must change.
"""

import json
import logging
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, TextIO

from energy_callbacks.core import atomic_files, json_lines
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Channel, Device, Energy

FORMAT = "energy_callbacks.journal"
VERSION = 2
Record = json_lines.Record

# What a device's row of ``series`` holds, in this order (the header's ``columns``), and the
# decimals that are kept: finer than any sensor resolves, and short enough for a day's file.
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
}

_ENERGY: Final = tuple(one.name for one in fields(Energy))
_MARKER: Final = "run_id"
# A second at most: the marker follows its folder at once, unless its writer was killed between.
_MARKER_LOOKS, _MARKER_PAUSE_S = 50, 0.02
# Totals of a hundred devices fit.
_TAIL_BYTES: Final = 65536

_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
logger = logging.getLogger("energy_callbacks")


class JournalWriter:
    """Appends records to one file; ``flush`` hands them to the operating system.

    What has been flushed survives ``kill -9`` of this process. A full disk loses lines, is
    counted in ``failures`` and never raises; writing continues when there is space again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failures = 0
        self.last_error: OSError | None = None
        self._is_torn = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO | None = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record; NaN and infinity become ``null``, what JSON cannot hold its text."""
        if self._file is None:
            return
        # A line that was cut off must not take the next one with it.
        start, self._is_torn = "\n" if self._is_torn else "", False
        try:
            self._file.write(start + _as_json(record) + "\n")
        except OSError as error:
            self._note(error)

    def flush(self) -> None:
        """Hand everything written so far to the operating system."""
        if self._file is None:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._note(error)

    def close(self) -> None:
        """Flush and close; safe to call twice."""
        self.flush()
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                self._note(error)

    def _note(self, error: OSError) -> None:
        if not self.failures:
            logger.warning("the energy journal %s cannot be written: %s", self.path, error)
        self.failures += 1
        self.last_error = error
        self._is_torn = True


def _as_json(record: Mapping[str, Any]) -> str:
    """Most records are plain already, and to look through each takes longer than to write it."""
    try:
        return _encode(record)
    except (TypeError, ValueError):
        return _encode(_plain(record))


def _plain(value: Any) -> Any:
    """``value`` as JSON can hold it: any library's numbers, NaN and infinity as ``None``."""
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


def read(path: Path) -> Iterator[Record]:
    """Records of one journal, in the order they were written.

    A last line that was cut off by a crash is left out; a damaged line elsewhere too.

    Raises:
        JournalError: if the file does not begin with a header of a version up to ``VERSION``.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        records = json_lines.parsed(lines)
        header = next(records, None)
        _check_header(header, path)
        assert header is not None
        yield header
        yield from records


def header(path: Path) -> Record:
    """The first line of a journal.

    Raises:
        JournalError: see ``read``.
    """
    return next(read(path))


def _check_header(header: Record | None, path: Path) -> None:
    if header is None or header.get("format") != FORMAT:
        raise JournalError(
            f"{path} is not a journal of energy_callbacks: its first line is no header; "
            "give a run folder, a *.jsonl of its attempts/, an energy_report.json, or a log of "
            "another program that docs/old-logs.md names"
        )
    json_lines.check_version(header, VERSION, "journal", path)


def find(folder: Path) -> list[Path]:
    """All journals below a run folder, oldest attempt first, then by host and rank."""
    return sorted(folder.glob("attempts/*/*.jsonl"), key=_place)


def newest_run_id(folder: Path) -> str | None:
    """The run whose journal was begun last below a folder; ``None`` if not known."""
    journals = find(folder)
    try:
        return str(header(journals[-1])["run_id"]) if journals else None
    except JournalError:
        return None


def _place(path: Path) -> tuple[int, str, int, str]:
    host, _, rank = path.stem.rpartition("-")
    return _number(path.parent.name), host, _number(rank), path.name


def claim_attempt(
    folder: Path, host: str, rank: int, run_id: str | None, launch: str | None = None
) -> tuple[int, str]:
    """The attempt that this process belongs to, and its run.

    Ranks of one launch find the same attempt without talking: the newest, if its marker names
    their launch and they have no journal in it yet. Any other process begins a new one; making
    its folder is what makes it the first.

    Args:
        folder: run folder.
        host: this machine's name.
        rank: of this process among all.
        run_id: known from a checkpoint; ``None`` for a new run.
        launch: what the processes of one start share; ``None`` for a process that is alone.

    Returns:
        The attempt's number, from 1, and the run's id.
    """
    attempts = folder / "attempts"
    attempts.mkdir(parents=True, exist_ok=True)
    while True:
        newest = max((_number(path.name) for path in attempts.iterdir()), default=0)
        if launch is not None and not path_for(folder, newest, host, rank).exists():
            joined = _run_of(attempts / str(newest) / _MARKER, launch)
            if joined is not None:
                return newest, joined
        try:
            (attempts / str(newest + 1)).mkdir()
        except FileExistsError:
            continue  # another process was faster: look again
        run_id = run_id or os.urandom(6).hex()
        marker = attempts / str(newest + 1) / _MARKER
        atomic_files.write(marker, f"{run_id}\n{launch or ''}\n")
        return newest + 1, run_id


def _run_of(marker: Path, launch: str) -> str | None:
    """The run in a marker of this launch; its writer has made the folder a moment before."""
    for _ in range(_MARKER_LOOKS):
        if marker.exists():
            run_id, its_launch = marker.read_text(encoding="utf-8").split("\n")[:2]
            return run_id if its_launch == launch else None
        if not marker.parent.exists():
            return None
        time.sleep(_MARKER_PAUSE_S)
    return None


def has_ended(path: Path) -> bool:
    """Whether a journal has its last line, ``totals``."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().splitlines()
    return bool(lines) and b'"type":"totals"' in lines[-1]


def has_lost_its_writer(path: Path) -> bool:
    """Whether a journal will not grow any more: its process is gone, as far as this host knows."""
    try:
        return is_gone(next(read(path)))
    except JournalError:
        return False


def is_gone(header: Record) -> bool:
    """Whether the process of a journal ran on this host and is there no more, or is a zombie."""
    import psutil

    pid = header.get("pid")
    if header.get("host") != os.uname().nodename or not isinstance(pid, int):
        return False
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def path_for(folder: Path, attempt: int, host: str, rank: int) -> Path:
    """Where the journal of one process belongs; unsafe characters of the host become ``_``."""
    safe_host = re.sub(r"[^A-Za-z0-9._-]", "_", host) or "host"
    return folder / "attempts" / str(attempt) / f"{safe_host}-{rank}.jsonl"


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 0


def check_writable(folder: Path) -> None:
    """Raise before the first step if a run folder cannot be written.

    Raises:
        PermissionError: with the folder and what to do (also if a file stands in its place).
    """
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    problem = f"{str(existing)!r} is not a writable folder"
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        try:
            (folder / "attempts").mkdir(parents=True, exist_ok=True)
        except OSError as error:  # read-only and special file systems fail only here
            problem = str(error)
        else:
            return
    raise PermissionError(
        f"cannot write the energy report to {str(folder)!r}: {problem}; "
        "pass report_dir= with a folder that you may write"
    )


def energy_as_json(energy: Energy) -> Record:
    """An ``Energy`` as it stands in a journal."""
    return {name: getattr(energy, name) for name in _ENERGY}


def energy_from_json(record: Mapping[str, Any]) -> Energy:
    """The ``Energy`` that a journal holds."""
    return Energy(**{name: record[name] for name in _ENERGY})


def row_as_json(row: Mapping[str, float | None]) -> list[float | None]:
    """The values of ``COLUMNS``, without the nulls at the end."""
    values = [
        _rounded(row[name], decimals) if name in row else None for name, decimals in COLUMNS.items()
    ]
    while values and values[-1] is None:
        values.pop()
    return values


def _rounded(value: float | None, decimals: int) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return round(value, decimals) if decimals else round(value)


def device_record(device: Device, channels: Iterable[Channel]) -> Record:
    """The ``device`` line: a device and the sensors behind its channels."""
    return {
        "type": "device",
        "device": asdict(device)
        | {"notes": list(device.notes), "instances": list(device.instances)},
        "sensors": {
            channel.quantity: asdict(channel.sensor)
            for channel in channels
            if channel.sensor is not None
        },
    }

"""Builds the journal lines of an imported log."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from energy_callbacks.accounting.journal import journal, redaction
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.records import Channel, Device, Energy, Quantity, Sensor
from energy_callbacks.importers.files import Damage
from energy_callbacks.importers.protocol import Log
from energy_callbacks.version import __version__

RECORDED: Final = "recorded"
"""Name of the phase of a log without phases."""
UNSEEN: Final = "not recorded"
"""Name of the phase between two windows of a log."""
UNKNOWN_HOST: Final = "unknown"
"""Name of the host if the log does not state it."""
_MOST_TAGS: Final = 20


def header(
    log: Log,
    program: str,
    unix_s: float | None = None,
    *,
    name: str | None = None,
    version: str | None = None,
    host: str | None = None,
    command: str | None = None,
    tags: Mapping[str, str] | None = None,
    place: Mapping[str, Any] | None = None,
    pue: float = 1.0,
) -> Record:
    """Return the first line of a journal, the header, without secrets.

    Args:
        log: the log file.
        program: name of the program that wrote the log.
        unix_s: wall time at which the run began, in Unix seconds; ``None`` if the caller sets it
            later.
        name: name of the run; ``None`` uses the name of the log file without its suffix.
        version: version of the program; ``None`` if unknown.
        host: name of the host that was measured; ``None`` uses ``UNKNOWN_HOST``.
        command: command line of the training; ``None`` if unknown.
        tags: settings of the training, as names to values; the first 20 are kept.
        place: location, in the format of the field ``config.place`` of a journal's header; ``None``
            if unknown.
        pue: power usage effectiveness of the building.
    """
    line: Record = {
        "type": "header",
        "format": journal.FORMAT,
        "version": journal.VERSION,
        "columns": list(journal.COLUMNS),
        "run_id": log.run_id,
        "attempt": 1,
        "host": host or UNKNOWN_HOST,
        "rank": 0,
        "world_size": 1,
        "unix_s": unix_s,
        "run_name": name or log.path.stem,
        "tags": dict(list((tags or {}).items())[:_MOST_TAGS]),
        "framework": f"log of {program}",
        "framework_version": version,
        "config": {"place": dict(place or {}), "pue": pue},
        "imported": {"program": program, "file": log.path.name, "choice": log.choice},
        "environment": {
            "tool_version": __version__,
            "command": command,
            "imported_from": log.path.name,
        },
    }
    redacted: Record = redaction.record(line)
    return redacted


def device_line(device: Device, sensors: Mapping[Quantity, Sensor]) -> Record:
    """Return the line of a device; ``sensors`` has the sensor of each measured quantity."""
    return journal.device_record(
        device,
        [
            Channel(device=device, quantity=quantity, kind="gauge", sensor=sensor)
            for quantity, sensor in sensors.items()
        ],
    )


def span(phase: str, start_s: float, end_s: float, energy: Mapping[str, Energy]) -> Record:
    """Return the line of a phase; ``energy`` is the energy of each device by device key."""
    return {"kind": "span", "phase": phase, **_timed(start_s, end_s, energy)}


def window(name: str, start_s: float, end_s: float, energy: Mapping[str, Energy]) -> Record:
    """Return the line of a window inside a phase; ``energy`` as in ``span``."""
    return {"kind": "window", "name": name, **_timed(start_s, end_s, energy)}


def _timed(start_s: float, end_s: float, energy: Mapping[str, Energy]) -> Record:
    return {
        "type": "event",
        "start_s": start_s,
        "end_s": end_s,
        "energy": journal.energies_as_json(energy),
    }


def totals(end_s: float, energy: Mapping[str, Energy]) -> Record:
    """Return the last line of a journal; ``energy`` is the total of each device by device key."""
    as_json = journal.energies_as_json(energy)
    return journal.totals(end_s, "finished", None, as_json, sampler_cpu_s=None, missed_readings={})


def warning(code: str, message: str, fix: str = "") -> Record:
    """Return the line of a warning for the report."""
    return {"type": "warning", "t_s": 0.0, "code": code, "message": message, "fix": fix}


def remark(program: str, message: str) -> Record:
    """Return the line of a note for the report; ``message`` must not end with a full stop."""
    return {"type": "remark", "t_s": 0.0, "source": program, "message": message}


def damage_warnings(log: Log, damage: Damage) -> Iterator[Record]:
    """Yield warnings about the parts of the file that could not be read."""
    if damage.is_cut_off:
        message = f"{log.path.name} is cut off; the report contains the part before that."
        yield warning("log_cut_off", message)
    if damage.places:
        records = "damaged record of {} is" if damage.places == 1 else "damaged records of {} are"
        message = f"{damage.places} {records.format(log.path.name)} not included."
        yield warning("damaged_lines", message)

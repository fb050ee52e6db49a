"""Journal lines for an imported log; what the log does not contain is ``None``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.core.records import Energy
from energy_callbacks.importers.files import Damage
from energy_callbacks.importers.protocol import Log
from energy_callbacks.version import __version__

RECORDED: Final = "recorded"
"""The phase of a log without phases."""
UNSEEN: Final = "not recorded"
"""The phase of the time between two windows of a log."""
_MOST_TAGS: Final = 20


UNKNOWN_HOST: Final = "unknown"
"""Of a log that does not say where it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Facts of a log about its run as a whole.

    Attributes:
        program: that wrote it.
        name: of the run.
        unix_s: wall time at which it began.
        place: as a header's ``config`` has it.
    """

    program: str
    name: str
    unix_s: float
    version: str | None = None
    host: str | None = None
    command: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    place: Mapping[str, Any] = field(default_factory=dict)
    pue: float = 1.0


def header(log: Log, about: About) -> Record:
    """The first line."""
    return {
        "type": "header",
        "format": journal.FORMAT,
        "version": journal.VERSION,
        "columns": list(journal.COLUMNS),
        "run_id": log.run_id,
        "attempt": 1,
        "host": about.host or UNKNOWN_HOST,
        "rank": 0,
        "world_size": 1,
        "unix_s": about.unix_s,
        "run_name": about.name,
        "tags": dict(list(about.tags.items())[:_MOST_TAGS]),
        "framework": f"log of {about.program}",
        "framework_version": about.version,
        "config": {"place": dict(about.place), "pue": about.pue},
        "imported": {"program": about.program, "file": log.path.name, "choice": log.choice},
        "environment": {
            "tool_version": __version__,
            "command": about.command,
            "imported_from": log.path.name,
        },
    }


def span(phase: str, start_s: float, end_s: float, energy: Mapping[str, Energy]) -> Record:
    """A phase."""
    return {"kind": "span", "phase": phase, **_timed(start_s, end_s, energy)}


def window(name: str, start_s: float, end_s: float, energy: Mapping[str, Energy]) -> Record:
    """A window inside the phases."""
    return {"kind": "window", "name": name, **_timed(start_s, end_s, energy)}


def _timed(start_s: float, end_s: float, energy: Mapping[str, Energy]) -> Record:
    return {"type": "event", "start_s": start_s, "end_s": end_s, "energy": _as_json(energy)}


def _as_json(energy: Mapping[str, Energy]) -> Record:
    return {key: journal.energy_as_json(one) for key, one in energy.items()}


def totals(end_s: float, energy: Mapping[str, Energy]) -> Record:
    """The last line."""
    return {
        "type": "totals",
        "t_s": end_s,
        "status": "finished",
        "error": None,
        "energy": _as_json(energy),
        "sampler_cpu_s": None,
        "missed_readings": {},
    }


def warning(code: str, message: str, fix: str = "") -> Record:
    """A warning for the report."""
    return {"type": "warning", "t_s": 0.0, "code": code, "message": message, "fix": fix}


def remark(program: str, message: str) -> Record:
    """A note of the report, without a full stop."""
    return {"type": "remark", "t_s": 0.0, "source": program, "message": message}


def of_damage(log: Log, damage: Damage) -> Iterator[Record]:
    """A warning about what could not be read of the file."""
    if damage.is_cut_off:
        message = f"{log.path.name} ends in the middle; what came before it is here."
        yield warning("log_cut_off", message)
    if damage.places:
        places = "record is" if damage.places == 1 else "records are"
        yield warning(
            "damaged_lines", f"{damage.places} damaged {places} left out of {log.path.name}."
        )

"""Loads a report from a run folder, a journal, a saved report or a log."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from energy_callbacks import importers
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.build import build
from energy_callbacks.report.model import schema
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import html

# The largest that are written have some ten megabytes.
_MOST_BYTES: Final = 2**28


def load(path: str | Path) -> EnergyReport:
    """The report in a JSON or HTML file, or of a run folder, a journal or another program's log.

    Args:
        path: of it; ``FILE#RUN`` is one run of a log that holds several.

    Raises:
        JournalError: if there is none, or one of a newer version, or a log of several runs
            without ``#RUN``.
        MissingExtraError: for a packed log whose unpacker is not installed.
    """
    place = Path(path)
    if place.suffix.lower() in (".html", ".htm"):
        return _read(place, html.from_html)
    if place.suffix.lower() == ".json" and not importers.is_log(place):
        return _read(place, schema.from_json)
    return build(place)


def _read(path: Path, parse: Callable[[str], EnergyReport]) -> EnergyReport:
    if not path.is_file():
        raise JournalError(f"{path} does not exist; give a run folder or a report of one")
    if path.stat().st_size > _MOST_BYTES:
        raise JournalError(
            f"{path} is no report: it is larger than {_MOST_BYTES // 2**20} MiB; "
            "give a run folder, or a log as docs/old-logs.md names them"
        )
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"))
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from error

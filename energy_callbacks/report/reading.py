"""Reports read back, from whatever is left of a run."""

from collections.abc import Callable
from pathlib import Path

from energy_callbacks.errors import JournalError
from energy_callbacks.report import html, schema
from energy_callbacks.report.build import build
from energy_callbacks.report.schema import EnergyReport


def load(path: str | Path) -> EnergyReport:
    """The report in a JSON or HTML file, or of a run folder or journal.

    Raises:
        JournalError: where there is none, or one of a newer version.
    """
    place = Path(path)
    if place.suffix.lower() in (".html", ".htm"):
        return _read(place, html.from_html)
    if place.suffix.lower() == ".json":
        return _read(place, schema.from_json)
    return build(place)


def _read(path: Path, parse: Callable[[str], EnergyReport]) -> EnergyReport:
    if not path.is_file():
        raise JournalError(f"{path} does not exist; give a run folder or a report of one")
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"))
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from error

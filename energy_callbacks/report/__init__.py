"""What one reads afterwards: journals in, one report out, saved as HTML, JSON and text.

::

    report = build(run_folder)               # a pure function of the journals in it
    save(report, run_folder)                 # energy_report.html, .json, .txt
    save(report, run_folder, ["png"])        # energy_report_power.png, _phases.png, ...
    report = load("energy_report.html")      # any of them gives the same report back
    view(report, country="FRA")              # the same run's emissions at another place
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from energy_callbacks.errors import JournalError
from energy_callbacks.report import charts, html, importers, interactive, schema, text
from energy_callbacks.report.build import build
from energy_callbacks.report.schema import EnergyReport
from energy_callbacks.report.views import view

__all__ = ["FORMATS", "EnergyReport", "Format", "build", "load", "save", "view"]

Format = Literal["html", "json", "txt", "png", "interactive"]
FORMATS: tuple[Format, ...] = ("html", "json", "txt")
"""What is written where nobody says otherwise."""
MOST_BYTES = 2**28
"""Of a report that is read; the largest that are written have some ten megabytes."""


def save(
    report: EnergyReport, folder_or_stem: str | Path, formats: Sequence[Format] = FORMATS
) -> list[Path]:
    """Write a report; each file appears whole or not at all.

    Args:
        report: what to write.
        folder_or_stem: an existing folder, in which the files are called ``energy_report.*``; or
            the path of the files without their endings.
        formats: which files; ``"png"`` is a picture for each chart, ``energy_report_power.png``;
            ``"interactive"`` is ``energy_report_interactive.html``, about 5 MB, drawn by Plotly.

    Returns:
        The paths, in the order of ``formats``.

    Raises:
        MissingExtraError: for ``"interactive"`` where Plotly is not installed.
    """
    place = Path(folder_or_stem)
    stem = place / "energy_report" if place.is_dir() else place
    paths = []
    for name in formats:
        for ending, content in _RENDERERS[name](report):
            path = stem.with_name(stem.name + ending)
            _write(path, content)
            paths.append(path)
    return paths


def _pictures(report: EnergyReport) -> Iterator[tuple[str, bytes]]:
    return ((f"_{name}.png", png) for name, png in charts.pictures(report))


# The files of a format: what their names end with, and what is in them.
_RENDERERS: Mapping[Format, Callable[[EnergyReport], Iterable[tuple[str, str | bytes]]]] = {
    "html": lambda report: [(".html", html.render(report))],
    "json": lambda report: [(".json", schema.to_json(report))],
    "txt": lambda report: [(".txt", text.render(report))],
    "png": _pictures,
    "interactive": lambda report: [("_interactive.html", interactive.render(report))],
}


def _write(path: Path, content: str | bytes) -> None:
    """Write beside the place and rename, so that no reader sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load(path: str | Path) -> EnergyReport:
    """The report in a JSON or HTML file, or of a run folder, a journal or another program's log.

    Args:
        path: of it; ``FILE#RUN`` is one run of a log that holds several.

    Raises:
        JournalError: where there is none, or one of a newer version, or a log of several runs
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
    if path.stat().st_size > MOST_BYTES:
        raise JournalError(
            f"{path} is no report: it is larger than {MOST_BYTES // 2**20} MiB; "
            "give a run folder, or a log as docs/old-logs.md names them"
        )
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"))
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from error

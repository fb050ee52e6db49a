"""Reports: built from journals, saved as HTML, JSON and text.

::

    report = build(run_folder)               # computed from the journals in the folder
    save(report, run_folder)                 # energy_report.html, .json, .txt
    save(report, run_folder, ["png"])        # energy_report_power.png, _phases.png, ...
    save(report, run_folder, ["csv"])        # energy_report_series.csv: power over time, ...
    report = load("energy_report.html")      # the HTML and JSON files contain the report
    view(report, country="FRA")              # emissions of the same run at another location
    print(latex([report, other]))            # table and methods of a paper, for repeated runs
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from energy_callbacks import importers
from energy_callbacks.accounting import open_attempts
from energy_callbacks.core.atomic_files import write
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.analysis.embodied import Embodied
from energy_callbacks.report.analysis.footprint import view
from energy_callbacks.report.build import build
from energy_callbacks.report.charts import catalogue
from energy_callbacks.report.charts.drawing import VectorFormat
from energy_callbacks.report.model import schema, time_series
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import html, interactive, text
from energy_callbacks.report.render.annex_xi import annex_xi
from energy_callbacks.report.render.model_card import model_card
from energy_callbacks.report.render.paper.document import bibtex, latex

__all__ = [
    "FORMATS",
    "Embodied",
    "EnergyReport",
    "Format",
    "annex_xi",
    "bibtex",
    "build",
    "latex",
    "load",
    "model_card",
    "save",
    "view",
]

Format = Literal["html", "json", "txt", "png", "svg", "pdf", "interactive", "csv", "parquet"]
FORMATS: tuple[Format, ...] = ("html", "json", "txt")
"""Formats that are written by default."""

# Maximum size of a report file in bytes; larger files are not read. The largest known reports have
# about 10 MB.
_MOST_BYTES: Final = 2**28


def save(
    report: EnergyReport, folder_or_stem: str | Path, formats: Sequence[Format] = FORMATS
) -> list[Path]:
    """Write a report to files; each file is written atomically.

    Args:
        report: the report.
        folder_or_stem: an existing folder, in which the files are named ``energy_report.*``; or
            the path of the files without their endings.
        formats: formats to write. ``"png"`` writes one picture per chart, such as
            ``energy_report_power.png``; ``"svg"`` and ``"pdf"`` write vector graphics for papers.
            ``"interactive"`` writes
            ``energy_report_interactive.html`` with charts by Plotly, about 5 MB. ``"csv"`` and
            ``"parquet"`` write ``energy_report_series.*``, the power, memory and other values of
            each device over time: see ``EnergyReport.to_dataframe``.

    Returns:
        The paths, in the order of ``formats``.

    Raises:
        MissingExtraError: for ``"interactive"`` if Plotly is not installed; for ``"parquet"`` if
            pandas or PyArrow is not installed; for ``"png"`` if matplotlib is not. Without it,
            the HTML page has no charts and says so.
        ValueError: for an unknown format.
    """
    if unknown := [name for name in formats if name not in _RENDERERS]:
        raise ValueError(
            f"unknown format {unknown[0]!r}; formats must be a list of {', '.join(_RENDERERS)}"
        )
    place = Path(folder_or_stem)
    stem = place / "energy_report" if place.is_dir() else place
    paths = []
    for name in formats:
        for ending, content in _RENDERERS[name](report):
            path = stem.with_name(stem.name + ending)
            write(path, content)
            paths.append(path)
    return paths


def _vectors(report: EnergyReport, kind: VectorFormat) -> Iterator[tuple[str, bytes]]:
    return ((f"_{name}", data) for name, data in catalogue.vector_graphics(report, kind))


# For each format, a function that returns pairs of the file name's ending and the file's content.
_RENDERERS: Mapping[Format, Callable[[EnergyReport], Iterable[tuple[str, str | bytes]]]] = {
    "html": lambda report: [(".html", html.render(report))],
    "json": lambda report: [(".json", schema.to_json(report))],
    "txt": lambda report: [(".txt", text.render(report))],
    "png": lambda report: ((f"_{name}.png", png) for name, png in catalogue.pictures(report)),
    "svg": lambda report: _vectors(report, "svg"),
    "pdf": lambda report: _vectors(report, "pdf"),
    "interactive": lambda report: [("_interactive.html", interactive.render(report))],
    "csv": lambda report: [("_series.csv", time_series.as_csv(report.series))],
    "parquet": lambda report: [("_series.parquet", time_series.as_parquet(report.series))],
}


def load(path: str | Path) -> EnergyReport:
    """Load a saved report, or build it from a run folder, a journal or another program's log.

    If this process is still making the report of a training that has ended, this waits for it.

    Args:
        path: path of a JSON or HTML report, a run folder, a journal or a log. ``FILE#RUN`` selects
            one run of a log with several runs.

    Raises:
        JournalError: if there is no report, if its format is of a newer version, or if a log has
            several runs and ``#RUN`` is missing.
        MissingExtraError: if a log is compressed and the package that reads it is not installed.
    """
    place = Path(path)
    if place.suffix.lower() in (".html", ".htm"):
        return _read(place, html.from_html)
    if place.suffix.lower() == ".json" and not importers.is_log(place):
        return _read(place, schema.from_json)
    return build(place)


def _read(path: Path, parse: Callable[[str], EnergyReport]) -> EnergyReport:
    open_attempts.wait_for_reports(path)
    if not path.is_file():
        raise JournalError(f"{path} does not exist; give a run folder or a saved report")
    if path.stat().st_size > _MOST_BYTES:
        raise JournalError(
            f"{path} is not a report: it is larger than {_MOST_BYTES // 2**20} MiB; give a "
            "run folder, or a log of a program that docs/old-logs.md lists"
        )
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"))
    except JournalError as error:
        raise JournalError(f"{path}: {error}") from error

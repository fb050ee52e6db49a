"""Reports: built from journals, saved as HTML, JSON and text.

::

    report = build(run_folder)               # a pure function of the journals in it
    save(report, run_folder)                 # energy_report.html, .json, .txt
    save(report, run_folder, ["png"])        # energy_report_power.png, _phases.png, ...
    report = load("energy_report.html")      # any of them gives the same report back
    view(report, country="FRA")              # the same run's emissions at another place
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from energy_callbacks.core.atomic_files import write
from energy_callbacks.report.analysis.views import view
from energy_callbacks.report.build import build
from energy_callbacks.report.charts import catalogue
from energy_callbacks.report.model import schema
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.reading import load
from energy_callbacks.report.render import html, interactive, text

__all__ = [
    "FORMATS",
    "EnergyReport",
    "Format",
    "build",
    "load",
    "save",
    "view",
]

Format = Literal["html", "json", "txt", "png", "interactive"]
FORMATS: tuple[Format, ...] = ("html", "json", "txt")
"""What is written by default."""


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
        MissingExtraError: for ``"interactive"`` if Plotly is not installed.
    """
    place = Path(folder_or_stem)
    stem = place / "energy_report" if place.is_dir() else place
    paths = []
    for name in formats:
        for ending, content in _RENDERERS[name](report):
            path = stem.with_name(stem.name + ending)
            write(path, content)
            paths.append(path)
    return paths


def _pictures(report: EnergyReport) -> Iterator[tuple[str, bytes]]:
    return ((f"_{name}.png", png) for name, png in catalogue.pictures(report))


# The files of a format: what their names end with, and what is in them.
_RENDERERS: Mapping[Format, Callable[[EnergyReport], Iterable[tuple[str, str | bytes]]]] = {
    "html": lambda report: [(".html", html.render(report))],
    "json": lambda report: [(".json", schema.to_json(report))],
    "txt": lambda report: [(".txt", text.render(report))],
    "png": _pictures,
    "interactive": lambda report: [("_interactive.html", interactive.render(report))],
}

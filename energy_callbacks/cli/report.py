"""``energy-callbacks report``: renders a report again, from the files of a run or from a log."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from energy_callbacks import importers
from energy_callbacks.cli.common import options, papers, run_folders
from energy_callbacks.core import atomic_files
from energy_callbacks.report import (
    FORMATS,
    EnergyReport,
    Format,
    annex_xi,
    bibtex,
    latex,
    load,
    model_card,
    save,
    view,
)
from energy_callbacks.report.charts.catalogue import vector_graphics
from energy_callbacks.report.model import schema, time_series
from energy_callbacks.report.model.curves import Series
from energy_callbacks.report.render import emissions_csv
from energy_callbacks.report.render.terminal import print_report

# Formats that are written only if requested, and the option that requests each of them.
_EXTRA: Mapping[Format, str] = {"png": "graphs", "interactive": "interactive"}
# Options that request files.
_FILES = ("out", *_EXTRA.values(), "figures", "emissions_csv", "time_series")
_VIEW = ("country", "region", "pue", "price_per_kwh", "currency")
# Functions that return the time series in the format of each ending of ``--time-series``.
_SERIES: Mapping[str, Callable[[Sequence[Series]], str | bytes]] = {
    ".csv": time_series.as_csv,
    ".parquet": time_series.as_parquet,
}
HELP = "show the report of a run, by default the newest, and write its files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "path",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="PATH",
        help="run folder; folder with runs below it, of which the newest is shown (default: the "
        "current folder); journal (*.jsonl); energy_report.json; energy_report.html; or a log of "
        "gputop, nvidia-smi, CodeCarbon, Zeus or all-smi (FILE#RUN if it contains several runs)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the files, which is created if needed (default: the run folder, or the "
        "folder of PATH); for a log, files are written only with --out, and DIR becomes a run "
        "folder",
    )
    formats = (*FORMATS, "all")
    add("--format", choices=formats, default="all", help="which files to write (default: all)")
    add(
        "--graphs",
        action="store_true",
        help="also write each chart as a PNG file, such as energy_report_power.png",
    )
    add(
        "--interactive",
        action="store_true",
        help="also write energy_report_interactive.html, a page whose charts can be zoomed (about "
        "5 MB; needs Plotly, which the extra 'interactive' installs)",
    )
    add(
        "--emissions-csv",
        type=Path,
        metavar="FILE",
        help="also write a CSV file with one row in the format of CodeCarbon's emissions.csv",
    )
    add(
        "--time-series",
        type=_series_file,
        metavar="FILE",
        help="also write power, memory and other values of each device over time to a .csv or "
        ".parquet file (Parquet needs the extra 'dataframe')",
    )
    elsewhere = parser.add_argument_group(
        "another location or price",
        "Compute emissions and cost of the same energy again. The report is printed; files are "
        "written only with --out.",
    )
    options.add_location(elsewhere)
    elsewhere.add_argument("--pue", type=float, help=options.PUE_HELP)
    options.add_price(elsewhere)
    _add_documents(parser)


def _add_documents(parser: argparse.ArgumentParser) -> None:
    """Declare the options of documents for papers and disclosures."""
    papers.add_figures(parser)
    papers.add_embodied(parser)
    add = parser.add_argument
    add(
        "--repeats",
        action="store_true",
        help="with --latex or --bibtex: all runs below PATH are repeats of one training, whose "
        "means and 95 %% intervals are printed",
    )
    add(
        "--flops",
        type=float,
        metavar="N",
        help="with --annex-xi: number of floating point operations of the training",
    )
    printed = options.add_json(
        parser,
        latex=papers.LATEX,
        bibtex=papers.BIBTEX,
        model_card="print the beginning of a model card: co2_eq_emissions as YAML, and a table",
    )
    printed.add_argument(
        "--annex-xi",
        choices=("markdown", "json"),
        help="print what Annex XI of the EU AI Act, section 1, point 2 (d) and (e), asks about the "
        "computation and energy of a training",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the report, write the files, and print the report and paths, or another document.

    Without a path, the report is that of the newest run below the current folder.
    """
    if arguments.repeats:
        return _print_repeats(arguments)
    path, out = run_folders.newest_at(arguments.path), arguments.out
    is_log = importers.is_log(path)
    if is_log and out is not None:
        importers.keep(path, out)
        path = out
    report, changes = load(path), _changes(arguments)
    if changes:
        report = view(report, **changes)
    document = _document([report], arguments)
    is_printed = document is not None
    formats = _formats(arguments, is_own=not changes and not is_log, is_printed=is_printed)
    paths = _save(report, out or _folder_of(path), formats, arguments)
    if document is not None:
        sys.stdout.write(document)
        return 0
    print_report(report)
    for written in paths:
        print(written)
    return 0


def _changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given options of another location or price."""
    given = {name: getattr(arguments, name) for name in _VIEW}
    return {name: value for name, value in given.items() if value is not None}


def _print_repeats(arguments: argparse.Namespace) -> int:
    """Print the document about all runs below the path.

    Raises:
        ValueError: if the document is not one that has means of several runs, or if an option
            requests files.
    """
    if not (arguments.latex or arguments.bibtex):
        raise ValueError("--repeats needs --latex or --bibtex, because a report has only one run")
    if files := [name for name in _FILES if getattr(arguments, name)]:
        option = f"--{files[0].replace('_', '-')}"
        raise ValueError(f"{option}: --repeats writes no files; leave {option} out")
    reports = [load(path) for path in run_folders.runs_at(arguments.path)]
    if changes := _changes(arguments):
        reports = [view(report, **changes) for report in reports]
    sys.stdout.write(_document(reports, arguments) or "")
    return 0


def _document(reports: Sequence[EnergyReport], arguments: argparse.Namespace) -> str | None:
    """Return what is printed instead of the report; ``None`` if the report is printed.

    Raises:
        ValueError: if a number is given that the document would not contain.
    """
    (first, *_), embodied = reports, papers.embodied(arguments)
    if arguments.flops is not None and not arguments.annex_xi:
        raise ValueError("--flops needs --annex-xi; no other output contains operations")
    if arguments.latex:
        return latex(reports, embodied=embodied)
    if arguments.bibtex:
        return bibtex(reports, embodied=embodied)
    if arguments.model_card:
        return model_card(first)
    if arguments.annex_xi:
        return annex_xi(first, arguments.annex_xi, flops=arguments.flops, embodied=embodied)
    return schema.to_json(first) if arguments.json else None


def _save(
    report: EnergyReport, folder: Path, formats: Sequence[Format], arguments: argparse.Namespace
) -> list[Path]:
    """Write all files that are requested, and return their paths.

    Args:
        report: the report.
        folder: folder for ``formats``, which is created if needed.
        formats: formats to write.
        arguments: arguments of the command, which name further files.
    """
    paths: list[Path] = []
    if formats:
        atomic_files.make_folder(folder)
        paths += save(report, folder, formats)
    if arguments.figures is not None:
        charts = vector_graphics(report, arguments.figure_format)
        paths += papers.save_figures(arguments.figures, charts)
    if arguments.emissions_csv is not None:
        emissions_csv.write(report, arguments.emissions_csv)
        paths.append(arguments.emissions_csv)
    if (series := arguments.time_series) is not None:
        atomic_files.write(series, _SERIES[series.suffix](report.series))
        paths.append(series)
    return paths


def _series_file(word: str) -> Path:
    if Path(word).suffix not in _SERIES:
        raise argparse.ArgumentTypeError(f"must end with {' or '.join(_SERIES)}, got {word!r}")
    return Path(word)


def _formats(arguments: argparse.Namespace, *, is_own: bool, is_printed: bool) -> list[Format]:
    """Return the formats to write.

    Args:
        arguments: arguments of the command.
        is_own: whether the report is neither changed by options such as ``--country`` nor made
            from a log.
        is_printed: whether a document is printed instead of the report.

    Raises:
        ValueError: if files of a changed report or of a log could replace the files of a run.
    """
    extra: list[Format] = [name for name, option in _EXTRA.items() if getattr(arguments, option)]
    if arguments.out is None and not is_own and extra:
        raise ValueError(
            f"--{_EXTRA[extra[0]]} needs --out DIR for a log, or for another location or price, "
            "because it could replace the files of a run"
        )
    if arguments.out is None and (is_printed or not is_own):
        return extra
    return [*(name for name in FORMATS if arguments.format in (name, "all")), *extra]


def _folder_of(path: Path) -> Path:
    """Return the default folder for the files: the run folder, or the folder of a saved report.

    A journal is in ``<run folder>/attempts/<n>/``.
    """
    if path.is_dir():
        return path
    resolved = path.resolve()
    is_journal = resolved.suffix == ".jsonl" and resolved.parents[1].name == "attempts"
    return resolved.parents[2] if is_journal else path.parent

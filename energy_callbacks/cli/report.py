"""``energy-callbacks report``: renders a report again, from the files of a run or from a log."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from energy_callbacks import importers
from energy_callbacks.core import atomic_files
from energy_callbacks.report import FORMATS, Format, load, save, view
from energy_callbacks.report.model import schema
from energy_callbacks.report.render import emissions_csv
from energy_callbacks.report.render.terminal import print_report

# Formats that are written only if requested, and the option that requests each of them.
_EXTRA: Mapping[Format, str] = {"png": "graphs", "interactive": "interactive"}
_VIEW = ("country", "region", "pue", "price_per_kwh")
HELP = "render the report of a run again, from its folder, a journal, a saved report or an old log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "path",
        type=Path,
        metavar="PATH",
        help="run folder, journal (*.jsonl), energy_report.json, energy_report.html, or a log of "
        "gputop, nvidia-smi, CodeCarbon, Zeus or all-smi (FILE#RUN where it holds several runs)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the files (made if missing); default: the run folder, or that of PATH; "
        "of a log, files are written only with --out, which makes a run folder of it",
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
        help="also write energy_report_interactive.html, to zoom and to point at (about 5 MB; "
        "needs Plotly: pip install 'energy-callbacks[interactive]')",
    )
    add(
        "--emissions-csv",
        type=Path,
        metavar="FILE",
        help="also write one row as CodeCarbon's emissions.csv has it",
    )
    elsewhere = parser.add_argument_group(
        "the same energy elsewhere",
        "emissions and money worked out anew; prints, and writes files only where --out is given",
    )
    elsewhere.add_argument("--country", metavar="CODE", help="as country= would take it")
    elsewhere.add_argument("--region", help="state of the USA or province of Canada")
    elsewhere.add_argument("--pue", type=float, help="power usage effectiveness of the building")
    elsewhere.add_argument("--price-per-kwh", type=float, metavar="P", help="in any currency")
    add(
        "--json",
        action="store_true",
        help="print the report as JSON and write no file unless --out is given",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the report, write the files, and print the report and paths; ``--json`` prints JSON."""
    path, out = arguments.path, arguments.out
    is_log = importers.is_log(path)
    if is_log and out is not None:
        importers.keep(path, out)
        path = out
    report = load(path)
    changes = {name: getattr(arguments, name) for name in _VIEW}
    is_view = any(value is not None for value in changes.values())
    if is_view:
        report = view(report, **changes)
    paths: list[Path] = []
    if formats := _formats(arguments, is_own=not is_view and not is_log):
        folder = out or _folder_of(path)
        atomic_files.make_folder(folder)
        paths = save(report, folder, formats)
    if arguments.emissions_csv is not None:
        emissions_csv.write(report, arguments.emissions_csv)
        paths.append(arguments.emissions_csv)
    if arguments.json:
        sys.stdout.write(schema.to_json(report))
        return 0
    print_report(report)
    for written in paths:
        print(written)
    return 0


def _formats(arguments: argparse.Namespace, *, is_own: bool) -> list[Format]:
    """Return the formats to write.

    Args:
        arguments: arguments of the command.
        is_own: whether the report is neither changed by options such as ``--country`` nor made
            from a log.

    Raises:
        ValueError: if files of a changed report or of a log could replace the files of a run.
    """
    extra: list[Format] = [name for name, option in _EXTRA.items() if getattr(arguments, option)]
    if arguments.out is None and not is_own and extra:
        raise ValueError(
            f"--{_EXTRA[extra[0]]} of another place or price, or of a log, could replace that of a "
            "run; add --out DIR"
        )
    if arguments.out is None and (arguments.json or not is_own):
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

"""``energy-callbacks report``: render a report again, from whatever is left of a run."""

import argparse
import sys
from pathlib import Path

from energy_callbacks.report import FORMATS, Format, emissions_csv, load, save, schema, text

HELP = "render the report of a run again, from its folder, a journal, or a saved report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "path",
        type=Path,
        metavar="PATH",
        help="run folder, journal (*.jsonl), energy_report.json or energy_report.html",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder for the files (made if missing); default: the run folder, or that of PATH",
    )
    parser.add_argument(
        "--format",
        choices=(*FORMATS, "all"),
        default="all",
        help="which files to write (default: all)",
    )
    parser.add_argument(
        "--graphs",
        action="store_true",
        help="also write each chart as a PNG file, such as energy_report_power.png",
    )
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="also write energy_report_interactive.html, to zoom and to point at (about 5 MB; "
        "needs Plotly: pip install 'energy-callbacks[interactive]')",
    )
    parser.add_argument(
        "--emissions-csv",
        type=Path,
        metavar="FILE",
        help="also write one row as CodeCarbon's emissions.csv has it",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the report as JSON and write no file unless --out is given",
    )


def run(arguments: argparse.Namespace) -> int:
    """Read, write the files, print the report and where the files are."""
    report = load(arguments.path)
    formats: list[Format] = []
    if arguments.out is not None or not arguments.json:
        formats += _formats(arguments.format)
    if arguments.graphs:
        formats.append("png")
    if arguments.interactive:
        formats.append("interactive")
    folder = arguments.out or _folder_of(arguments.path)
    if formats:
        folder.mkdir(parents=True, exist_ok=True)
    paths = save(report, folder, formats)
    if arguments.emissions_csv is not None:
        emissions_csv.write(report, arguments.emissions_csv)
        paths.append(arguments.emissions_csv)
    if arguments.json:
        sys.stdout.write(schema.to_json(report))
        return 0
    text.print_report(report)
    for path in paths:
        print(path)
    return 0


def _formats(chosen: str) -> tuple[Format, ...]:
    return FORMATS if chosen == "all" else tuple(name for name in FORMATS if name == chosen)


def _folder_of(path: Path) -> Path:
    """The run folder of a path: a journal lies in ``<run folder>/attempts/<n>/``."""
    if path.is_dir():
        return path
    resolved = path.resolve()
    is_journal = resolved.suffix == ".jsonl" and resolved.parents[1].name == "attempts"
    return resolved.parents[2] if is_journal else path.parent

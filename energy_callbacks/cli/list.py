"""``energy-callbacks list``: lists the runs below a folder, newest first."""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.cli.common import options, run_folders
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.common.tables import print_table
from energy_callbacks.core import formatting
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.units import JOULES_PER_WATT_HOUR
from energy_callbacks.report import EnergyReport, load
from energy_callbacks.report.model import figure_format

HELP = "list the runs below a folder, newest first"

_COLUMNS: Final = ("started", "status", "time", "energy", "name", "folder")
_NUMBERS: Final = ("started", "time", "energy")
# Maximum length of a name in the table, in characters.
_LONGEST_NAME: Final = 24
# Keys of the JSON output: fields of ``Run``, and energies in Wh.
_OF_RUN: Final = ("run_id", "name", "started_unix_s", "duration_s", "host", "framework")
_OF_ENERGY: Final = ("gpu_wh", "host_wh", "total_wh", "total_error_wh")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder to search, with all folders below it (default: the current folder)",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=20,
        metavar="N",
        help="maximum number of runs to list (default: %(default)s)",
    )
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the newest runs below a folder as a table or as JSON; return 0."""
    if arguments.limit < 1:
        raise ValueError(f"--limit must be at least 1, got {arguments.limit}")
    if not arguments.folder.is_dir():
        raise ValueError(f"{arguments.folder} is not a folder; give a folder with runs")
    folders = run_folders.below(arguments.folder)
    listed = [_listed(folder) for folder in folders[: arguments.limit]]
    if arguments.json:
        options.print_json([one.as_json() for one in listed])
    elif listed:
        print_table(_COLUMNS, [one.cells() for one in listed], _NUMBERS)
    _note(arguments.folder, len(folders), listed)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """A run folder, and its report or why there is none.

    Attributes:
        folder: the run folder.
        report: report of the newest run in the folder; ``None`` if it cannot be read.
        problem: why the report cannot be read; ``None`` if it can.
    """

    folder: Path
    report: EnergyReport | None = None
    problem: str | None = None

    def cells(self) -> list[str]:
        """Return the text of each column of the table."""
        if (report := self.report) is None:
            return ["-", "unreadable", "-", "-", "-", str(self.folder)]
        return [
            time.strftime("%Y-%m-%d %H:%M", time.localtime(report.run.started_unix_s)),
            report.run.status,
            formatting.duration(report.run.duration_s),
            figure_format.figure(report.energy.total),
            formatting.clipped(report.run.name or "-", _LONGEST_NAME),
            str(self.folder),
        ]

    def as_json(self) -> dict[str, Any]:
        """Return JSON types; values that ``energy-callbacks query`` has too have the same names."""
        value: dict[str, Any] = {"folder": str(self.folder), "status": "unreadable"}
        value |= dict.fromkeys((*_OF_RUN, *_OF_ENERGY)) | {"problem": self.problem}
        if self.report is None:
            return value
        energy, run = self.report.energy, self.report.run
        energies_j = (energy.gpu.energy_j, energy.host.energy_j, energy.total.energy_j)
        all_j = dict(zip(_OF_ENERGY, (*energies_j, energy.total.error_j), strict=True))
        return (
            value
            | {"status": run.status}
            | {name: getattr(run, name) for name in _OF_RUN}
            | {k: None if v is None else v / JOULES_PER_WATT_HOUR for k, v in all_j.items()}
        )


def _listed(folder: Path) -> ListedRun:
    try:
        return ListedRun(folder=folder, report=_report(folder))
    except (JournalError, OSError) as error:
        return ListedRun(folder=folder, problem=str(error))


def _report(folder: Path) -> EnergyReport:
    """Load the saved report of a run folder, or build a report if a journal is newer.

    A report of a training that was still running is built again too, because the training may have
    been killed since.
    """
    saved = folder / run_folders.REPORTS[0]
    if saved.is_file():
        saved_s = saved.stat().st_mtime
        if all(path.stat().st_mtime <= saved_s for path in journal.find(folder)):
            report = load(saved)
            if report.run.status != "running":
                return report
    return load(run_folders.to_load(folder) or folder)


def _note(folder: Path, count: int, listed: list[ListedRun]) -> None:
    """Print what the table does not show."""
    if not listed:
        logger.info("no runs below %s", folder)
    for one in listed:
        if one.problem is not None:
            logger.info("unreadable: %s", formatting.one_line(one.problem))
    if count > len(listed):
        logger.info(
            "%d older runs are not listed; --limit %d lists all", count - len(listed), count
        )

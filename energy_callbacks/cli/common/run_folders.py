"""Finds run folders below a folder."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.core.errors import JournalError

REPORTS: Final = ("energy_report.json", "energy_report.html")
_ATTEMPTS: Final = "attempts"
# Large folders in which trainings write nothing. Hidden folders are not searched either.
_SKIPPED: Final = frozenset(("__pycache__", "node_modules", "site-packages"))
DEFAULT_NAME: Final = "energy"
"""Name of the run folder that the callbacks create in the folder of the training's logs."""


def runs_at(path: Path) -> list[Path]:
    """Return the paths of the runs that ``report.load`` can read at a path, newest first.

    For a run folder, or a folder with the run folder ``energy``, this is that run; for any other
    folder, all runs below it. A path that is no folder is returned unchanged.

    Raises:
        JournalError: if a folder contains no run.
    """
    if not path.is_dir():
        return [path]
    for folder in (path, path / DEFAULT_NAME):
        if (run := to_load(folder)) is not None:
            return [run]
    runs = [run for folder in below(path) if (run := to_load(folder)) is not None]
    if not runs:
        raise JournalError(f"there is no run in or below {path}; give a run folder or a report")
    return runs


def newest_at(path: Path) -> Path:
    """Return the path of the newest run at or below a path; a note says if there are others.

    Raises:
        JournalError: if a folder contains no run.
    """
    runs = runs_at(path)
    if len(runs) > 1:
        logger.info(
            "%d runs below %s; the newest, %s, is shown. energy-callbacks list %s lists all.",
            *(len(runs), path, runs[0], path),
        )
    return runs[0]


def below(folder: Path) -> list[Path]:
    """Return the run folders among a folder and all folders below it, newest first.

    Folders that cannot be listed are left out.
    """
    return sorted(_found(folder), key=lambda one: (_started_unix_s(one), one), reverse=True)


def to_load(folder: Path) -> Path | None:
    """Return what ``report.load`` reads for a run folder: the folder, or the report saved in it.

    The saved report is returned if the folder has no journals.

    Returns:
        ``None`` if the folder contains neither journals nor a report.
    """
    if journal.find(folder):
        return folder
    return next((path for name in REPORTS if (path := folder / name).is_file()), None)


def _found(folder: Path) -> Iterator[Path]:
    for place, inner, files in os.walk(folder):
        inner[:] = [name for name in inner if not (name.startswith(".") or name in _SKIPPED)]
        has_journals = _ATTEMPTS in inner and bool(journal.find(Path(place)))
        if has_journals:
            inner.remove(_ATTEMPTS)
        if has_journals or not set(REPORTS).isdisjoint(files):
            yield Path(place)


def _started_unix_s(folder: Path) -> float:
    """Return when the newest attempt in a run folder began.

    Without journals, this is the time at which the report was written. It is 0 if the report or the
    newest journal cannot be read, so that the run is the last of all.
    """
    journals = journal.find(folder)
    if not journals:
        found = [path for name in REPORTS if (path := folder / name).exists()]
        return max((path.stat().st_mtime for path in found), default=0.0)
    try:
        return float(journal.header(journals[-1])["unix_s"])
    except (JournalError, KeyError, TypeError):
        return 0.0

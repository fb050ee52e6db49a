"""Converts logs of other programs to journals; each file in ``formats/`` reads one format.

::

    report = load("stats-nvidia_desktop-20261121-001739.json")     # energy_callbacks.report.load
    report = load("emissions.csv#6f1c2a...")                       # one of several runs
    importers.keep("gpu.csv", "runs/old")                          # writes a run folder

A format is recognised by its content. To add a format, write a module with ``NAME``,
``recognises`` and ``records`` (see ``protocol.Importer``) and a test, and add the module to
``IMPORTERS``.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import JournalWriter, Record
from energy_callbacks.importers import files
from energy_callbacks.importers.formats import (
    all_smi,
    codecarbon,
    gputop,
    monitor_gpu,
    nvidia_smi,
    zeus_power,
    zeus_table,
    zeus_windows,
)
from energy_callbacks.importers.protocol import Importer, Log

# All formats, in the order in which they are tried.
IMPORTERS: Final[tuple[Importer, ...]] = (
    gputop, monitor_gpu, nvidia_smi, codecarbon, zeus_windows, zeus_table, all_smi, zeus_power,
)  # fmt: skip
# Journals and reports of this package name their format within the first 100 characters.
_OWN_FORMAT, _OWN_FORMAT_WITHIN = '"energy_callbacks.', 100


def located(path: Path) -> tuple[Path, str | None]:
    """Split ``FILE`` or ``FILE#RUN`` into the file and the chosen run."""
    if path.exists() or "#" not in path.name:
        return path, None
    name, _, choice = path.name.partition("#")
    return (path.with_name(name), choice) if name else (path, None)


def records(path: Path) -> Iterator[Record] | None:
    """Convert a log to the records of a journal; return ``None`` if its format is not known.

    Raises:
        JournalError: if the file cannot be used; may also be raised during the iteration.
        MissingExtraError: for a ``.zst`` file if ``zstandard`` is not installed.
    """
    place, choice = located(path)
    if not place.is_file():
        return None
    log = Log(path=place, choice=choice, head=files.head(place))
    if _OWN_FORMAT in log.head[:_OWN_FORMAT_WITHIN]:
        return None
    importer = next((one for one in IMPORTERS if one.recognises(log)), None)
    return importer.records(log) if importer else None


def is_log(path: Path) -> bool:
    """Return whether a file is a log of another program in a known format."""
    return records(path) is not None


def keep(path: str | Path, folder: str | Path) -> Path:
    """Convert a log to a journal and write it into a run folder.

    Args:
        path: the log.
        folder: a new folder, or a folder into which this log was written before.

    Returns:
        Path of the journal.

    Raises:
        ValueError: if the format is not known, or the folder contains another run.
        JournalError: if the log cannot be used.
        OSError: if the journal cannot be written.
    """
    lines = records(Path(path))
    if lines is None:
        programs = ", ".join(dict.fromkeys(one.NAME for one in IMPORTERS))
        raise ValueError(f"{path} is not a log in a known format; supported are logs of {programs}")
    header = next(lines)
    kept = journal.path_for(Path(folder), 1, header["host"], 0)
    others = [one for one in journal.find(Path(folder)) if one != kept]
    if others or (kept.exists() and journal.header(kept)["run_id"] != header["run_id"]):
        raise ValueError(f"{folder} already contains another run; give a new folder")
    draft = kept.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    writer = JournalWriter(draft)
    for line in chain((header,), lines):
        writer.write(line)
    writer.close()
    if writer.last_error is not None:
        draft.unlink(missing_ok=True)
        raise writer.last_error
    return draft.replace(kept)

"""Logs of other programs, read as journals: each file of this folder is one format.

::

    report = load("stats-nvidia_desktop-20261121-001739.json")     # of energy_callbacks.report
    report = load("emissions.csv#6f1c2a...")                       # one of several runs
    importers.keep("gpu.csv", "runs/old")                          # and keep it as a run folder

A format is recognised by its content. To add one: a module with ``NAME``, ``recognises`` and
``records`` (see ``protocol.Importer``), its name in ``IMPORTERS``, and a test.
"""

from collections.abc import Iterator
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

IMPORTERS: Final[tuple[Importer, ...]] = (
    gputop, monitor_gpu, nvidia_smi, codecarbon, zeus_windows, zeus_table, all_smi, zeus_power,
)  # fmt: skip
# Journals and reports name their format at once.
_OURS, _OURS_WITHIN = '"energy_callbacks.', 100


def located(path: Path) -> tuple[Path, str | None]:
    """A file and which of its runs is meant, of ``FILE`` or ``FILE#RUN``."""
    if path.exists() or "#" not in path.name:
        return path, None
    name, _, choice = path.name.partition("#")
    return (path.with_name(name), choice) if name else (path, None)


def records(path: Path) -> Iterator[Record] | None:
    """The journal of a log; ``None`` if the file is none that is known.

    Raises:
        JournalError: if it is, and cannot be used. Also while it is read.
        MissingExtraError: for a ``.zst`` file if ``zstandard`` is not installed.
    """
    place, choice = located(path)
    if not place.is_file():
        return None
    log = Log(path=place, choice=choice, head=files.head(place))
    if _OURS in log.head[:_OURS_WITHIN]:
        return None
    importer = next((one for one in IMPORTERS if one.recognises(log)), None)
    return importer.records(log) if importer else None


def is_log(path: Path) -> bool:
    """Whether a file is a log of another program that is known."""
    return records(path) is not None


def keep(path: str | Path, folder: str | Path) -> Path:
    """Write the journal of a log into a run folder, from which it is reported ever after.

    Args:
        path: of the log.
        folder: new, or one that holds this log already.

    Returns:
        The path of the journal.

    Raises:
        ValueError: if the file is no log that is known, or the folder holds another run.
        JournalError: see ``records``.
    """
    lines = records(Path(path))
    if lines is None:
        programs = ", ".join(dict.fromkeys(one.NAME for one in IMPORTERS))
        raise ValueError(f"{path} is no log that is known; those of {programs} are")
    header = next(lines)
    kept = journal.path_for(Path(folder), 1, header["host"], 0)
    others = [one for one in journal.find(Path(folder)) if one != kept]
    if others or (kept.exists() and journal.header(kept)["run_id"] != header["run_id"]):
        raise ValueError(f"{folder} holds another run already; give a new folder")
    draft = kept.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    writer = JournalWriter(draft)
    writer.write(header)
    for line in lines:
        writer.write(line)
    writer.close()
    if writer.last_error is not None:
        draft.unlink(missing_ok=True)
        raise writer.last_error
    return draft.replace(kept)

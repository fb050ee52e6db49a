"""Finds the run of ranks that Lightning started as child processes: ``ddp_spawn``, ``ddp_fork``.

The user's callback stays in the parent, where no hook is called and the logger does not know the
version of its children. Their journals are in the chosen folder or beside the logs, and contain
the id of this process.
"""

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.errors import JournalError
from energy_callbacks_lightning import loop
from energy_callbacks_lightning.bases import packages


def run_folder(callback: object, chosen: Path | None) -> Path | None:
    """Return the folder of the newest journal of a child process; ``None`` if there is none.

    Args:
        callback: identifies the trainer, and so its logs.
        chosen: the run folder, if the user has chosen one.
    """
    folders = [chosen] if chosen else [one for held in _trainers(callback) for one in _near(held)]
    found = [begun for folder in folders for begun in _begun(folder)]
    return max(found)[1] if found else None


def _trainers(callback: object) -> Iterator[Any]:
    """Yield the trainers that hold the callback: no hook has passed the trainer to it."""
    kinds = tuple(package.Trainer for package in packages)
    for one in gc.get_objects():
        if issubclass(type(one), kinds) and any(held is callback for held in one.callbacks):
            yield one


def _near(trainer: Any) -> Iterator[Path]:
    """Yield the run folder of the parent, and those of its logger's other versions."""
    folder = loop.run_folder(trainer)
    yield folder
    yield from folder.parent.parent.glob(f"*/{folder.name}")


def _begun(folder: Path) -> Iterator[tuple[float, Path]]:
    """Yield the start time of each journal of a child of this process, and its run folder."""
    for path in journal.find(folder):
        with contextlib.suppress(JournalError, OSError):
            header = next(journal.read(path))
            if header.get("ppid") == os.getpid():
                yield float(header["unix_s"]), folder

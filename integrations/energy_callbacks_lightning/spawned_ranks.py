"""Finds the run of ranks that Lightning started as children: ``ddp_spawn``, ``ddp_fork``.

The user's callback stays behind in the parent, where no hook is called and no logger knows which
version its children have taken. Their journals lie in the folder that was chosen, else beside the
logs, and name this process as the one that started them.
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
    """Where the newest journal of a child lies; ``None`` if there is none.

    Args:
        callback: of the trainer whose logs are looked at.
        chosen: the run folder, if the user has chosen one.
    """
    folders = [chosen] if chosen else [one for held in _trainers(callback) for one in _near(held)]
    found = [begun for folder in folders for begun in _begun(folder)]
    return max(found)[1] if found else None


def _trainers(callback: object) -> Iterator[Any]:
    """No hook has handed the trainer over: it is whichever holds the callback."""
    kinds = tuple(package.Trainer for package in packages)
    for one in gc.get_objects():
        if issubclass(type(one), kinds) and any(held is callback for held in one.callbacks):
            yield one


def _near(trainer: Any) -> Iterator[Path]:
    """The run folder as the parent knows it, and those of its logger's other versions."""
    folder = loop.run_folder(trainer)
    yield folder
    yield from folder.parent.parent.glob(f"*/{folder.name}")


def _begun(folder: Path) -> Iterator[tuple[float, Path]]:
    """When each journal of a child of this process was begun, and its run folder."""
    for path in journal.find(folder):
        with contextlib.suppress(JournalError, OSError):
            header = next(journal.read(path))
            if header.get("ppid") == os.getpid():
                yield float(header["unix_s"]), folder

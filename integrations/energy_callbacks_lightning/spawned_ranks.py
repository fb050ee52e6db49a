"""Finds the run folder if ranks were child processes (strategies ``ddp_spawn`` and ``ddp_fork``).

The user's callback stays in the parent process. No hook is called there, and the parent's logger
does not know which version (log folder) the children use. The children's journals are in the run
folder that the user has set, or next to the logs. Each journal contains the process id of the
parent.
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
    """Return the run folder with the newest journal of a child process; ``None`` if there is none.

    Args:
        callback: our callback. If ``chosen`` is ``None``, the log folders of the trainers that have
            this callback are searched.
        chosen: the run folder that the user has set; ``None`` if not set.
    """
    folders = [chosen] if chosen else [one for held in _trainers(callback) for one in _near(held)]
    found = [begun for folder in folders for begun in _begun(folder)]
    return max(found)[1] if found else None


def _trainers(callback: object) -> Iterator[Any]:
    """Yield the trainers that have the callback. The callback does not know its trainer itself."""
    kinds = tuple(package.Trainer for package in packages)
    for one in gc.get_objects():
        if issubclass(type(one), kinds) and any(held is callback for held in one.callbacks):
            yield one


def _near(trainer: Any) -> Iterator[Path]:
    """Yield the run folders of all log versions, beginning with the parent's version."""
    folder = loop.run_folder(trainer)
    yield folder
    yield from folder.parent.parent.glob(f"*/{folder.name}")


def _begun(folder: Path) -> Iterator[tuple[float, Path]]:
    """Yield start time (Unix, s) and run folder of each journal that a child process wrote."""
    for path in journal.find(folder):
        with contextlib.suppress(JournalError, OSError):
            header = next(journal.read(path))
            if header.get("ppid") == os.getpid():
                yield float(header["unix_s"]), folder

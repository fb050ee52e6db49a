"""Copies the files of an attempt from the memory of the operating system to the disk.

Written lines survive the end of this process, but not that of the machine; after ``fsync`` they
survive both. ``fsync`` takes milliseconds on a local disk and seconds on a busy one, and does not
return while a network file system does not answer. It therefore has a thread of its own.
"""

import os
import sys
from pathlib import Path
from typing import Final

from energy_callbacks.core.guard import logger
from energy_callbacks.sensing.clock import Clock, Periodic

# Time between the starts of two syncs, s: ten times the interval at which lines are written. If a
# sync takes at most 2 s, every line is on the disk 10 s after it was written.
_INTERVAL_S: Final = 8.0
# Number of folders above a file that are synced once: those of the attempt, of all attempts, of the
# run, and the one that contains the run's folder. ``fsync`` of a new file does not sync the entry
# of the file in its folder (man page fsync(2)). Windows does not open folders.
_FOLDERS: Final = 0 if sys.platform == "win32" else 4


def start(clock: Clock, *paths: Path) -> Periodic:
    """Sync files every 8 s, and once more when the returned job is asked to stop.

    Args:
        clock: runs the job on its own thread.
        paths: paths of the files. Each sync opens them, so their writer may close them any time.
    """
    folders = {folder for path in paths for folder in [*path.parents][:_FOLDERS]}
    has_failed = False

    def job() -> None:
        nonlocal has_failed
        for path in (*paths, *folders):
            try:
                _sync(path)
            except FileNotFoundError:  # the user has deleted the run
                continue
            except OSError as error:
                if not has_failed:
                    logger.warning("%s cannot be synced to its disk: %s", path, error)
                has_failed = True
        folders.clear()

    return clock.every(_INTERVAL_S, job, name="energy_callbacks disk")


def _sync(path: Path) -> None:
    # Windows syncs only files that are open for writing; Linux opens folders only for reading.
    file = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)

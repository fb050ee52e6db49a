"""Locks GPUs, so that only one job changes the settings of a GPU.

The lock belongs to an open file. The job's watchdog inherits the file, so that the lock is held
until both have ended, also if they are killed. Without a folder, the files are in ``/tmp``, where
jobs of other users find them.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from energy_callbacks.core import atomic_files
from energy_callbacks.core.errors import CardInUse, PowerCapError
from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE, StateFile

# Longest time to wait for a lock, s: the watchdog of a killed job restores its settings within 2 s.
_PATIENCE_S: Final = 3.0
_POLL_S: Final = 0.05


class GpuLocks:
    """The locks of several GPUs, held until they are closed.

    Args:
        uuids: UUIDs of the GPUs.
        folder: folder of the state files, in which the lock files are, too; ``None`` for the
            default.

    Attributes:
        descriptors: descriptors of the open lock files.

    Raises:
        CardInUse: if another job holds a lock; no lock is held then.
        PowerCapError: if a lock file cannot be opened.
    """

    def __init__(self, uuids: Sequence[str], folder: Path | None) -> None:
        self.descriptors: list[int] = []
        try:
            for uuid in sorted(uuids):  # the same order in all jobs
                self._lock(uuid, folder, time.monotonic() + _PATIENCE_S)
        except BaseException:
            self.close()
            raise

    def _lock(self, uuid: str, folder: Path | None, end_s: float) -> None:
        self.descriptors.append(_open(_path(uuid, folder)))
        while True:
            try:
                return atomic_files.lock(self.descriptors[-1])
            except BlockingIOError as error:
                if time.monotonic() >= end_s:
                    raise CardInUse(_in_use(uuid, folder)) from error
            time.sleep(_POLL_S)

    def close(self) -> None:
        """Close the files. In a forked child, this does not release the locks of the parent."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def _path(uuid: str, folder: Path | None) -> Path:
    state = StateFile(folder, uuid).path
    if folder is not None or os.environ.get(FOLDER_VARIABLE):
        return state.with_suffix(".lock")
    return Path(f"/tmp/energy_callbacks-{state.stem}.lock")  # noqa: S108 - see the module


def _open(path: Path) -> int:
    """Open a lock file; create it if it does not exist.

    A file of another user is only opened, because Linux refuses to open it with ``O_CREAT`` in
    ``/tmp`` (proc(5), ``protected_regular``). A lock needs no permission to write.
    """
    if sys.platform == "win32":
        raise PowerCapError("settings of GPUs cannot be changed on Windows; use Linux")
    # O_NONBLOCK: opening a FIFO that another user has put there must not wait.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        while True:
            try:
                return os.open(path, flags)
            except FileNotFoundError:
                pass
            try:
                created = os.open(path, flags | os.O_CREAT | os.O_EXCL)
            except FileExistsError:  # created by another job at this moment
                continue
            os.fchmod(created, 0o644)  # whatever the umask: other users may open it
            return created
    except OSError as error:
        raise PowerCapError(f"the lock file of the GPU cannot be opened: {error}") from error


def _in_use(uuid: str, folder: Path | None) -> str:
    try:
        card = StateFile(folder, uuid).read()
    except PowerCapError:
        card = None
    owner = f"process {card.pid}" if card is not None and card.is_running else "another job"
    return (
        f"{uuid}: {owner} is changing the settings of this GPU; nothing was changed here. "
        "Wait until it has ended"
    )

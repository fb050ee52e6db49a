"""Saves which settings of a GPU were changed, so that another process can restore them.

::

    /tmp/energy_callbacks-UID/        mode 0700; or the folder in ENERGY_CALLBACKS_STATE_DIR
        GPU-....json                  changed by a job, which restores it at its end
        GPU-....kept.json             changed by energy-callbacks powercap set, until restore

The folder is not in ``XDG_RUNTIME_DIR``: systemd removes that one when the user logs out, also if a
training continues under ``nohup``.
"""

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import atomic_files
from energy_callbacks.core.errors import PowerCapError
from energy_callbacks.powercap.settings import UNITS, Knob

FOLDER_VARIABLE: Final = "ENERGY_CALLBACKS_STATE_DIR"
"""Environment variable with the folder of the state files."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A knob whose value was changed.

    Attributes:
        knob: the knob.
        found: value before the first change; ``None`` if it was not known, as for clocks.
        ours: the value that this package wrote last. While it writes, also the new value, because
            the process may end before or after that, and the driver may refuse the change.
    """

    knob: Knob
    found: float | None
    ours: tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedCard:
    """The changed knobs of one GPU, and who changed them.

    Attributes:
        uuid: UUID of the GPU.
        actuator: module and class of the actuator, as ``module:class``.
        pid: id of the process that made the changes.
        started: ``process_start(pid)`` when the changes were made.
        boot_id: ``boot_id()`` when the changes were made.
        changes: the changed knobs.
    """

    uuid: str
    actuator: str
    pid: int
    started: str
    boot_id: str
    changes: tuple[Change, ...]

    @property
    def is_running(self) -> bool:
        """Whether the process that made the changes is running."""
        return bool(self.started) and process_start(self.pid) == self.started


def boot_id() -> str:
    """Return a text that differs after each start of the machine; ``""`` if it is not known."""
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    return ""


def process_start(pid: int) -> str:
    """Return when a process started, in clock ticks since the start of the machine.

    Returns:
        ``""`` if the process has ended, or if this is not known.
    """
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        state, *fields = status.rpartition(")")[2].split()  # proc(5): field 3 and the following
        return "" if state in "ZX" else fields[18]
    return ""


def default_folder() -> Path:
    """Return the folder of the state files."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else Path(f"/tmp/energy_callbacks-{_user_id()}")  # noqa: S108


def _user_id() -> int:
    """Return the id of the user; 0 on Windows, where all files belong to user 0."""
    return os.getuid() if hasattr(os, "getuid") else 0


class StateFile:
    """The file that describes the changes of one GPU.

    Args:
        folder: folder of the state files; ``None`` for the default.
        uuid: UUID of the GPU.
        kept: whether the changes stay after the end of the process that made them.
    """

    def __init__(self, folder: Path | None, uuid: str, *, kept: bool = False) -> None:
        name = re.sub(r"[^A-Za-z0-9-]", "_", uuid)
        self.kept = kept
        self.path: Final = (folder or default_folder()) / f"{name}{'.kept' * kept}.json"

    def read(self) -> ChangedCard | None:
        """Return the saved changes; ``None`` if there are none.

        Raises:
            PowerCapError: if the file cannot be read, or if another user can write to its folder.
        """
        try:
            _check_private(self.path.parent)
            return _card(json.loads(self.path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PowerCapError(
                f"{self.path} cannot be read ({error!r}), so the settings that it describes cannot "
                "be restored; check the GPU with nvidia-smi -q, then remove the file"
            ) from error

    def write(self, card: ChangedCard) -> None:
        """Save changes; readers never see a partly written file.

        Raises:
            PowerCapError: if another user can write to the folder.
            OSError: if the file cannot be written.
        """
        with suppress(FileExistsError):
            atomic_files.make_folder(self.path.parent.parent)
            self.path.parent.mkdir(0o700)
        _check_private(self.path.parent)
        atomic_files.write(self.path, json.dumps(asdict(card), indent=1) + "\n")

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self.path.unlink(missing_ok=True)


def all_files(folder: Path | None = None) -> Iterator[StateFile]:
    """Yield all state files in a folder: for each GPU that of jobs before that of ``set``."""
    names = {path.name for path in (folder or default_folder()).glob("*.json")}
    for name in sorted(names, key=lambda name: (name.split(".")[0], ".kept" in name)):
        uuid, *others = name.split(".")
        yield StateFile(folder, uuid, kept="kept" in others)


def _check_private(folder: Path) -> None:
    """Raise ``PowerCapError`` if another user may use a folder: its files name code to import."""
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if found.st_uid != _user_id() or not is_private:
        raise PowerCapError(
            f"{folder} must be a folder that only you can use, because settings of GPUs are "
            f"restored from its files; run chmod 700 on it, or name another one in "
            f"{FOLDER_VARIABLE}"
        )


def _card(content: dict[str, Any]) -> ChangedCard:
    changes = tuple(Change(**one | {"ours": tuple(one["ours"])}) for one in content.pop("changes"))
    if unknown := {change.knob for change in changes}.difference(UNITS):
        raise ValueError(f"unknown knob {unknown.pop()!r}")
    return ChangedCard(**content, changes=changes)

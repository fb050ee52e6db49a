"""Changes settings of GPUs and restores the values found; all writes of the package are here."""

import os
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Self

from energy_callbacks.core import forks
from energy_callbacks.core.errors import ConsentError, ForeignChange, PowerCapError
from energy_callbacks.core.guard import logger
from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.safety.gpu_lock import GpuLocks
from energy_callbacks.powercap.safety.heal import Restored, foreign, is_ours, name_of, restore_card
from energy_callbacks.powercap.safety.state_file import (
    Change,
    ChangedCard,
    StateFile,
    boot_id,
    process_start,
)
from energy_callbacks.powercap.safety.watchdog import Watchdog
from energy_callbacks.powercap.settings import Knob, Setting


class ChangedCards(AbstractContextManager["ChangedCards"]):
    """GPUs whose settings are changed, and have the values found again at the end of the context.

    The GPUs are locked from the start of the context, so that no other job changes them. If an
    earlier job has left one of them changed, it is restored then. After that, three layers restore
    what is changed:

    1. the end of the context, also by an exception;
    2. the watchdog, if this process ends without it, also by ``kill -9``;
    3. the state file, if the watchdog was killed as well: the next job on the GPU, or the command
       ``energy-callbacks powercap restore``.

    A forked child, such as a worker of a data loader, has no part in this: its copy does nothing.

    Args:
        actuator: reads and writes the settings. The watchdog creates an object of the same class
            without arguments.
        uuids: UUIDs of the GPUs.
        allow_changes: the consent of the user.
        folder: folder of the state files; ``None`` for the default.
        keep: whether the settings stay after the context and after this process. There is no
            watchdog then, and only ``energy-callbacks powercap restore`` restores them.

    Raises:
        ConsentError: without consent; nothing is written.
    """

    def __init__(
        self,
        actuator: Actuator,
        uuids: Sequence[str],
        *,
        allow_changes: bool,
        folder: Path | None = None,
        keep: bool = False,
    ) -> None:
        if not allow_changes:
            raise ConsentError(
                "settings of GPUs are changed only with consent: allow_changes=True, or --yes on "
                "the command line; nothing was written"
            )
        self._actuator: Final = actuator
        self._files: Final = {uuid: StateFile(folder, uuid, kept=keep) for uuid in uuids}
        self._folder: Final = folder
        self._keep: Final = keep
        self._mutex: Final = threading.RLock()
        self._generation: Final = forks.generation
        self._locks: GpuLocks | None = None
        self._watchdog: Watchdog | None = None
        _all.add(self)

    def __enter__(self) -> Self:
        """Lock the GPUs, and restore what an earlier job has left changed.

        Raises:
            CardInUse: if another job has locked a GPU; nothing is written.
            PowerCapError: if a state file cannot be read.
        """
        with self._mutex:
            self._open()
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the values found, except with ``keep``."""
        if self._keep:
            self.close()
        else:
            self.restore()

    def set(self, setting: Setting) -> None:
        """Write a setting to all GPUs.

        Raises:
            ValueError: if a GPU does not accept the value; nothing is written.
            ForeignChange: if the present value of a GPU is not the one that was written last;
                nothing is written.
            CardInUse: see ``__enter__``.
            ActuatorError: if the driver refuses the change or does not answer. Then, some of the
                GPUs may have the new setting.
            PowerCapError: in a forked child, or if the state file cannot be used.
            OSError: if the state file cannot be written; nothing is written.
        """
        if self._is_copy:
            raise PowerCapError("a forked child must not change settings of its parent's GPUs")
        with self._mutex:
            self._open()
            before = {uuid: self._checked(uuid, setting) for uuid in self._files}
            if setting.knob == "duty":  # nothing on the GPU is changed
                for uuid in self._files:
                    self._actuator.write(uuid, setting)
                return
            self._watch()
            for uuid, values in before.items():
                self._save(uuid, setting.knob, *values, setting.value)
            for uuid in self._files:
                self._actuator.write(uuid, setting)
                written = self._actuator.read(uuid, setting.knob)  # the driver may have rounded it
                self._save(uuid, setting.knob, setting.value if written is None else written)

    def restore(self) -> Sequence[Restored]:
        """Restore the values found, and release the GPUs.

        A setting that another program has changed is left as it is, with a warning. If the driver
        does not answer, the state file stays, and a warning is logged.

        Returns:
            One record per GPU and changed setting.
        """
        if self._is_copy:
            return ()
        with self._mutex:
            try:
                return [one for file in self._files.values() for one in self._restored(file)]
            finally:
                self.close()

    def close(self) -> None:
        """Release the GPUs without restoring them; the watchdog restores them, if there is one."""
        if self._is_copy:
            return
        with self._mutex:
            watchdog, self._watchdog = self._watchdog, None
            locks, self._locks = self._locks, None
            if watchdog is not None:
                watchdog.close()
            if locks is not None:
                locks.close()

    @property
    def _is_copy(self) -> bool:
        return self._generation != forks.generation

    def _open(self) -> None:
        if self._locks is not None:
            return
        self._locks = GpuLocks(list(self._files), self._folder)
        try:
            for uuid in self._files:
                self._heal(uuid)
        except BaseException:
            self.close()
            raise

    def _heal(self, uuid: str) -> None:
        """Restore what a job that has ended has left changed."""
        for one in restore_card(StateFile(self._folder, uuid)):
            logger.warning("an earlier job left the GPU changed: %s", one.message)
        file = self._files[uuid]
        card = file.read()
        if card is not None and card.boot_id != boot_id():
            file.remove()

    def _restored(self, file: StateFile) -> Sequence[Restored]:
        try:
            done = restore_card(file, self._actuator)
        except (PowerCapError, OSError) as error:
            logger.warning("%s", error)
            return ()
        for one in done:
            if one.is_problem:
                logger.warning("%s", one.message)
        return done

    def _checked(self, uuid: str, setting: Setting) -> tuple[float | None, ...]:
        """Check that a setting can be written to a GPU, and return which values it may have now.

        Before the first change, this is the present value: ``None`` for clocks, which cannot be
        read. Later it is what was written: several values if the driver has refused a change.
        """
        if setting.value is not None:
            self._actuator.range(uuid, setting.knob).check(setting.value)
        present = self._actuator.read(uuid, setting.knob)
        change = _change(self._files[uuid].read(), setting.knob)
        if change is None:
            return (present,)
        if not is_ours(self._actuator, uuid, change):
            what = foreign(uuid, setting.knob, present, change)
            raise ForeignChange(f"{what}; {setting} was not written")
        return change.ours

    def _watch(self) -> None:
        """Start the watchdog, or start it again if it was killed."""
        if self._keep or (self._watchdog is not None and self._watchdog.is_running):
            return
        assert self._locks is not None
        if self._watchdog is not None:
            self._watchdog.close()
        folder = next(iter(self._files.values())).path.parent
        locks = self._locks.descriptors
        self._watchdog = Watchdog(name_of(self._actuator), list(self._files), folder, locks)

    def _save(self, uuid: str, knob: Knob, *ours: float | None) -> None:
        """Save which values are those of this object; the first of all is the value found."""
        file = self._files[uuid]
        card = file.read()
        change = _change(card, knob)
        new = Change(knob=knob, found=ours[0] if change is None else change.found, ours=ours)
        others = () if card is None else (c for c in card.changes if c.knob != knob)
        file.write(
            ChangedCard(
                uuid=uuid,
                actuator=name_of(self._actuator),
                pid=os.getpid(),
                started=process_start(os.getpid()),
                boot_id=boot_id(),
                changes=(*others, new),
            )
        )

    def _close_in_child(self) -> None:
        """Close the copies of a forked child, so that the lock and the pipe end with the parent."""
        if self._watchdog is not None:
            self._watchdog.close_pipe()
        if self._locks is not None:
            self._locks.close()


def _change(card: ChangedCard | None, knob: Knob) -> Change | None:
    changes = () if card is None else card.changes
    return next((change for change in changes if change.knob == knob), None)


_all: Final[weakref.WeakSet[ChangedCards]] = weakref.WeakSet()


def _close_in_child() -> None:
    for one in list(_all):
        one._close_in_child()  # noqa: SLF001


forks.call_in_children(_close_in_child)

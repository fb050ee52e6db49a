"""Callbacks that save checkpoints: their time, and our state beside a checkpoint.

Keras has no hook for a checkpoint. A callback of ours before each one that saves and
one behind it see how long it takes. What ``BackupAndRestore`` keeps is read and written by it
alone, so our state is a file of its own in its folder, and goes when the folder goes.
"""

import json
import logging
from pathlib import Path
from typing import Any, Final

import keras

from energy_callbacks.core import atomic_files
from energy_callbacks.meter import EnergyMeter

logger = logging.getLogger("energy_callbacks")

_SAVERS: Final = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)
_FILE: Final = "energy_callbacks.json"
# What takes less has saved nothing: ``save_best_only``, or another ``save_freq``.
_SHORTEST_S: Final = 1e-3


class _SavePatch(keras.callbacks.Callback):
    """Listens where a callback that saves begins, or where it has ended."""

    def __init__(self, meter: EnergyMeter, before: "_SavePatch | None") -> None:
        super().__init__()
        self._meter = meter
        self._before = before
        self.heard_s = 0.0

    def _listen(self) -> None:
        self.heard_s = self._meter.now_s()
        if self._before is not None and self.heard_s - self._before.heard_s > _SHORTEST_S:
            self._meter.window("checkpoint", self._before.heard_s, self.heard_s)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._listen()


class _BatchSavePatch(_SavePatch):
    """For those that save in the middle of an epoch: they wait for each batch themselves."""

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._listen()


def ears(sibling: Any, meter: EnergyMeter) -> tuple[keras.callbacks.Callback, ...]:
    """The callbacks to place before and after one that saves; none for others."""
    if not isinstance(sibling, _SAVERS):
        return ()
    kind = _SavePatch if sibling.save_freq == "epoch" else _BatchSavePatch
    before = kind(meter, None)
    return before, kind(meter, before)


def kept(siblings: list[Any]) -> dict[str, Any]:
    """Our state beside the backup that ``fit`` has gone on from; empty if there is none."""
    path = _path(siblings)
    if path is None or not path.with_name("training_metadata.json").exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(siblings: list[Any], state: dict[str, Any]) -> None:
    """Write our state beside the backup, whole or not at all."""
    path = _path(siblings)
    if path is None:
        return
    try:
        atomic_files.write(path, json.dumps(state))
    except OSError as error:  # a full disk: the backup itself will hardly fare better
        logger.warning("the energy so far cannot be kept beside the backup: %s", error)


def _path(siblings: list[Any]) -> Path | None:
    """Our file in the folder of ``BackupAndRestore``, unless that lies in a bucket."""
    for one in siblings:
        if isinstance(one, keras.callbacks.BackupAndRestore) and "://" not in str(one.backup_dir):
            return Path(one.backup_dir) / _FILE
    return None

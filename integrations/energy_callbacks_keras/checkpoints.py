"""Measures callbacks that save checkpoints, and stores the meter's state with a backup.

Keras calls no hook when a checkpoint is saved. Therefore, one callback (a timer) is placed directly
before each ``ModelCheckpoint`` and ``BackupAndRestore``, and another one directly after it. The two
timers measure how long the hooks of the callback between them take.

Other callbacks cannot add data to the backup that ``BackupAndRestore`` writes. Therefore, the
meter's state is a separate file in the folder of the backup, and is deleted with that folder.
"""

import json
from pathlib import Path
from typing import Any, Final

import keras

from energy_callbacks.core import atomic_files
from energy_callbacks.core.guard import logger
from energy_callbacks.meter import EnergyMeter

_SAVERS: Final = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)
_FILE: Final = "energy_callbacks.json"
# Calls of ``_SAVERS`` that take at most this time are not counted as checkpoints: they have saved
# nothing, because of ``save_best_only`` or ``save_freq``.
_SHORTEST_S: Final = 1e-3


def save_timers(other: Any, meter: EnergyMeter) -> tuple[keras.callbacks.Callback, ...]:
    """Return the timers to place before and after ``other``.

    The result is empty if ``other`` is not a ``ModelCheckpoint`` or ``BackupAndRestore``.
    """
    if not isinstance(other, _SAVERS):
        return ()
    begun_s = 0.0
    # Measuring the start on the GPU takes too long for every batch.
    begins = meter.now_s if saves_within_epochs(other) else meter._begin_window

    def begin(*_: Any, **__: Any) -> None:  # Keras passes ``logs`` by name after batches
        nonlocal begun_s
        begun_s = begins()

    def end(*_: Any, **__: Any) -> None:
        if (now_s := meter.now_s()) - begun_s > _SHORTEST_S:
            meter.window("checkpoint", begun_s, now_s)

    # A hook that is called at the end of every batch takes time. The timers have it only if
    # ``other`` may save within an epoch.
    hooks = ["on_epoch_end"] + ["on_train_batch_end"] * saves_within_epochs(other)
    timers = (dict.fromkeys(hooks, act) for act in (begin, end))
    return tuple(keras.callbacks.LambdaCallback(**timer) for timer in timers)


def saves_within_epochs(other: Any) -> bool:
    """Return whether ``other`` may save a checkpoint after a batch, and not only after epochs."""
    return isinstance(other, _SAVERS) and other.save_freq != "epoch"


def kept(others: list[Any]) -> dict[str, Any]:
    """Return the meter's state from the backup that ``fit`` resumes; empty if there is none."""
    path = _path(others)
    if path is None or not path.with_name("training_metadata.json").exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def keep(others: list[Any], state: dict[str, Any]) -> None:
    """Write the meter's state into the folder of the backup, atomically."""
    path = _path(others)
    if path is None:
        return
    try:
        atomic_files.write(path, json.dumps(state))
    except OSError as error:  # such as a full disk, which also affects the backup itself
        logger.warning("the energy so far cannot be saved with the backup: %s", error)


def _path(others: list[Any]) -> Path | None:
    """Return the path of the state file; ``None`` if there is no backup, or it is in the cloud."""
    for one in others:
        if isinstance(one, keras.callbacks.BackupAndRestore) and "://" not in str(one.backup_dir):
            return Path(one.backup_dir) / _FILE
    return None

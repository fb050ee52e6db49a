"""A search for a batch size in TensorBoard.

The run has the curve, each figure as a scalar whose step is the batch size, and the picture. Each
size that ran is a run below it (``batch_size_32``) and a session of the page "HParams", where they
are compared as a table and in parallel coordinates.
"""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from energy_callbacks.outputs import hparams, summaries
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.tuning.search.trial import Trial

_PICTURE: Final = "tuning/curve"
_BYTES_PER_GB: Final = 1e9


def write_tensorboard(log_dir: Path, trials: Sequence[Trial], png: bytes) -> None:
    """Write all that ran.

    Args:
        log_dir: a run directory of its own.
        trials: the newest of a size stands.
        png: the picture.
    """
    newest = {trial.size: trial for trial in trials if trial.status == "ok"}
    with closing(TensorBoardOutput(log_dir)) as curve:
        for size, trial in sorted(newest.items()):
            curve.write(_scalars(trial), size, time.time())
            _write_session(log_dir / f"batch_size_{size}", trial)
        curve.add(summaries.image(_PICTURE, png), 0)


def _write_session(folder: Path, trial: Trial) -> None:
    values: dict[str, hparams.Value] = {
        "batch_size": trial.size,
        "accumulation": trial.accumulation,
    }
    scalars = _scalars(trial)
    now_s = time.time()
    with closing(TensorBoardOutput(folder)) as run:
        run.add(hparams.experiment(values, scalars, now_s), 0)
        run.add(hparams.session_start(values, now_s), 0)
        run.write(scalars, 0, now_s)
        run.add(hparams.session_end(now_s, is_success=True), 0)


def _scalars(trial: Trial) -> dict[str, float]:
    known = {
        "tuning/samples_per_s": trial.samples_per_s,
        "tuning/power_w": trial.power_w,
        "tuning/j_per_sample": trial.j_per_sample,
        "tuning/peak_memory_gb": trial.peak_bytes and trial.peak_bytes / _BYTES_PER_GB,
    }
    return {tag: value for tag, value in known.items() if value is not None}

"""Finds or creates the attempt of a process in a run folder."""

import os
import time
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.journal.journal import path_for
from energy_callbacks.core import atomic_files

# Name of the marker file in the folder of an attempt; its lines are the run id and the launch id.
_MARKER: Final = "run_id"
# Number of times that a process looks for the marker file, and the pause after each look, s: one
# second in total. The marker is written immediately after the folder is created; if it is still
# missing after a second, the process that created the folder was probably killed.
_MARKER_LOOKS, _MARKER_PAUSE_S = 50, 0.02


def claim_attempt(
    folder: Path, host: str, rank: int, run_id: str | None, launch: str | None = None
) -> tuple[int, str]:
    """Join or begin the attempt that this process belongs to.

    Ranks of one launch find the same attempt without communication. A rank joins the newest attempt
    if the marker file of that attempt contains the rank's launch id and the attempt has no journal
    of the rank yet. Any other process begins a new attempt. If several processes do so at the same
    time, one of them creates the attempt's folder, and the others try again to join or begin one.

    Args:
        folder: run folder.
        host: name of this machine.
        rank: number of this process among all processes of the run, from 0.
        run_id: run id from a checkpoint; ``None`` for a new run.
        launch: id that all processes of one launch share; ``None`` for a single process.

    Returns:
        The attempt's number, from 1, and the run's id.
    """
    attempts = folder / "attempts"
    atomic_files.make_folder(attempts)
    while True:
        numbers = (path.name for path in attempts.iterdir() if path.name.isdecimal())
        newest = max(map(int, numbers), default=0)
        if launch is not None and not path_for(folder, newest, host, rank).exists():
            joined = _run_of(attempts / str(newest) / _MARKER, launch)
            if joined is not None:
                return newest, joined
        try:
            atomic_files.make_folder(attempts / str(newest + 1), exist_ok=False)
        except FileExistsError:
            continue  # another process was faster: try again
        run_id = run_id or os.urandom(6).hex()
        marker = attempts / str(newest + 1) / _MARKER
        atomic_files.write(marker, f"{run_id}\n{launch or ''}\n")
        return newest + 1, run_id


def _run_of(marker: Path, launch: str) -> str | None:
    """Return the run id in a marker file; ``None`` if the file is missing or of another launch.

    Waits up to one second for a marker file that has not been written yet.
    """
    for _ in range(_MARKER_LOOKS):
        if marker.exists():
            text = marker.read_text(encoding="utf-8", errors="replace")  # may be damaged
            run_id, _, its_launch = text.partition("\n")
            return run_id if its_launch == f"{launch}\n" else None
        if not marker.parent.exists():
            return None
        time.sleep(_MARKER_PAUSE_S)
    return None

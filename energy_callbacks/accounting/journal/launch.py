"""Identifies this process within a distributed training, and names the default run folder."""

import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from energy_callbacks.core.atomic_files import make_folder

COMMAND: Final = "command"
"""Value of ``framework``, and name of the phase, if the process measures another program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProcess:
    """The framework and the rank of a training process.

    Attributes:
        framework: ``lightning``, ``keras``, ``huggingface``, ``plain`` (a plain training loop) or
            ``command`` (another program is measured).
        framework_version: version of that framework; empty if unknown.
        rank: number of this process among all processes of the run, from 0.
        local_rank: number of this process among the processes of this host, from 0. Process 0
            of a host measures the CPU and RAM of the host.
        world_size: number of processes of the run.
        local_world_size: number of processes of the run on this host; each is assumed to consume
            as many samples as this process.
    """

    framework: str = "plain"
    framework_version: str = ""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    @classmethod
    def from_environment(cls) -> "TrainingProcess":
        """Return this process, as the environment variables of ``torchrun`` describe it.

        Raises:
            ValueError: if one of these variables is not a non-negative integer.
        """
        return cls(
            rank=_number("RANK", 0),
            local_rank=_number("LOCAL_RANK", 0),
            world_size=_number("WORLD_SIZE", 1),
            local_world_size=_number("LOCAL_WORLD_SIZE", 1),
        )


def _number(variable: str, otherwise: int) -> int:
    """Return the number in an environment variable, or ``otherwise`` if it is not set.

    An empty variable counts as not set.

    Raises:
        ValueError: if the variable is not a non-negative integer.
    """
    value = os.environ.get(variable) or str(otherwise)
    if not value.isdecimal():
        raise ValueError(
            f"the environment variable {variable} must be a number, got {value!r}; "
            "unset it, or start the program with torchrun"
        )
    return int(value)


def launch_id(process: TrainingProcess) -> str | None:
    """Return an id shared by all processes that start together; ``None`` for a single process."""
    if process.world_size == 1:
        return None
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
             "SLURM_JOB_ID", "SLURM_RESTART_COUNT")  # fmt: skip
    values = (os.environ.get(name, "") for name in names)
    return f"{process.world_size} {' '.join(values)}"


def default_folder(process: TrainingProcess) -> Path:
    """Return the default run folder of a process.

    For a single process, the folder is named after the time and is created. For several processes,
    the folder is not created. It is named after ``MASTER_PORT``, which all processes of a training
    share, or after the time if ``MASTER_PORT`` is not set.
    """
    folder = Path("energy_runs")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    if process.world_size == 1:
        return new_folder(folder / stamp)
    port = os.environ.get("MASTER_PORT")
    return folder / (stamp if port is None else f"port-{port}")


def new_folder(wished: Path) -> Path:
    """Create the folder ``wished``, or ``wished-2``, ``wished-3``, ... if it exists already.

    Returns:
        The new folder; ``wished`` if no folder can be created.
    """
    for number in itertools.count(1):
        folder = wished if number == 1 else wished.with_name(f"{wished.name}-{number}")
        try:
            make_folder(folder, exist_ok=False)
        except FileExistsError:
            continue
        except OSError:  # ``journal.check_writable`` then raises an error
            return wished
        return folder
    raise AssertionError("unreachable")

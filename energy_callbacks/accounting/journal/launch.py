"""Identifies the process within a distributed training, and chooses its run folder."""

import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMAND: Final = "command"
"""Framework and phase of a process that measures another program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProcess:
    """A process of a training, in terms of its framework and its rank.

    Attributes:
        framework: ``lightning``, ``keras``, ``huggingface``, ``plain`` or ``command``.
        framework_version: version of that framework; empty if unknown.
        rank: number among all processes of the run.
        local_rank: number among those of this host; the first one measures CPU and RAM.
        world_size: number of processes.
        local_world_size: number of processes on this host; each is assumed to consume as many
            samples as this one.
    """

    framework: str = "plain"
    framework_version: str = ""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    @classmethod
    def from_environment(cls) -> "TrainingProcess":
        """The process of a plain loop, from the variables of ``torchrun`` and similar launchers."""
        return cls(
            rank=_number("RANK", 0),
            local_rank=_number("LOCAL_RANK", 0),
            world_size=_number("WORLD_SIZE", 1),
            local_world_size=_number("LOCAL_WORLD_SIZE", 1),
        )


def _number(variable: str, otherwise: int) -> int:
    """Read a number from a launcher's variable.

    Raises:
        ValueError: if it is set to something else.
    """
    value = os.environ.get(variable) or str(otherwise)
    if not value.isdecimal():
        raise ValueError(
            f"the environment variable {variable} must be a number, got {value!r}; "
            "unset it, or start the program with torchrun"
        )
    return int(value)


def launch_id(process: TrainingProcess) -> str | None:
    """Return an id that all processes of one launch share; ``None`` for a single process."""
    if process.world_size == 1:
        return None
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
             "SLURM_JOB_ID", "SLURM_RESTART_COUNT")  # fmt: skip
    values = (os.environ.get(name, "") for name in names)
    return f"{process.world_size} {' '.join(values)}"


def default_folder(process: TrainingProcess) -> Path:
    """Return a new folder; processes of one launch share it, named after their common port."""
    folder = Path("energy_runs")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    if process.world_size == 1:
        return new_folder(folder / stamp)
    port = os.environ.get("MASTER_PORT")
    return folder / (stamp if port is None else f"port-{port}")


def new_folder(wished: Path) -> Path:
    """Create a folder of this name, or with the first free number appended.

    Returns:
        The folder; ``wished`` itself if none can be created.
    """
    for number in itertools.count(1):
        folder = wished if number == 1 else wished.with_name(f"{wished.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:  # ``check_writable`` reports it with advice
            return wished
        return folder
    raise AssertionError("unreachable")

"""Which process of a distributed training this is."""

import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMAND: Final = "command"
"""The framework of a process that measures another program, and the phase that it is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProcess:
    """Which process of which framework this is.

    Attributes:
        framework: ``lightning``, ``keras``, ``huggingface``, ``plain`` or ``command``.
        framework_version: of that framework.
        rank: number among all processes of the run.
        local_rank: number among those of this host; the first measures CPU and RAM.
        world_size: how many processes there are.
        local_world_size: how many of them on this host; each is taken to consume as many samples
            as this one, where figures of the host are logged.
    """

    framework: str = "plain"
    framework_version: str = ""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    @classmethod
    def from_environment(cls) -> "TrainingProcess":
        """A plain loop's process, as ``torchrun`` and its kin describe it."""
        return cls(
            rank=_number("RANK", 0),
            local_rank=_number("LOCAL_RANK", 0),
            world_size=_number("WORLD_SIZE", 1),
            local_world_size=_number("LOCAL_WORLD_SIZE", 1),
        )


def _number(variable: str, otherwise: int) -> int:
    """A launcher's variable.

    Raises:
        ValueError: if it is set, but not to a number.
    """
    value = os.environ.get(variable) or str(otherwise)
    if not value.isdecimal():
        raise ValueError(
            f"the environment variable {variable} must be a number, got {value!r}; "
            "unset it, or start the program with torchrun"
        )
    return int(value)


def launch_id(process: TrainingProcess) -> str | None:
    """An id that all processes of one launch share; ``None`` for a single process."""
    if process.world_size == 1:
        return None
    names = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
             "SLURM_JOB_ID", "SLURM_RESTART_COUNT")  # fmt: skip
    values = (os.environ.get(name, "") for name in names)
    return f"{process.world_size} {' '.join(values)}"


def default_folder(process: TrainingProcess) -> Path:
    """One folder a start; processes of one launch take its port, which they share."""
    folder = Path("energy_runs")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    if process.world_size == 1:
        return new_folder(folder / stamp)
    port = os.environ.get("MASTER_PORT")
    return folder / (stamp if port is None else f"port-{port}")


def new_folder(wished: Path) -> Path:
    """A new folder of this name, or with the first number that is free.

    If none can be made the name is given nevertheless.
    """
    for number in itertools.count(1):
        folder = wished if number == 1 else wished.with_name(f"{wished.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:  # the writer reports it better
            return wished
        return folder
    raise AssertionError("unreachable")

"""Runs jobs on this machine: one at a time on each group of GPUs, or one at a time in total."""

import os
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from energy_callbacks.core import atomic_files
from energy_callbacks.core.config import RUN_DIR_VARIABLE
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.signals import ENDING, SignalHold
from energy_callbacks.matrix.attempts import OUTPUT, Results, is_running
from energy_callbacks.matrix.engines.engine import Engine
from energy_callbacks.matrix.plan import REPEAT, MatrixJob, check_whole, counted, is_whole
from energy_callbacks.matrix.progress import JobProgress
from energy_callbacks.sensing.gpus.devices import MASK_VARIABLE, GpuInfo, resolve
from energy_callbacks.sensing.sources.nvidia.source import inventory

_POLL_S: Final = 0.5


class _RunningJob(NamedTuple):
    job: MatrixJob
    folder: Path
    process: subprocess.Popen[bytes]


@dataclass(slots=True, kw_only=True)
class _Slot:
    """A group of GPUs, or the whole machine, that runs one job at a time.

    Attributes:
        name: UUIDs of the GPUs joined by ``+``, or a text such as ``this machine``.
        environment: environment variables that restrict a job to the GPUs of the group.
        free_from_s: monotonic time from which the next job may start, in seconds.
        running: the job that is running; ``None`` if there is none.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    free_from_s: float = 0.0
    running: _RunningJob | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine(Engine):
    """Runs jobs as child processes; its fields are the keys of ``[local]`` in the TOML file.

    Args:
        gpus: ``"all"`` for all visible GPUs, the number of GPUs to use (the first ones), or a list
            of indices among the visible GPUs, from 0. The GPUs are in the order of
            ``CUDA_VISIBLE_DEVICES``, or of nvidia-smi if this variable is not set. ``None`` runs
            one job at a time on the GPUs that the parent process, such as Slurm, has chosen.
        gpus_per_job: number of GPUs of each job.
    """

    gpus: Literal["all"] | int | Sequence[int] | None = "all"
    gpus_per_job: int = 1

    def __post_init__(self) -> None:
        numbers = self.gpus if isinstance(self.gpus, list | tuple) else [self.gpus]
        is_list = numbers and all(is_whole(one, 0) for one in numbers)
        if self.gpus not in ("all", None) and not is_list:
            raise ValueError(
                'gpus must be "all", a number of GPUs or a list of their indices, got '
                f"{self.gpus!r}; write gpus = 2 or gpus = [0, 1]"
            )
        if len(set(numbers)) < len(numbers):
            raise ValueError(
                f"gpus = {self.gpus!r} contains a GPU twice, but each GPU runs one "
                "job at a time; list each once"
            )
        check_whole("gpus_per_job", self.gpus_per_job)

    def preview(self, jobs: Sequence[MatrixJob], results: Results) -> str:
        """Return a text with the number of jobs and the groups of GPUs on which they would run."""
        del results
        slots = [slot.name for slot in self._slots()]
        return f"{counted(len(jobs))} here, {len(slots)} at a time: {', '.join(slots)}\n"

    def run(self, jobs: Sequence[MatrixJob], results: Results, progress: JobProgress) -> int | None:
        """Run jobs until all have ended.

        After a signal that ends a program, such as SIGINT, no more jobs are started. The signal is
        passed on to the running jobs, unless they have already received it from the terminal.
        """
        queue, slots, hold = deque(jobs), self._slots(), SignalHold(ENDING)
        with hold.held():
            while True:
                for slot in slots:
                    _serve(slot, queue, results, hold, progress)
                running = [slot.running.process for slot in slots if slot.running is not None]
                if not queue and not running:
                    return hold.first
                for number in hold.wait(_POLL_S):
                    for process in running:
                        process.send_signal(number)
                if hold.first is not None:
                    queue.clear()
                progress.waiting()

    def _slots(self) -> list[_Slot]:
        if self.gpus is None:
            return [_Slot(name="this machine")]
        gpus = self._gpus()
        if not gpus:
            return [_Slot(name="this machine, without a GPU")]
        each = self.gpus_per_job
        groups = [gpus[i : i + each] for i in range(0, len(gpus) - each + 1, each)]
        if not groups:
            raise ValueError(f"gpus_per_job = {each}, but there are {len(gpus)} GPUs; give fewer")
        return [
            _Slot(name="+".join(group), environment={MASK_VARIABLE: ",".join(group)})
            for group in groups
        ]

    def _gpus(self) -> list[str]:
        """Return the UUIDs of the GPUs that jobs may use.

        Raises:
            ValueError: if ``gpus`` asks for a GPU that is not visible.
            SourceUnavailable: if environment variables such as ``CUDA_VISIBLE_DEVICES`` do not
                identify the visible GPUs.
        """
        gpus: Sequence[GpuInfo] = ()
        with suppress(SourceUnavailable):
            gpus = inventory()
        visible = [one.uuid for one in resolve(os.environ, gpus)]
        if self.gpus is None or self.gpus == "all":
            return visible
        wanted = range(self.gpus) if isinstance(self.gpus, int) else self.gpus
        if missing := [number for number in wanted if number >= len(visible)]:
            raise ValueError(
                f"gpus = {self.gpus!r} asks for GPU {missing[0]}, but {len(visible)} are "
                'visible, counted from 0; write gpus = "all" for all visible GPUs'
            )
        return [visible[number] for number in wanted]


def _serve(
    slot: _Slot, queue: deque[MatrixJob], results: Results, hold: SignalHold, progress: JobProgress
) -> None:
    """Record the end of the slot's job if it has ended; start the next job if the slot is free.

    The slot is free if no job is running in it and the pause after the last job is over.
    """
    if slot.running is not None and _has_ended(slot.running):
        job, folder, process = slot.running
        progress.ended(job, results.end(folder, process.returncode))
        slot.running = None
        slot.free_from_s = time.monotonic() + results.cool_down_s
    if slot.running is None and queue and time.monotonic() >= slot.free_from_s:
        job = queue.popleft()
        with hold.as_before():
            slot.running = _start(job, results, slot.environment)
        progress.started(job, slot.name)


def _start(job: MatrixJob, results: Results, environment: Mapping[str, str]) -> _RunningJob:
    """Start a new attempt of a job.

    Raises:
        AlreadyRunning: if an older attempt of the job still runs.
    """
    folder = results.begin(job)
    # If the matrix itself is measured, ``RUN_DIR_VARIABLE`` names the run folder of the matrix.
    # Jobs must not use that folder.
    outer = {name: value for name, value in os.environ.items() if name != RUN_DIR_VARIABLE}
    process = launch(
        _run_command(job, results, folder),
        cwd=results.working_folder,
        env={**outer, **job.environment, **environment},
        output=folder / OUTPUT,
    )
    return _RunningJob(job, folder, process)


def _run_command(job: MatrixJob, results: Results, folder: Path) -> list[str]:
    """Return the command that measures a job; the job's parameters become tags of the report."""
    tags = {**job.parameters, REPEAT: str(job.repeat)}
    return [
        *(sys.executable, "-P", "-m", "energy_callbacks", "run"),
        *("--out", str(folder), f"--name={job}"),
        *results.run_options,
        *(f"--tag={name}={value}" for name, value in tags.items()),
        *("--", *job.words),
    ]


def launch(words: Sequence[str], *, output: Path, **options: Any) -> subprocess.Popen[Any]:
    """Start a program whose standard output and standard error go to a file.

    Args:
        words: program and arguments.
        output: path of the file.
        **options: further arguments of ``Popen``, such as the working directory ``cwd``.
    """
    with os.fdopen(atomic_files.open_new(output), "wb") as file:
        return subprocess.Popen(  # noqa: S603 - the user's command
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, **options
        )


def _has_ended(running: _RunningJob) -> bool:
    code = running.process.poll()
    # If ``energy-callbacks run`` was killed, the job's command may still run on the slot's GPUs.
    return code is not None and (code >= 0 or not is_running(running.folder, socket.gethostname()))

"""Manages the results folder: the attempts of each job, their outcomes, and which attempt counts.

In ``matrix/``, an attempt is one execution of a job. If an attempt fails or is killed, the job can
be attempted again.

::

    RESULTS/jobs/optimizer=adam,batch_size=16/repeat-1/try-1/
        job.json        command, parameters, environment, host, time of the start; without secrets
        output.txt      output of the command
        outcome.json    exit code and time of the end; missing while the attempt runs, or if the
                        process that started it was killed
        ...             files that energy-callbacks run writes, such as energy_report.json
"""

import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.journal import redaction
from energy_callbacks.core import atomic_files
from energy_callbacks.core.config import RUN_DIR_VARIABLE
from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.matrix.plan import MatrixJob

OUTPUT: Final = "output.txt"
_JOB: Final = "job.json"
_OUTCOME: Final = "outcome.json"
_LOCK: Final = "matrix.lock"
# An attempt on another host counts as ended if no JSON file in its folder has changed for this
# number of seconds. While an attempt runs, its journal changes at least every 0.8 s, but a shared
# file system may show the changes late.
_SILENT_S: Final = 90.0
# Number of bytes at the end of an output from which ``last_lines`` takes its lines.
_TAIL_BYTES: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an attempt.

    Attributes:
        exit_code: exit code of the command, negative if a signal ended it; ``None`` while it runs,
            or if the process that started the attempt was killed.
        started_unix_s: Unix time of the start, in seconds.
        ended_unix_s: Unix time of the end, in seconds; ``None`` if ``exit_code`` is ``None``.
        host: name of the host on which the attempt ran.
        folder: folder of the attempt, which is a run folder.
        is_running: whether the attempt is still running.
    """

    exit_code: int | None
    started_unix_s: float
    ended_unix_s: float | None
    host: str
    folder: Path
    is_running: bool = False

    @property
    def is_done(self) -> bool:
        """Whether the attempt succeeded: the exit code is 0."""
        return self.exit_code == 0

    @property
    def status(self) -> str:
        """Text for users, such as ``ok``, ``running`` or ``exit code 1``."""
        if self.is_running:
            return "running"
        if self.exit_code is None:
            return "killed"
        if self.exit_code < 0:
            return f"ended by signal {-self.exit_code}"
        return "ok" if self.is_done else f"exit code {self.exit_code}"

    def last_lines(self) -> list[str]:
        """Return the last five lines in the last 4000 bytes of the attempt's output."""
        with suppress(OSError), (self.folder / OUTPUT).open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            return file.read().decode(errors="replace").splitlines()[-5:]
        return []


class AlreadyRunning(EnergyCallbacksError):
    """Another process runs the same job, or uses the same results folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results folder of a matrix, and the settings with which its jobs run.

    Args:
        folder: absolute path, the same on all machines that run jobs.
        run_options: options of ``energy-callbacks run`` for each job.
        cool_down_s: pause in s before the next job on a device.
        working_folder: working directory of the commands.
    """

    folder: Path
    run_options: Sequence[str] = ()
    cool_down_s: float = 0.0
    working_folder: Path

    def outcomes(self, job: MatrixJob) -> list[Outcome]:
        """Return the outcome of each attempt of a job, oldest first."""
        folders = {
            int(path.name[4:]): path
            for path in self._folder_of(job).glob("try-*")
            if path.name[4:].isdecimal() and (path / _JOB).exists()
        }
        return [_outcome(folder) for _, folder in sorted(folders.items())]

    def outcome(self, job: MatrixJob) -> Outcome | None:
        """Return the outcome of a job: of its first successful attempt, otherwise of its newest.

        Return ``None`` if the job has no attempt.

        Raises:
            ValueError: if the successful attempt had another command or environment than ``job``.
        """
        outcomes = self.outcomes(job)
        for one in outcomes:
            if one.is_done:
                _check_same(job, one)
                return one
        return outcomes[-1] if outcomes else None

    def newest(self, job: MatrixJob) -> Outcome | None:
        """Return the outcome of the newest attempt of a job; ``None`` if the job has none."""
        return next(reversed(self.outcomes(job)), None)

    def missing(self, jobs: Sequence[MatrixJob]) -> list[MatrixJob]:
        """Return those of ``jobs`` that have not succeeded, in the same order."""
        outcomes = [(job, self.outcome(job)) for job in jobs]
        return [job for job, outcome in outcomes if outcome is None or not outcome.is_done]

    def begin(self, job: MatrixJob) -> Path:
        """Create the folder of a new attempt of a job, and return the folder.

        Raises:
            AlreadyRunning: if an earlier attempt of the job is still running.
        """
        self.check_free(job)
        number = len(list(self._folder_of(job).glob("try-*"))) + 1
        while True:
            folder = self._folder_of(job) / f"try-{number}"
            with suppress(FileExistsError):
                atomic_files.make_folder(folder, exist_ok=False)
                break
            number += 1
        content = {**asdict(job), "host": socket.gethostname(), "started_unix_s": time.time()}
        write_json(folder / _JOB, redaction.record(content))
        return folder

    def check_free(self, job: MatrixJob) -> None:
        """Check that no attempt of a job is running.

        Raises:
            AlreadyRunning: if an attempt of the job is running.
        """
        for one in self.outcomes(job):
            if one.is_running:
                raise AlreadyRunning(
                    f"{job} of an earlier call is still running, in {one.folder} on {one.host}; "
                    "wait until it has ended, or end it"
                )

    def end(self, folder: Path, exit_code: int) -> Outcome:
        """Write the exit code of an attempt to its folder, and return the outcome."""
        write_json(folder / _OUTCOME, {"exit_code": exit_code, "ended_unix_s": time.time()})
        return _outcome(folder)

    def strangers(self, jobs: Sequence[MatrixJob]) -> int:
        """Return the number of jobs in the folder that are not among ``jobs``."""
        known = {self._folder_of(job) for job in jobs}
        return len(set((self.folder / "jobs").glob("*/repeat-*")) - known)

    def _folder_of(self, job: MatrixJob) -> Path:
        return self.folder / "jobs" / job.folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder in a ``with`` block, so that no other matrix uses the folder.

        If the process is killed, the operating system releases the lock.

        Raises:
            AlreadyRunning: if another process holds the lock.
        """
        lock = atomic_files.open_to_append(self.folder / _LOCK)
        with os.fdopen(lock, "a+", encoding="utf-8") as file:
            try:
                atomic_files.lock(lock)
            except BlockingIOError as error:
                file.seek(0)
                raise AlreadyRunning(
                    f"{self.folder} is in use by another matrix ({file.read().strip()}); wait "
                    "until it has ended, or give another --out"
                ) from error
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            yield


def write_jobs(path: Path, results: Results, jobs: Sequence[MatrixJob]) -> None:
    """Write jobs and settings to a file, so that another machine can run a job by its index.

    Raises:
        ValueError: if a command or an environment variable contains a secret.
    """
    for job in jobs:
        check_no_secret(f"the command or [env] of {job}", asdict(job))
    write_json(path, {"results": asdict(results), "jobs": [asdict(job) for job in jobs]})


def check_no_secret(what: str, content: Any) -> None:
    """Check a value that another machine needs unchanged and that is written to a file for it.

    Raises:
        ValueError: if it contains a secret, see ``accounting.journal.redaction``.
    """
    if _as_json(redaction.record(content)) != _as_json(content):
        raise ValueError(
            f"{what} contains a secret, which would be written to a file; set it in the "
            "environment of the jobs, or let the program read it from a file"
        )


def read_jobs(path: Path) -> tuple[Results, list[MatrixJob]]:
    """Return the settings and the jobs in a file that ``write_jobs`` wrote.

    Raises:
        ValueError: if the file is invalid or does not exist on this machine.
    """
    if not path.is_file():
        raise ValueError(
            f"{path} does not exist on this machine; use --out with a folder on a file system "
            "that all machines share"
        )
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        results = content["results"]
        for name in ("folder", "working_folder"):
            results[name] = Path(results[name])
        jobs = [MatrixJob(**{**one, "words": tuple(one["words"])}) for one in content["jobs"]]
        return Results(**results), jobs
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} contains no jobs of a matrix ({error!r}); run the matrix again"
        ) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` as JSON to a file, atomically."""
    atomic_files.write(path, _as_json(content) + "\n")


def _as_json(content: Any) -> str:
    return json.dumps(content, indent=1, default=str)


def _outcome(folder: Path) -> Outcome:
    job = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    ended: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # missing while the attempt runs, or damaged
        ended = json.loads((folder / _OUTCOME).read_text(encoding="utf-8"))
    return Outcome(
        exit_code=ended.get("exit_code"),
        started_unix_s=job["started_unix_s"],
        ended_unix_s=ended.get("ended_unix_s"),
        host=job["host"],
        folder=folder,
        is_running=not ended and is_running(folder, job["host"]),
    )


def _check_same(job: MatrixJob, done: Outcome) -> None:
    """Raise ``ValueError`` if attempt ``done`` had another command or environment than ``job``."""
    saved = json.loads((done.folder / _JOB).read_text(encoding="utf-8"))
    own = redaction.record(asdict(job))
    for what, key in (("command", "words"), ("environment", "environment")):
        if own[key] != saved[key]:
            raise ValueError(
                f"{done.folder} was run with another {what} ({saved[key]}, now {own[key]}), so its "
                "results must not be compared; give another name or --out, or remove that folder"
            )


def is_running(folder: Path, host: str) -> bool:
    """Return whether an attempt without ``outcome.json`` is still running.

    An attempt on this host is running if another process has the attempt's folder as an argument,
    or as the value of the environment variable ``ENERGY_CALLBACKS_RUN_DIR``. An attempt on another
    host counts as running if a JSON file in its folder has changed in the last 90 s.
    """
    if host != socket.gethostname():
        times = (path.stat().st_mtime for path in folder.rglob("*.json*"))
        return time.time() - max(times, default=0.0) < _SILENT_S
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if process.pid != os.getpid() and (
                str(folder) in words or process.environ().get(RUN_DIR_VARIABLE) == str(folder)
            ):
                return process.status() != psutil.STATUS_ZOMBIE
    return False

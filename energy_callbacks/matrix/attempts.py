"""The results folder: the attempts of each job, their outcomes, and which attempt counts.

In this package, an attempt is one execution of a job. A job that failed or was killed can be
attempted again.

::

    RESULTS/jobs/optimizer=adam,batch_size=16/repeat-1/try-1/
        job.json        the job: command, parameters, environment, host, time of the start
        output.txt      output of the command
        outcome.json    exit code and time of the end; missing while the attempt runs, or if it was
                        killed
        energy_report.* attempts/  ...: files of energy-callbacks run
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import atomic_files
from energy_callbacks.core.config import RUN_DIR_VARIABLE
from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.matrix.plan import MatrixJob

OUTPUT: Final = "output.txt"
_JOB: Final = "job.json"
_OUTCOME: Final = "outcome.json"
_LOCK: Final = "matrix.lock"
# An attempt on another host counts as ended if its journals have not grown for this time. They grow
# every 0.8 s, but a shared file system may show the growth late.
_SILENT_S: Final = 90.0
# Number of bytes at the end of an output from which ``last_lines`` takes its lines.
_TAIL_BYTES: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an attempt.

    Attributes:
        exit_code: exit code of the command, negative if a signal ended it; ``None`` while it runs,
            or if it was killed together with the process that measured it.
        started_unix_s: time of the start.
        ended_unix_s: time of the end; ``None`` if not known.
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

    def last_lines(self, count: int = 5) -> list[str]:
        """Return the last ``count`` lines of the attempt's output; empty if there is none."""
        with suppress(OSError), (self.folder / OUTPUT).open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            return file.read().decode(errors="replace").splitlines()[-count:]
        return []


class AlreadyRunning(EnergyCallbacksError):
    """Another process is running the same job or matrix."""


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
        """Return the outcome of each attempt, oldest first."""
        folders = {
            int(path.name[4:]): path
            for path in self._folder_of(job).glob("try-*")
            if path.name[4:].isdecimal() and (path / _JOB).exists()
        }
        return [_outcome(folder) for _, folder in sorted(folders.items())]

    def outcome(self, job: MatrixJob) -> Outcome | None:
        """Return the outcome of the first successful attempt, otherwise of the newest attempt.

        Return ``None`` if there is no attempt.

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
        """Return the outcome of the newest attempt; ``None`` if there is none."""
        return next(reversed(self.outcomes(job)), None)

    def missing(self, jobs: Sequence[MatrixJob]) -> list[MatrixJob]:
        """Return the jobs that have not succeeded, in order."""
        outcomes = [(job, self.outcome(job)) for job in jobs]
        return [job for job, outcome in outcomes if outcome is None or not outcome.is_done]

    def begin(self, job: MatrixJob) -> Path:
        """Create and return the folder of a new attempt.

        Raises:
            AlreadyRunning: if an older attempt of the job still runs.
        """
        self.check_free(job)
        number = len(list(self._folder_of(job).glob("try-*"))) + 1
        while True:
            folder = self._folder_of(job) / f"try-{number}"
            with suppress(FileExistsError):
                folder.mkdir(parents=True)
                break
            number += 1
        content = {**asdict(job), "host": os.uname().nodename, "started_unix_s": time.time()}
        write_json(folder / _JOB, content)
        return folder

    def check_free(self, job: MatrixJob) -> None:
        """Check that no attempt of a job is running.

        Raises:
            AlreadyRunning: if an older attempt of the job still runs.
        """
        for one in self.outcomes(job):
            if one.is_running:
                raise AlreadyRunning(
                    f"{job} of an earlier call still runs, in {one.folder} on {one.host}; "
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
        """Lock the folder, so that no other matrix uses it; a killed process loses its lock.

        Raises:
            AlreadyRunning: if another process holds the lock.
        """
        import fcntl

        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                raise AlreadyRunning(
                    f"{self.folder} is in use by another matrix ({file.read().strip()}); wait "
                    "until it has ended, or give another --out"
                ) from error
            file.truncate(0)
            file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
            file.flush()
            yield


def write_jobs(path: Path, results: Results, jobs: Sequence[MatrixJob]) -> None:
    """Write jobs to a file from which another machine can run a job by its index."""
    write_json(path, {"results": asdict(results), "jobs": [asdict(job) for job in jobs]})


def read_jobs(path: Path) -> tuple[Results, list[MatrixJob]]:
    """Read a file that ``write_jobs`` wrote.

    Raises:
        ValueError: if the file is invalid or does not exist on this machine.
    """
    if not path.is_file():
        raise ValueError(
            f"{path} is not to be seen on this machine; put the results on a file system that all "
            "machines share, by --out"
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
            f"{path} holds no jobs of a matrix ({error!r}); run the matrix again"
        ) from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON atomically."""
    atomic_files.write(path, json.dumps(content, indent=1, default=str) + "\n")


def _outcome(folder: Path) -> Outcome:
    job = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    ended: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # missing while it runs, incomplete if killed
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
    """Raise ``ValueError`` if an attempt had another command or environment than ``job``."""
    saved = json.loads((done.folder / _JOB).read_text(encoding="utf-8"))
    for what, now, then in (
        ("command", list(job.words), saved["words"]),
        ("environment", dict(job.environment), saved["environment"]),
    ):
        if now != then:
            raise ValueError(
                f"{done.folder} was run with another {what} ({then}, now {now}), and the two must "
                "not be compared; give another name or --out, or remove that folder"
            )


def is_running(folder: Path, host: str) -> bool:
    """Return whether an attempt without an outcome still runs.

    On this host, an attempt runs if there is a process with the attempt's folder as an argument or
    as run folder. On another host, it counts as running if one of the JSON files in its folder has
    changed in the last 90 s.
    """
    if host != os.uname().nodename:
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

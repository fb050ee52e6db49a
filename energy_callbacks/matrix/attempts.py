"""The results folder: the attempts of each job, how they ended, and which one counts.

::

    RESULTS/jobs/optimizer=adam,batch_size=16/repeat-1/try-1/
        job.json        what was run
        output.txt      what it said
        outcome.json    how it ended; missing if it was killed, or goes on
        energy_report.* attempts/  ...: the run folder of energy-callbacks run
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
# Journals grow each 0.8 s; a file system shared by hosts may show that late.
_SILENT_S: Final = 90.0
_TAIL_BYTES: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a try ended.

    Attributes:
        exit_code: of the command, negative for a signal; ``None`` if it was killed together
            with what waited for it.
        started_unix_s: when it was started.
        ended_unix_s: ``None`` if not known.
        host: on which it ran.
        folder: of the try, which is a run folder.
        is_running: whether it goes on.
    """

    exit_code: int | None
    started_unix_s: float
    ended_unix_s: float | None
    host: str
    folder: Path
    is_running: bool = False

    @property
    def is_done(self) -> bool:
        """Whether it ended well, so that it counts."""
        return self.exit_code == 0

    @property
    def said(self) -> str:
        """How it ended, for people."""
        if self.is_running:
            return "running"
        if self.exit_code is None:
            return "killed"
        if self.exit_code < 0:
            return f"ended by signal {-self.exit_code}"
        return "ok" if self.is_done else f"exit code {self.exit_code}"

    def last_lines(self, count: int = 5) -> list[str]:
        """Of its output."""
        with suppress(OSError), (self.folder / OUTPUT).open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _TAIL_BYTES, 0))
            return file.read().decode(errors="replace").splitlines()[-count:]
        return []


class AlreadyRunning(EnergyCallbacksError):
    """Another process runs the same jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The folder of a matrix.

    Args:
        folder: absolute, as it is known to all machines that run jobs.
        run_options: of ``energy-callbacks run``, for each job.
        cool_down_s: pause before the next job on a device.
        working_folder: in which commands run.
    """

    folder: Path
    run_options: Sequence[str] = ()
    cool_down_s: float = 0.0
    working_folder: Path

    def outcomes(self, job: MatrixJob) -> list[Outcome]:
        """Of each try, oldest first."""
        found = self._place(job).glob("try-*")
        tries = sorted(
            (one for one in found if one.name[4:].isdecimal()), key=lambda one: int(one.name[4:])
        )
        return [_outcome(one) for one in tries if (one / _JOB).exists()]

    def outcome(self, job: MatrixJob) -> Outcome | None:
        """The first try that ended well, else the newest; ``None`` if there is none.

        Raises:
            ValueError: if the one that counts has run another command.
        """
        found = self.outcomes(job)
        done = next((one for one in found if one.is_done), None)
        if done is not None:
            _check_same(job, done)
        return done or (found[-1] if found else None)

    def begin(self, job: MatrixJob) -> Path:
        """A folder for a new attempt.

        Raises:
            Busy: if an older try of the job goes on.
        """
        self.check_free(job)
        number = len(list(self._place(job).glob("try-*"))) + 1
        while True:
            folder = self._place(job) / f"try-{number}"
            with suppress(FileExistsError):
                folder.mkdir(parents=True)
                break
            number += 1
        content = {**asdict(job), "host": os.uname().nodename, "started_unix_s": time.time()}
        write_json(folder / _JOB, content)
        return folder

    def check_free(self, job: MatrixJob) -> None:
        """No process runs a job.

        Raises:
            Busy: if an older try of it goes on.
        """
        for one in self.outcomes(job):
            if one.is_running:
                raise AlreadyRunning(
                    f"{job} of an earlier call still runs, in {one.folder} on {one.host}; "
                    "wait until it has ended, or end it"
                )

    def end(self, folder: Path, exit_code: int) -> Outcome:
        """Note how a try ended."""
        write_json(folder / _OUTCOME, {"exit_code": exit_code, "ended_unix_s": time.time()})
        return _outcome(folder)

    def strangers(self, jobs: Sequence[MatrixJob]) -> int:
        """How many jobs there are in the folder that are not among ``jobs``."""
        known = {self._place(job) for job in jobs}
        return len(set((self.folder / "jobs").glob("*/repeat-*")) - known)

    def _place(self, job: MatrixJob) -> Path:
        return self.folder / "jobs" / job.folder

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process start jobs in this folder; a killed process releases its lock.

        Raises:
            AlreadyRunning: if another process holds it.
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


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    atomic_files.write(path, json.dumps(content, indent=1, default=str) + "\n")


def _outcome(folder: Path) -> Outcome:
    job = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    place = folder / _OUTCOME
    ended: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # one that was cut off is that of a killed try
        ended = json.loads(place.read_text(encoding="utf-8"))
    return Outcome(
        exit_code=ended.get("exit_code"),
        started_unix_s=job["started_unix_s"],
        ended_unix_s=ended.get("ended_unix_s"),
        host=job["host"],
        folder=folder,
        is_running=not ended and goes_on(folder, job["host"]),
    )


def _check_same(job: MatrixJob, done: Outcome) -> None:
    kept = json.loads((done.folder / _JOB).read_text(encoding="utf-8"))
    for what, now, then in (
        ("command", list(job.words), kept["words"]),
        ("environment", dict(job.environment), kept["environment"]),
    ):
        if now != then:
            raise ValueError(
                f"{done.folder} was run with another {what} ({then}, now {now}), and the two must "
                "not be compared; give another name or --out, or remove that folder"
            )


def goes_on(folder: Path, host: str) -> bool:
    """Whether a try without an outcome is still at work, as far as this host can know."""
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

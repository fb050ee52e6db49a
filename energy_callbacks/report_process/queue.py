"""Starts report processes, one at a time; only the newest of several waiting reports is made."""

import atexit
import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from energy_callbacks.core import forks
from energy_callbacks.core.active_call import keep_interrupt
from energy_callbacks.core.config import is_off
from energy_callbacks.core.guard import logger
from energy_callbacks.report_process.job import ReportJob

if TYPE_CHECKING:
    import subprocess

PROCESS_VARIABLE: Final = "ENERGY_CALLBACKS_REPORT_PROCESS"
"""Environment variable that, set to 0, makes the training process make its reports at its exit."""

# A report process that takes longer is stopped, s. On a busy machine, a report takes some seconds.
_LONGEST_S: Final = 600.0
# Number of characters of the error message of a report process that are logged.
_MESSAGE: Final = 300


class ReportQueue:
    """Makes the reports of one process.

    ``make`` is called on the threads of journals. The first of them starts the report processes,
    one after the other, until no job is left. If no process can be started, the newest job is kept
    until the interpreter exits.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: ReportJob | None = None
        self._kept: ReportJob | None = None
        self._is_busy = False

    def make(self, job: ReportJob) -> None:
        """Make a report now, or after the present one; never call this on the training thread."""
        with self._lock:
            skipped, self._next = self._next, job
            was_busy, self._is_busy = self._is_busy, True
        _skip(skipped, job)
        while not was_busy and (taken := self._take()) is not None:
            self._start(taken)

    def _take(self) -> ReportJob | None:
        with self._lock:
            job, self._next = self._next, None
            self._is_busy = job is not None
        return job

    def _start(self, job: ReportJob) -> None:
        import subprocess  # imported before, when the attempt began (``journal.environment``)

        try:
            process = _started()
        except (OSError, RuntimeError) as error:
            logger.debug("no report process: %s", error)
            skipped, self._kept = self._kept, job
            _skip(skipped, job)
            return
        try:
            output, message = process.communicate(job.as_json(), timeout=_LONGEST_S)
        except (OSError, subprocess.SubprocessError) as error:
            process.kill()
            output, message = "", str(error)
        try:
            if process.wait():
                problem = message.strip()[-_MESSAGE:] or f"exit status {process.returncode}"
                warn(job.run_folder, problem)
            else:
                job.publish(_figures(output))
        finally:
            job.done.set()

    def wait(self, job: ReportJob, timeout_s: float) -> None:
        """Wait until a job is done. A job that is kept until the exit is made now."""
        if self._kept is job:
            self.make_kept()
        job.done.wait(timeout_s)

    def make_kept(self) -> None:
        """Make the report for which no process could be started, in this process."""
        job, self._kept = self._kept, None
        if job is not None:
            make_here(job)


def _figures(output: str) -> dict[str, float]:
    """Return the last figures, which are the last line that is a JSON object.

    Other modules may print text after it. If there is no such line, the result is empty: an
    exception would end the thread that makes all reports of this process.
    """
    for line in reversed(output.splitlines()):
        with contextlib.suppress(ValueError):
            if isinstance(figures := json.loads(line), dict):
                return figures
    logger.warning("the figures of a report cannot be read from its process")
    return {}


def make_here(job: ReportJob) -> None:
    """Make a report in this process; a failure is logged."""
    try:
        job.publish(job.make())
    except KeyboardInterrupt:
        warn(job.run_folder, "interrupted by Ctrl-C")
        raise
    except Exception as error:  # noqa: BLE001 - must not end the training
        warn(job.run_folder, f"{type(error).__name__}: {error}")
    job.done.set()


def _started() -> "subprocess.Popen[str]":
    """Start a report process, a new interpreter that uses no GPU.

    Raises:
        OSError: if the process cannot be started.
        RuntimeError: if the executable of this process is not Python, or if the interpreter can
            start no more processes because it exits.
    """
    import subprocess

    is_python = Path(sys.executable or "").name.startswith(("python", "pypy"))
    if not is_python or getattr(sys, "frozen", False) or is_off(PROCESS_VARIABLE):
        raise RuntimeError(
            "this program cannot start Python in another process, or is not allowed to"
        )
    return subprocess.Popen(
        # -P: the working directory is not a folder of modules.
        [sys.executable, "-P", "-m", "energy_callbacks.report_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": "1",
        },
        start_new_session=True,  # so that Ctrl-C at the terminal does not reach it
    )


def _skip(skipped: ReportJob | None, newer: ReportJob) -> None:
    if skipped is None:
        return
    skipped.done.set()
    folder = skipped.run_folder
    is_same_folder = folder == newer.run_folder
    if is_same_folder and skipped.run_id == newer.run_id:  # the newer report covers both
        newer.take_over(skipped)
    elif not is_same_folder or skipped.on_report:
        logger.warning(
            "the report of %s was skipped, because a newer training has ended; make it with: "
            "energy-callbacks report %s",
            folder,
            folder,
        )


def warn(run_folder: Path, problem: object) -> None:
    """Log that a run folder has no report, and why."""
    logger.warning(
        "no energy report in %s: %s; to read what was recorded, run: energy-callbacks report %s "
        "--out OTHER_FOLDER",
        run_folder,
        problem,
        run_folder,
    )


reports: Final = ReportQueue()
"""The queue of this process: one at a time over all meters."""


def _at_exit() -> None:
    with contextlib.suppress(KeyboardInterrupt):  # it was logged, and ends the process
        reports.make_kept()
    keep_interrupt()


# Registered at the import, before ``open_attempts`` registers its handler: handlers run in reverse
# order, and the attempts that end at exit may leave a report to make.
atexit.register(_at_exit)
# In a forked child, a thread of the parent may have held the lock.
forks.call_in_children(reports.__init__)  # type: ignore[misc]

"""Requests the reports of one meter, waits for them, and saves them."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report_process import queue
from energy_callbacks.report_process.job import ReportJob
from energy_callbacks.sensing.clock import Clock, SystemClock

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt

# Maximum wait in seconds for the other ranks before the report is computed; a rank that died must
# not delay the report for long.
_RANKS_S: Final = 5.0


class MeterReports:
    """Requests the reports of one meter, and waits for them.

    Args:
        clock: the meter's clock; in virtual time, a report is made at once, in this process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._job: ReportJob | None = None

    def make(self, attempt: "ActiveAttempt") -> None:
        """Have the report made, on rank 0; runs on the journal's thread."""
        if attempt.rank != 0:
            return
        wait_for_ranks(attempt)
        on_report = tuple(attempt.on_report.values())
        job = self._job = ReportJob(attempt.run_folder, attempt.pages, on_report, attempt.run_id)
        if isinstance(self._clock, SystemClock) and has_exit_handlers():
            queue.reports.make(job)
        else:  # in virtual time, or without exit handlers, it is made at once
            queue.make_here(job)

    def wait(self, attempt: "ActiveAttempt", timeout_s: float) -> Path | None:
        """Wait for the report of an attempt; see ``EnergyMeter.wait_for_report``."""
        deadline_s = self._clock.monotonic_s() + timeout_s
        if attempt.thread.is_ending:
            attempt.thread.wait_for_journal(timeout_s)
        if self._job is not None:
            queue.reports.wait(self._job, max(deadline_s - self._clock.monotonic_s(), 0.0))
        path = attempt.run_folder / "energy_report.html"
        return path if path.is_file() else None


def save(run_folder: Path) -> str | None:
    """Write ``energy_report.*`` into a run folder now; see ``EnergyMeter.save_report``."""
    from energy_callbacks.report import build, save
    from energy_callbacks.report.render.text import summary_line

    try:
        report = build(run_folder)
        paths = save(report, run_folder)
    except (OSError, JournalError) as error:
        queue.warn(run_folder, error)
        return None
    return summary_line(report, paths[0])


def wait_for_ranks(attempt: "ActiveAttempt") -> None:
    """Wait until all journals of an attempt are complete, for at most five seconds.

    The journal of a killed process never becomes complete. If the process ran on this host, its
    journal is not waited for.
    """
    # A single process must not wait for its own journal: if the disk is full, the journal never
    # gets its last line, and the wait would last for ``_RANKS_S``.
    ranks = attempt.process.world_size
    if ranks == 1:
        return
    deadline_s = time.monotonic() + _RANKS_S
    while time.monotonic() < deadline_s:
        journals = list(attempt.folder.glob("*.jsonl"))
        unfinished = [path for path in journals if not journal.has_ended(path)]
        if len(journals) >= ranks and all(map(journal.has_lost_its_writer, unfinished)):
            return
        time.sleep(0.05)


def has_exit_handlers() -> bool:
    """Return whether this process calls the handlers of ``atexit`` when it ends.

    Forked child processes of ``multiprocessing`` do not (Python 3.11 to 3.13,
    ``popen_fork._launch``), so that nothing may be left to do after the training. Spawned ones do,
    but are treated alike.
    """
    # Not imported here, which takes 10 ms: a child has already imported it.
    process = sys.modules.get("multiprocessing.process")
    return process is None or process.parent_process() is None

"""Shows the progress of jobs: a progress bar in a terminal, otherwise one line per event."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from energy_callbacks.matrix.attempts import Outcome
from energy_callbacks.matrix.plan import MatrixJob

if TYPE_CHECKING:
    from rich.progress import Progress


class JobProgress:
    """Prints the progress of jobs to standard error; engines call its methods on the main thread.

    Args:
        count: total number of jobs.
        done: number of jobs that have already succeeded or are queued.
        is_quiet: whether nothing is printed.
    """

    def __init__(self, count: int, done: int, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._count, self._done = count, done
        self._running: dict[Path, str] = {}
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True, highlight=False, emoji=False)
        if not self._is_quiet and console.is_terminal and not console.is_dumb_terminal:
            # No refresh thread: it could receive signals that the main thread blocks.
            self._bar = progress.Progress(
                progress.MofNCompleteColumn(),
                progress.BarColumn(),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
                progress.TextColumn("{task.description}", markup=False),
                console=console,
                auto_refresh=False,
            )
            self._task = self._bar.add_task("", total=self._count, completed=self._done)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def started(self, job: MatrixJob, place: str) -> None:
        """Report that a job has begun; ``place`` is the name of its device or machine."""
        self._running[job.folder] = str(job)
        if self._bar is None:
            self.say(f"{job}: started on {place}")

    def ended(self, job: MatrixJob, outcome: Outcome) -> None:
        """Report that a job has ended; if it failed, print the last lines of its output."""
        self._running.pop(job.folder, None)
        self._done += 1
        took = (outcome.ended_unix_s or outcome.started_unix_s) - outcome.started_unix_s
        self.say(f"[{self._done}/{self._count}] {job}: {outcome.status}, {took:.0f} s")
        if not outcome.is_done:
            for line in outcome.last_lines():
                self.say(f"    {line}")

    def waiting(self) -> None:
        """Refresh the progress bar; engines call this regularly while they wait for jobs."""
        if self._bar is not None:
            running = ", ".join(self._running.values()) or "cooling down"
            self._bar.update(self._task, completed=self._done, description=running, refresh=True)

    def say(self, line: str) -> None:
        """Print a line, above the progress bar if there is one."""
        if self._is_quiet:
            return
        if self._bar is None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        else:
            self._bar.console.print(line, markup=False)
